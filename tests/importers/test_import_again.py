"""Importing again: nothing is added twice, whatever happened in between, and what is new comes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.broker import serving_engine
from support.fake_source import FakeTopic, Shelf, item, letter
from support.faulty_disk import FaultyDisk

import quivermq
from quivermq import Settings, StorageSettings
from quivermq.importers import ImportSummary, import_queue, importing
from quivermq.importers.model import Position, SeenId, SourceGroup
from quivermq.importers.target import ImportTarget, target_of
from quivermq.model.lanes import Lane
from quivermq.model.names import IMPORTS_TOPIC

SETTINGS = Settings(storage=StorageSettings(durability="os"))
FAR_US = round((datetime.now(UTC) + timedelta(days=900)).timestamp() * 1_000_000)


def again(mq: Any, **options: Any) -> ImportSummary:
    return import_queue("fake", "/fake", mq, **options)


def values(mq: Any, topic: str = "orders") -> list[bytes]:
    lanes = [
        mq.queue(topic).read(p, priority=level)
        for p in range(mq.topic(topic).partitions)
        for level in LEVELS
    ]
    return [message.value for lane in lanes for message in lane]


LEVELS: list[Any] = ["high", "normal", "low"]


def test_a_second_import_adds_nothing(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(n, attempts=n) for n in range(3)], dead=[letter(1)])]
    again(mq)
    notes = mq.queue(IMPORTS_TOPIC).read()
    [told] = again(mq).topics
    assert (told.imported, told.dead_letters, told.already_there) == (0, 0, 4)
    assert values(mq) == [b"0", b"1", b"2"]
    assert len(mq.queue("orders").dead_letters()) == 1
    # Nor does it say so again and again.
    assert mq.queue(IMPORTS_TOPIC).read() == notes


def test_what_has_come_since_is_added(mq: Any, shelf: Shelf) -> None:
    topic = FakeTopic(live=[item(n) for n in range(3)], dead=[letter(1)])
    shelf.topics = [topic]
    again(mq)
    topic.live += [item(3), item(5, deliver_at_us=FAR_US)]
    topic.dead.append(letter(2))
    topic.witnesses = (*topic.witnesses, "second segment")
    [told] = again(mq).topics
    assert (told.imported, told.scheduled, told.dead_letters, told.already_there) == (2, 1, 1, 4)
    assert values(mq) == [b"0", b"1", b"2", b"3"]
    # The first segment is gone by now, and it is the same source all the same.
    topic.live, topic.witnesses = [item(3), item(6)], ("second segment",)
    [told] = again(mq).topics
    assert (told.imported, told.already_there) == (1, 3)


def test_what_was_consumed_and_removed_here_does_not_come_back(mq: Any, shelf: Shelf) -> None:
    mq.create_topic("orders", segment_messages=1, delete_finished=True)
    shelf.topics = [FakeTopic(live=[item(n) for n in range(4)], dead=[letter(1), letter(2)])]
    again(mq)
    orders = mq.queue("orders")
    orders.redrive()
    while messages := orders.get_many(10):
        orders.ack(messages)
    mq.compact()
    [told] = again(mq).topics
    assert (told.imported, told.dead_letters, told.already_there) == (0, 0, 6)
    assert (orders.get(), orders.dead_letters()) == (None, [])


def test_a_topic_that_was_deleted_gets_everything_again(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(1, attempts=1)], dead=[letter(1)])]
    again(mq)
    mq.delete_topic("orders")
    [told] = again(mq).topics
    # Its dead letters were not deleted.
    assert (told.imported, told.dead_letters, told.already_there) == (1, 0, 1)
    assert [m.attempt for m in mq.queue("orders").get_many(5)] == [2]


def test_two_sources_may_go_into_one_topic(mq: Any, shelf: Shelf) -> None:
    for witness, other in (("a", b"one"), ("b", b"two")) * 2:
        shelf.topics = [FakeTopic(live=[item(1, value=other)], dead=[letter(1)], witnesses=(witness,))]
        again(mq)
    assert values(mq) == [b"one", b"two"]
    assert len(mq.queue("orders").dead_letters()) == 2


def test_one_source_may_go_into_two_topics(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(1)])]
    for topic in ("a", "b", "a"):
        again(mq, topic=topic)
    assert (values(mq, "a"), values(mq, "b")) == ([b"1"], [b"1"])


def test_ids_that_are_unique_in_the_world_need_no_witness(mq: Any, shelf: Shelf) -> None:
    made = [item(2**100 + n, id=f"id {n}", timestamp_us=n) for n in range(3)]
    shelf.topics = [FakeTopic(live=made[:2], witnesses=())]
    again(mq)
    shelf.topics = [FakeTopic(name="moved", live=made, witnesses=())]
    [told] = again(mq, topic="orders").topics
    assert (told.imported, told.already_there) == (1, 2)


def test_a_group_that_nobody_used_moves_on_and_one_that_somebody_used_stays(mq: Any, shelf: Shelf) -> None:
    groups = [SourceGroup(name, {0: Position(3, {1: 2})}) for name in ("still", "moved")]
    topic = FakeTopic(live=[item(n) for n in range(6)], groups=groups)
    shelf.topics = [topic]
    again(mq, all=True)
    used = mq.queue("orders", "moved").get_many(1)
    topic.groups = [SourceGroup(name, {0: Position(5, {4: 1})}) for name in ("still", "moved")]
    topic.live.append(item(6))
    [told] = again(mq, all=True).topics
    assert (told.groups, told.groups_left) == (["still"], ["moved"])
    assert {m.value: m.attempt for m in mq.queue("orders", "still").get_many(9)} == {
        b"4": 2,
        b"5": 1,
        b"6": 1,
    }
    assert [m.value for m in used] == [b"1"]
    assert [m.value for m in mq.queue("orders", "moved").get_many(9)] == [b"3", b"4", b"5", b"6"]


def test_a_record_that_nobody_understands_stops_the_import(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(1)])]
    again(mq)
    for value in (b"nonsense", b'{"version":2,"type":"done"}', b'{"version":1,"type":"done"}', b"[]"):
        mq.queue(IMPORTS_TOPIC).put(value, key=b"others")
        mq.queue(IMPORTS_TOPIC).put(value, key=b"orders")
        with pytest.raises(quivermq.Conflict, match="cannot be understood"):
            again(mq)
        again(mq, topic="free")
        break
    assert values(mq) == [b"1"]


# Dying in between.


class Stopped(Exception):
    """The process is gone."""


class Doomed:
    """A target that is asked only so often, and then does nothing any more."""

    def __init__(self, target: ImportTarget, steps: int) -> None:
        self._target = target
        self._left = steps

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = getattr(self._target, name)
        if name in ("look", "frames", "scheduled"):
            return call

        def step(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if not self._left:
                raise Stopped
            return call(*arguments, **options)

        return step


def full_topic() -> FakeTopic:
    """Something of everything, in chunks of four."""
    live = [item(n, level=LEVELS[n % 3], partition=n % 2, attempts=n % 4) for n in range(14)]
    live += [item(20 + n, deliver_at_us=FAR_US + n * 1_000_000, partition=n % 2) for n in range(5)]
    return FakeTopic(
        live=[replace(each, identity=each.identity // 2) for each in live],
        dead=[letter(n) for n in range(5)],
        groups=[SourceGroup("g", {0: Position(3, {1: 5}), 1: Position(2, {})})],
        seen_ids=[SeenId("a", FAR_US, 1), SeenId("b", FAR_US)],
        partitions=2,
    )


@contextmanager
def opened(way: str) -> Iterator[Any]:
    """A new queue that is only in memory."""
    with quivermq.open("/data", SETTINGS, disk=FaultyDisk()) as engine, ExitStack() as stack:
        if way == "open":
            yield engine
        else:
            broker = stack.enter_context(serving_engine(engine))
            yield stack.enter_context(quivermq.connect(broker.url))


def state(mq: Any) -> dict[str, Any]:
    """All that an import brings about."""
    orders = mq.queue("orders", "g")
    lanes = {
        (p, level): [(m.value, m.headers) for m in orders.read(p, priority=level)]
        for p in (0, 1)
        for level in LEVELS
    }
    return {
        "lanes": lanes,
        "scheduled": [(s.value, s.partition, s.headers) for s in orders.scheduled()],
        "dead": [letter.value for letter in orders.dead_letters()],
        "duplicates": [orders.put(b"x", dedup_id=name, partition=0).duplicate for name in ("a", "b")],
        "taken": sorted((m.partition, m.priority, m.value, m.attempt) for m in orders.get_many(100)),
    }


@pytest.mark.parametrize(("way", "stride"), [("open", 1), ("connect", 7)])
def test_dying_at_any_step_loses_nothing_and_doubles_nothing(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, way: str, stride: int
) -> None:
    monkeypatch.setattr("quivermq.importers.stream._CHUNK_MESSAGES", 4)
    shelf.topics = [full_topic()]
    with opened(way) as mq:
        again(mq, all=True)
        expected = state(mq)
    assert sum(map(len, expected["lanes"].values())) == 14
    steps = 0
    while True:
        steps += stride
        with opened(way) as mq:
            doom = lambda queue, steps=steps: Doomed(target_of(queue), steps)  # noqa: E731
            with monkeypatch.context() as patched:
                patched.setattr(importing, "target_of", doom)
                try:
                    again(mq, all=True)
                    break
                except Stopped:
                    pass
            again(mq, all=True)
            assert state(mq) == expected, f"stopped at step {steps}"
    assert steps > 40


def test_attempts_are_counted_also_of_what_an_interrupted_import_left(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(n, attempts=n) for n in range(3)])]
    count = [0]

    class NoAdoption(Doomed):
        def __getattr__(self, name: str) -> Any:
            if name == "adopt":
                count[0] += 1
                raise Stopped
            return getattr(self._target, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(importing, "target_of", lambda queue: NoAdoption(target_of(queue), 0))
        with pytest.raises(Stopped):
            again(mq)
    again(mq)
    assert [m.attempt for m in mq.queue("orders").get_many(5)] == [1, 2, 3]
    assert count == [1]


def test_an_import_that_was_overtaken_adds_nothing_more(mq: Any, shelf: Shelf, monkeypatch: Any) -> None:
    monkeypatch.setattr("quivermq.importers.stream._CHUNK_MESSAGES", 1)
    shelf.topics = [FakeTopic(live=[item(n) for n in range(5)])]
    overtaken = [0]

    class Overtaken(Doomed):
        def __getattr__(self, name: str) -> Any:
            if name == "put_frame":
                overtaken[0] += 1
                if overtaken[0] == 8:
                    with pytest.MonkeyPatch.context() as patched:
                        patched.setattr(importing, "target_of", target_of)
                        again(mq)
            return getattr(self._target, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(importing, "target_of", lambda queue: Overtaken(target_of(queue), 0))
        with pytest.raises(quivermq.Conflict, match="epoch"):
            again(mq)
    again(mq)
    assert values(mq) == [b"0", b"1", b"2", b"3", b"4"]


def test_where_nobody_can_tell_what_is_missing_that_is_said(mq: Any, shelf: Shelf) -> None:
    mq.create_topic("orders", segment_messages=1, delete_finished=True)
    shelf.topics = [FakeTopic(live=[item(n) for n in range(3)])]

    class NoNotes(Doomed):
        def __getattr__(self, name: str) -> Any:
            call = getattr(self._target, name)

            def step(lane: Lane, frame: bytes, *rest: Any) -> Any:
                if lane.topic == IMPORTS_TOPIC and b'"type":"done"' in frame:
                    raise Stopped
                return call(lane, frame, *rest)

            return step if name == "put_frame" else call

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(importing, "target_of", lambda queue: NoNotes(target_of(queue), 0))
        with pytest.raises(Stopped):
            again(mq)
    orders = mq.queue("orders")
    orders.ack(orders.get_many(10))
    orders.put_many([b"later"] * 2)
    orders.ack(orders.get_many(10))
    mq.compact()
    with pytest.raises(quivermq.Conflict, match="was interrupted, and retention has removed some of it"):
        again(mq)
    assert again(mq, topic="others").topics[0].imported == 3


def test_a_group_of_a_source_that_has_no_messages_any_more(mq: Any, shelf: Shelf) -> None:
    groups = [SourceGroup("g", {0: Position(9)})]
    mq.queue("orders").put(b"own")
    shelf.topics = [FakeTopic(groups=groups)]
    assert again(mq).topics[0].groups == ["g"]
    assert [m.value for m in mq.queue("orders", "g").get_many(5)] == [b"own"]


def test_a_broker_that_is_not_there_is_told_of_at_once(shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(1)])]
    with quivermq.connect("http://127.0.0.1:9", retries=0) as client, pytest.raises(quivermq.Unreachable):
        again(client)
