"""What a topic has seen: deduplication ids and the batches of producers, also after a crash."""

from collections.abc import Iterator

import pytest
from support.queues import SECOND, START_US, Parts

from quivermq.errors import Conflict
from quivermq.frame import Frame, Producer, encode
from quivermq.topic import deduplication, producers, state_log
from quivermq.topic.dedup_index import DedupEntry
from quivermq.topic.deduplication import Deduplication
from quivermq.topic.partition import LaneLogs

NAME = "topics/orders/seen"


class Place:
    """The lanes of a partition and what was seen in them."""

    def __init__(self, parts: Parts | None = None, entries_max: int = 250_000) -> None:
        self.parts = parts or Parts()
        self.partition = self.parts.partition()
        self.entries_max = entries_max
        self.dedup = Deduplication(
            self.parts.directory, NAME, self.lanes, self.parts.clock, entries_max=entries_max
        )

    def lanes(self) -> LaneLogs:
        return {(0, lane): log for lane, log in enumerate(self.partition.logs) if log is not None}

    def put(self, dedup_id: str | None, lane: int = 1, *, is_noted: bool = True) -> int:
        """Append a message and note it, as a topic does, unless the process dies in between."""
        self.dedup.prepare()
        offset = self.partition.log(lane).append(b"m", dedup_id=dedup_id)
        if dedup_id is not None and is_noted:
            self.dedup.note_id(dedup_id, DedupEntry(self.parts.now, 0, lane, offset))
        return offset

    def put_frame(self, frame: Frame, lane: int = 1, *, is_noted: bool = True) -> int:
        self.dedup.prepare()
        offset = self.partition.log(lane).append_frame(frame)
        if is_noted:
            self.dedup.note_batch(0, lane, frame.header, offset)
        return offset

    def offset(self, dedup_id: str, oldest_us: int = 0) -> int | None:
        entry = self.dedup.find(dedup_id, oldest_us)
        return None if entry is None else entry.offset

    def found(self, frame: Frame, lane: int = 1) -> int | None:
        return self.dedup.find_batch(0, lane, frame.header)

    def sync(self) -> None:
        for log in self.lanes().values():
            log.sync()

    def killed(self) -> "Place":
        return Place(self.parts.killed(), self.entries_max)

    def without_power(self) -> "Place":
        return Place(self.parts.without_power())


