"""What topics are called after an import, and which of them come."""

from typing import Any

import pytest
from support.fake_source import FakeTopic, Shelf, item

import quivermq
from quivermq.importers import import_queue
from quivermq.importers.kinds import own_name


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("orders", "orders"),
        ("a/b", "a.b"),
        ("n.o-r_m:al", "n.o-r_m-al"),
        ("ä b", "--b"),
        ("..", "-"),
        ("", "-"),
    ],
)
def test_a_name_becomes_one_that_is_allowed(name: str, here: str) -> None:
    assert own_name(name) == here
    assert len(own_name("x" * 1000)) == 249


def topics(mq: Any, shelf: Shelf, *names: str, **options: Any) -> list[str]:
    shelf.topics = [FakeTopic(name, [item(1)], witnesses=(name,)) for name in names]
    made = [topic.topic for topic in import_queue("fake", "/fake", mq, **options).topics]
    assert {*made, "quiver.imports"} == set(mq.topics())
    return made


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["a.b", "c"]),
        ({"topic": "new"}, ["new.a.b", "new.c"]),
        ({"source_topics": ["c"]}, ["c"]),
        ({"source_topics": ["c"], "topic": "new"}, ["new"]),
        ({"names": {"a/b": "x"}}, ["x", "c"]),
        ({"names": {"a/b": "x"}, "topic": "new"}, ["x", "new.c"]),
    ],
)
def test_several_topics(mq: Any, shelf: Shelf, options: dict[str, Any], expected: list[str]) -> None:
    assert topics(mq, shelf, "a/b", "c", **options) == expected


def test_one_topic(mq: Any, shelf: Shelf) -> None:
    assert topics(mq, shelf, "a/b", topic="new") == ["new"]


def test_a_queue_without_a_name_needs_one(mq: Any, shelf: Shelf) -> None:
    shelf.has_names = False
    with pytest.raises(quivermq.InvalidRequest, match="has no name of its own: say which topic it becomes"):
        topics(mq, shelf, "directory")
    assert topics(mq, shelf, "directory", names={"directory": "x"}) == ["x"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"source_topics": ["d"]}, quivermq.InvalidRequest, "has no topic 'd': it has 'a.b', 'a/b', 'c'"),
        ({"names": {"d": "x"}}, quivermq.InvalidRequest, "has no topic 'd'"),
        ({}, quivermq.InvalidRequest, "'a.b' and 'a/b' would both become a.b"),
        ({"names": {"a/b": "c"}}, quivermq.InvalidRequest, "would both become c"),
        ({"names": {"a/b": "x.dlq"}}, quivermq.InvalidRequest, "is where dead letters go: name the topic"),
        ({"names": {"a/b": "quiver.imports"}}, quivermq.InvalidRequest, "is where imports note"),
        ({"topic": "a b"}, quivermq.InvalidName, "cannot be the name of a topic"),
        ({"groups": ["a b"], "topic": "x"}, quivermq.InvalidName, "cannot be the name of a group"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    mq: Any, shelf: Shelf, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    shelf.topics = [FakeTopic(name, [item(1)]) for name in ("a.b", "a/b", "c")]
    with pytest.raises(error, match=words):
        import_queue("fake", "/fake", mq, **options)
    assert mq.topics() == []
