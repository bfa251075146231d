"""Which topics are read."""

import pytest

from quivermq.errors import InvalidName, InvalidRequest, TopicNotFound
from quivermq.model.lanes import Lane
from quivermq.spark.options import SourceOptions
from quivermq.spark.subscription import TopicSelection

TOPICS = ["events.a", "events.a.b", "events.a.dlq", "orders", "orders.dlq"]


def of(**options: str) -> TopicSelection:
    return TopicSelection.of(SourceOptions.parse(options))


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
    with pytest.raises(InvalidRequest, match="one of the options `subscribe`"):
        of(subscribe="a", subscribepattern="b")
    with pytest.raises(InvalidRequest, match="no topic"):
        of(subscribe=" , ")
    with pytest.raises(InvalidRequest, match="regular expression"):
        of(subscribepattern="(")
    with pytest.raises(InvalidName):
        of(subscribe="a/b")


def test_partitions_are_assigned_as_in_kafkas_source() -> None:
    assigned = of(assign='{"a": [0, 2], "b": [1]}')
    assert assigned.topics(["a", "b", "c"]) == ["a", "b"]
    assert [assigned.takes(*place) for place in (("a", 0), ("a", 1), ("a", 2), ("b", 1))] == [1, 0, 1, 1]
    with pytest.raises(InvalidRequest, match="`assign` names partition 1 of b"):
        assigned.check_partitions([Lane("a", 0, "normal"), Lane("a", 2, "normal")])
    for wrong in ("a", "[]", "{}", '{"a": 0}', '{"a": []}', '{"a": [-1]}', '{"a": ["0"]}', '{"a": [true]}'):
        with pytest.raises(InvalidRequest, match="`assign` is JSON such as"):
            of(assign=wrong)
    with pytest.raises(InvalidRequest, match="give one of the options"):
        of(assign='{"a": [0]}', subscribe="a")
    with pytest.raises(InvalidName):
        of(assign='{"events.*": [0]}')
