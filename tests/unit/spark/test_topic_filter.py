import pytest

from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.spark.subscription import check_named, topic_filter

TOPICS = ["orders", "events.eu", "gone.dlq"]


@pytest.mark.parametrize(
    "topics", [None, "orders", "orders, events.eu", ["orders"], "none.*", "x.>", "gone"]
)
def test_what_may_be_asked_for(topics: str | list[str] | None) -> None:
    check_named(topics, TOPICS)


@pytest.mark.parametrize("topics", ["nosuch", "orders,nosuch", ["none.*", "nosuch"]])
def test_a_name_that_is_no_topic_is_told(topics: str | list[str]) -> None:
    with pytest.raises(TopicNotFound, match="there is no topic nosuch"):
        check_named(topics, TOPICS)


def test_all_are_asked_for_by_leaving_it_out_and_not_by_an_empty_list() -> None:
    assert all(map(topic_filter(None), TOPICS))
    with pytest.raises(InvalidRequest, match="leave it out for all topics"):
        topic_filter([])
