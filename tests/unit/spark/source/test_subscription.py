"""Which topics are read."""

import pytest

from quivermq.errors import InvalidName, InvalidRequest, TopicNotFound
from quivermq.spark.options import Options
from quivermq.spark.source.subscription import Subscription

TOPICS = ["events.a", "events.a.b", "events.a.dlq", "orders", "orders.dlq"]


def of(**options: str) -> Subscription:
    return Subscription.of(Options.parse(options))


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("orders", ["orders"]),
        ("orders,none, events.*", ["events.a", "orders"]),
        ("events.>", ["events.a", "events.a.b"]),
        ("*.dlq,orders", ["orders", "orders.dlq"]),
        (">", ["events.a", "events.a.b", "orders"]),
    ],
)
def test_names_and_wildcards(text: str, topics: list[str]) -> None:
    assert of(subscribe=text).topics(TOPICS) == topics


def test_expressions_match_whole_names() -> None:
    assert of(subscribepattern="event").topics(TOPICS) == []
    assert of(subscribepattern="(events|ord).*").topics(TOPICS) == ["events.a", "events.a.b", "orders"]
    assert of(subscribepattern=r".*\.dlq").topics(TOPICS) == ["events.a.dlq", "orders.dlq"]


def test_only_named_topics_have_to_be_there() -> None:
    of(subscribe="none.*").check_all([])
    with pytest.raises(TopicNotFound, match="none"):
        of(subscribe="orders,none").check_all(["orders"])


def test_what_nobody_can_subscribe_to() -> None:
    with pytest.raises(InvalidRequest, match="`subscribe`"):
        of()
    with pytest.raises(InvalidRequest, match="`subscribePattern`, not both"):
        of(subscribe="a", subscribepattern="b")
    with pytest.raises(InvalidRequest, match="no topic"):
        of(subscribe=" , ")
    with pytest.raises(InvalidRequest, match="regular expression"):
        of(subscribepattern="(")
    with pytest.raises(InvalidName):
        of(subscribe="a/b")
