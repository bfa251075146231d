"""Moving messages to the dead letters."""

from collections.abc import Iterator, Set
from pathlib import Path

import pytest
from support.queues import START_US, Parts

from quivermq.delivery import dead_letter_transfer, journal
from quivermq.delivery.dead_letter_transfer import move_dead_letters
from quivermq.delivery.dead_letters import DeadLetterTopic, Origin, Verdict
from quivermq.delivery.fresh import messages_at
from quivermq.log import Log
from quivermq.model.dead_letters import DLQ_HEADER_BYTES_MAX
from quivermq.model.messages import Record
from quivermq.topic import splitting
from quivermq.topic.partition import Partition
from quivermq.topic.records import unpack
from quivermq.topic.state_log import StateLog

ORIGIN = Origin("orders", 0, 1, "billing")


class Place:
    def __init__(self) -> None:
        self.parts = Parts()
        self.partition = self.parts.partition(segment_messages=2)
        self.log: Log = self.partition.log(1)
        for number in range(6):
            self.log.append(b"%d" % number, key=b"k%d" % number, headers={"h": b"x"})
        self.notes: StateLog = self.parts.state_log("notes")
        self.woken: list[int] = []
        partitions = {number: self.parts.partition(number, "orders.dlq") for number in (0, 1)}
        self.target = DeadLetterTopic(partitions, self.woken.append)

    def move(self, *offsets: int, origin: Origin = ORIGIN) -> list[list[int]]:
        verdicts = {offset: Verdict(offset + 1, "broken") for offset in offsets}
        self.open: dict[int, bytes] = {}
        done = list(
            move_dead_letters(
                self.partition,
                self.notes,
                self.target,
                origin=origin,
                verdicts=verdicts,
                now_us=START_US,
                open_transfers=self.open,
            )
        )
        assert not self.open
        return done

    def letters(self, number: int = 0) -> list[Record]:
        return list(self.target.partitions[number].log(1).records())

    def kinds(self) -> list[int]:
        return [change.kind for record in self.notes.replay() for change in unpack(record)]


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.parts.close()


def test_messages_go_as_they_are_with_why_they_were_given_up(place: Place) -> None:
    assert place.move(1, 4) == [[1, 4]]
    first, second = place.letters()
    assert [(r.value, r.key, r.timestamp) for r in (first, second)] == [
        (b"1", b"k1", START_US),
        (b"4", b"k4", START_US),
    ]
    assert first.headers["h"] == b"x"
    assert (first.headers["quiver-dlq-offset"], first.headers["quiver-dlq-attempts"]) == (b"1", b"2")


def test_the_intent_comes_before_the_letter(place: Place) -> None:
    seen: list[tuple[list[int], int]] = []
    log = place.target.partitions[0].log(1)

    def look(operation: str, path: Path) -> None:
        if operation == "append" and path.parent == log.directory:
            seen.append((place.kinds(), log.end))

    place.parts.disk.before_step = look
    place.move(1)
    place.parts.disk.before_step = None
    assert seen[0] == ([journal.DEAD_LETTER], 0)
    # That they are finished, the caller notes.
    assert place.kinds() == [journal.DEAD_LETTER]


def test_everything_is_durable_on_return(place: Place) -> None:
    place.move(1)
    after = place.parts.without_power()
    assert [r.value for r in after.partition(0, "orders.dlq").log(1).records()] == [b"1"]
    kinds = [change.kind for record in after.state_log("notes").replay() for change in unpack(record)]
    assert kinds == [journal.DEAD_LETTER]


def test_a_partition_has_its_dead_letters_in_one_place(place: Place) -> None:
    for partition in (0, 1, 2, 3):
        place.move(partition, origin=ORIGIN._replace(partition=partition))
    assert [record.value for record in place.letters(0)] == [b"0", b"2"]
    assert [record.value for record in place.letters(1)] == [b"1", b"3"]


def test_many_go_in_batches_each_of_which_is_finished(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "_MESSAGES", 2)
    assert place.move(0, 1, 2, 3, 5) == [[0, 1], [2, 3], [5]]
    assert place.kinds() == [journal.DEAD_LETTER] * 3
    assert place.woken == [2, 2, 1]
    assert [len(frame) for frame in place.target.partitions[0].log(1).frames()] == [2, 2, 1]


def test_a_message_is_read_when_its_batch_has_its_turn(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them together may be larger than memory."""
    monkeypatch.setattr(splitting, "_MESSAGES", 1)
    read: list[int] = []

    def noted(partition: Partition, lane: int, offsets: Set[int]) -> Iterator[Record]:
        for record in messages_at(partition, lane, offsets):
            read.append(record.offset)
            yield record

    monkeypatch.setattr(dead_letter_transfer, "messages_at", noted)
    verdicts = {offset: Verdict(1, "broken") for offset in range(4)}
    moved = move_dead_letters(
        place.partition,
        place.notes,
        place.target,
        origin=ORIGIN,
        verdicts=verdicts,
        now_us=START_US,
        open_transfers={},
    )
    assert next(moved) == [0]
    assert read == [0, 1]
    assert list(moved) == [[1], [2], [3]]


def test_what_retention_has_taken_is_finished_without_a_letter(place: Place) -> None:
    place.log.retain(finished=4)
    assert sorted(offset for batch in place.move(1, 3, 5) for offset in batch) == [1, 3, 5]
    assert [record.value for record in place.letters()] == [b"5"]
    assert place.move(0) == [[0]]
    assert len(place.letters()) == 1
    assert place.woken == [1]


def test_batches_count_headers_and_keys_as_well(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "_BYTES", 2 * DLQ_HEADER_BYTES_MAX + 1000)
    for _ in range(2):
        place.log.append(b"v", headers={"h": bytes(900)})
        place.log.append(b"v", key=bytes(900))
    assert place.move(6, 7, 8, 9) == [[6], [7], [8], [9]]