def frame(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> Frame:
    return encode([b"m"] * count, timestamp=START_US, producer=Producer(producer, epoch, sequence))


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.parts.close()


def test_nothing_is_written_before_it_is_needed(place: Place) -> None:
    assert place.offset("a") is None
    assert place.found(frame(0)) is None
    place.dedup.checkpoint()
    place.dedup.forget_scheduled("nobody")
    assert not any("seen" in str(path) for path in place.parts.disk.files())


def test_an_id_is_found_where_it_was_seen(place: Place) -> None:
    place.put("a")
    place.put("b", lane=0)
    assert place.dedup.find("a", 0) == DedupEntry(START_US, 0, 1, 0)
    assert place.dedup.find("b", 0) == DedupEntry(START_US, 0, 0, 0)
    assert place.offset("c") is None


def test_an_id_is_forgotten_after_the_window(place: Place) -> None:
    place.put("a")
    place.parts.wall.advance(10)
    place.put("b")
    assert place.offset("a", START_US) == 0
    assert place.offset("a", START_US + 1) is None
    assert place.offset("b", START_US + 1) == 1


def test_the_last_entry_counts(place: Place) -> None:
    place.put("a")
    place.put("a")
    assert place.offset("a") == 1


def test_when_there_are_too_many_the_oldest_go() -> None:
    place = Place(entries_max=3)
    for number in range(5):
        place.put(f"{number}")
    assert [place.offset(f"{number}") for number in range(5)] == [None, None, 2, 3, 4]
    after = place.killed()
    assert [after.offset(f"{number}") for number in range(5)] == [None, None, 2, 3, 4]


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_killed_process_forgets_no_id(place: Place, is_noted: bool) -> None:
    place.put(None)
    place.put("a", is_noted=is_noted)
    place.put("b", lane=2, is_noted=is_noted)
    after = place.killed()
    assert (after.offset("a"), after.offset("b")) == (1, 0)
    # And the one after that.
    again = after.killed()
    assert (again.offset("a"), again.offset("b")) == (1, 0)


def test_durable_messages_are_recognised_after_a_power_loss(place: Place) -> None:
    place.put("a")
    place.put_frame(frame(0, 3))
    place.sync()
    after = place.without_power()
    assert after.offset("a") == 0
    assert after.found(frame(0, 3)) == 1


def test_what_a_power_loss_took_was_never_seen(place: Place) -> None:
    place.put("safe")
    place.put_frame(frame(0))
    place.sync()
    place.put("lost")
    place.put_frame(frame(1))
    # The notes survive, the messages do not.
    place.dedup._log.sync()  # type: ignore[union-attr]
    after = place.without_power()
    assert (after.offset("safe"), after.offset("lost")) == (0, None)
    assert after.found(frame(0)) == 1
    assert after.found(frame(1)) is None
    assert after.put_frame(frame(1)) == 2
    # Other messages are at those offsets now, for every process to come.
    again = after.killed()
    assert again.offset("lost") is None
    assert again.found(frame(1)) == 2


def test_a_lane_that_is_gone_was_never_seen(place: Place) -> None:
    place.put("a", lane=0)
    place.dedup._log.sync()  # type: ignore[union-attr]
    after = place.without_power()
    assert after.offset("a") is None


def test_a_checkpoint_behind_the_end_of_a_lane_is_moved_back(place: Place) -> None:
    for _ in range(3):
        place.partition.log(1).append(b"lost")
    place.dedup.prepare()
    after = place.without_power()
    assert after.put("a", is_noted=False) == 0
    assert after.killed().offset("a") == 0


def test_a_later_message_of_the_id_counts_also_when_only_the_earlier_was_noted(place: Place) -> None:
    place.put("a")
    place.parts.wall.advance(10)
    place.put("a", is_noted=False)
    assert place.killed().offset("a", START_US + 1) == 1


def test_an_id_is_forgotten_after_the_window_whichever_was_noted_first(place: Place) -> None:
    place.put("young")
    place.dedup.note_id("old", DedupEntry(START_US - 10, 0, 1, 0))
    assert place.offset("old", START_US - 5) is None
    assert place.offset("young", START_US - 5) == 0


def test_a_checkpoint_spares_the_look_at_what_is_known(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deduplication, "_CHECKPOINT_MESSAGES", 3)
    place.put("a")
    place.put("b", is_noted=False)
    place.dedup.checkpoint()
    assert place.killed().offset("b") == 1
    place.put("c")
    place.dedup.checkpoint()
    after = place.killed()
    assert (after.offset("a"), after.offset("c")) == (0, 2)
    # Nobody looked at it, because everything before the checkpoint is noted in a process that lives.
    assert after.offset("b") is None


def test_a_snapshot_holds_everything(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 0)
    place.put("a")
    place.dedup.note_id("later", DedupEntry(START_US, 0, 1, None, "id-of-it"))
    place.put_frame(frame(0, producer=2**64 - 1, epoch=3))
    place.sync()
    after = place.without_power()
    assert after.offset("a") == 0
    assert after.dedup.find("later", 0) == DedupEntry(START_US, 0, 1, None, "id-of-it")
    assert after.found(frame(0, producer=2**64 - 1, epoch=3)) == 1


def test_the_id_of_a_delayed_message_is_free_once_that_is_cancelled(place: Place) -> None:
    place.dedup.prepare()
    place.dedup.note_id("a", DedupEntry(START_US, 0, 1, None, "one"))
    place.dedup.note_id("b", DedupEntry(START_US, 0, 1, None, "two"))
    place.dedup.forget_scheduled("one")
    assert place.dedup.find("a", 0) is None
    assert place.dedup.find("b", 0) is not None
    after = place.killed()
    assert after.dedup.find("a", 0) is None
    assert after.dedup.find("b", 0) == DedupEntry(START_US, 0, 1, None, "two")


def test_what_the_delay_store_knows_is_taken_in_unless_it_is_known_better(place: Place) -> None:
    place.put("a")
    waiting = {
        id_: DedupEntry(time, 0, 1, None, name) for id_, time, name in (("a", 1, "one"), ("b", 2, "two"))
    }
    place.dedup.restore_scheduled(waiting.items())
    assert place.dedup.find("a", 0) == DedupEntry(START_US, 0, 1, 0)
    assert place.dedup.find("b", 0) == DedupEntry(2, 0, 1, None, "two", 1)


def test_a_delayed_message_that_has_arrived_is_found_in_its_lane(place: Place) -> None:
    place.dedup.prepare()
    place.dedup.note_id("a", DedupEntry(START_US, 0, 1, None, "one"))
    place.partition.log(1).append(b"m", dedup_id="a")
    assert place.killed().offset("a") == 0


def test_a_batch_is_recognised_by_producer_epoch_and_sequence(place: Place) -> None:
    place.put_frame(frame(0, 2))
    place.put_frame(frame(2, 3))
    assert place.found(frame(0, 2)) == 0
    assert place.found(frame(2, 3)) == 2
    assert place.found(frame(5)) is None
    assert place.found(frame(0, 2, producer=8)) is None
    assert place.found(frame(0, 2), lane=0) is None


def test_a_producer_begins_wherever_it_likes(place: Place) -> None:
    assert place.found(frame(1000)) is None
    place.put_frame(frame(1000))
    assert place.found(frame(1001)) is None


@pytest.mark.parametrize(("sequence", "count"), [(1, 1), (4, 1), (0, 1), (2, 2)])
def test_a_batch_that_leaves_some_out_is_refused(place: Place, sequence: int, count: int) -> None:
    place.put_frame(frame(0, 3))
    with pytest.raises(Conflict, match="goes on with sequence 3"):
        place.found(frame(sequence, count))


def test_a_batch_that_nobody_remembers_is_refused(place: Place) -> None:
    for sequence in range(70):
        place.put_frame(frame(sequence))
    assert place.found(frame(10)) == 10
    with pytest.raises(Conflict, match="very old repetition"):
        place.found(frame(5))


def test_sequences_begin_again_after_the_largest(place: Place) -> None:
    place.put_frame(frame(2**32 - 2, 3))
    assert place.found(frame(1)) is None
    with pytest.raises(Conflict):
        place.found(frame(2**32 - 1))


def test_a_new_epoch_begins_anew_and_fences_the_old_one(place: Place) -> None:
    place.put_frame(frame(5))
    assert place.found(frame(0, epoch=1)) is None
    place.put_frame(frame(0, epoch=1))
    with pytest.raises(Conflict, match="epoch 1"):
        place.found(frame(6))
    with pytest.raises(Conflict, match="epoch 1"):
        place.killed().found(frame(5))


def test_when_there_are_too_many_producers_the_oldest_go_and_that_is_known(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of them is a producer and a lane; one in ten goes as well, so that there is room again.
    monkeypatch.setattr(producers, "PLACES_MAX", 5)
    for producer in (1, 2, 1, 3):
        sequence = 1 if place.found(frame(0, producer=producer)) is not None else 0
        place.put_frame(frame(sequence, producer=producer))
        place.parts.wall.advance(10)
    for looking in (place, place.killed()):
        assert looking.found(frame(0, producer=1)) == 0
        assert looking.found(frame(0, producer=2)) is None
        assert looking.found(frame(0, producer=3)) == 3
        # The second came after ten seconds.
        assert looking.dedup.begin_producer(2).known_since_us == START_US + 10 * SECOND + 1


def test_a_producer_that_stood_still_is_not_pushed_out_by_many_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PLACES_KEPT", 10)
    begun = place.dedup.begin_producer(77)
    place.put_frame(frame(0, producer=77))
    for producer in range(1000, 1050):
        place.put_frame(frame(0, producer=producer))
    assert place.dedup.begin_producer(77) == (begun.epoch + 1, {(0, 1): 0}, 0)
    # After some days without a sign of them they are, and whoever asks can tell that some are.
    place.parts.wall.advance(7 * 24 * 3600 + 1)
    place.put_frame(frame(0, producer=5))
    assert place.dedup.begin_producer(1000) == (0, {}, START_US + 1)


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_killed_process_forgets_no_batch(place: Place, is_noted: bool) -> None:
    place.put_frame(frame(0, 2), is_noted=is_noted)
    place.put_frame(frame(2), is_noted=is_noted)
    after = place.killed()
    assert after.found(frame(0, 2)) == 0
    assert after.found(frame(2)) == 2
    assert after.found(frame(3)) is None


def test_what_was_moved_between_topics_is_no_batch_of_a_producer(place: Place) -> None:
    place.put_frame(frame(0, producer=9, epoch=0xFFFF), is_noted=False)
    assert place.killed().found(frame(0, producer=9)) is None


def test_a_delayed_message_was_seen_when_it_was_put(place: Place) -> None:
    """Also when nothing but its lane tells of it, where it came long after."""
    place.dedup.prepare()
    released = encode([b"m"], timestamp=START_US - 50, dedup_ids=["a"], producer=Producer(9, 0xFFFF, 0))
    place.partition.log(1).append_frame(released)
    assert place.killed().dedup.find("a", 0) == DedupEntry(START_US - 50, 0, 1, 0)
