"""Batches: when they are due, how large they become, and in which order they go."""

from support.manual_clock import ManualClock

from quivermq.client.producing.batch import ProducerBatch
from quivermq.client.producing.gathering import BatchLimits, Gathering
from quivermq.client.producing.identity import Identity
from quivermq.frame import Codec, EntryFields, Frame, Producer


def gathering(clock: ManualClock, linger_s: float = 1.0) -> Gathering:
    return Gathering(BatchLimits(linger_s, messages=3, bytes=1000), clock)


def grow(batch: ProducerBatch, count: int, size: int = 1) -> None:
    batch.values += [bytes(size)] * count
    batch.bytes += count * size


def test_a_batch_is_due_by_age() -> None:
    clock = ManualClock()
    found = gathering(clock)
    assert (found.take_due(), found.wait_s()) == (None, None)
    batch = found.open_batch((0, "normal"))
    assert found.take_due() is None
    clock.advance(0.75)
    assert found.wait_s() == 0.25
    clock.advance(0.25)
    assert found.wait_s() == 0
    assert found.take_due() is batch
    assert found.take_due() is None


def test_a_batch_is_due_by_size_and_grows_until_it_is_taken() -> None:
    found = gathering(ManualClock())
    batch = found.open_plain(1)
    grow(batch, 3)
    assert found.grown(batch) is True
    assert found.grown(batch) is False
    assert found.plain is batch
    assert found.take_due() is batch
    assert found.plain is None
    assert found.open_batch((0, "normal")) is not batch


def test_a_full_batch_takes_no_more_and_goes_first() -> None:
    found = gathering(ManualClock())
    first = found.open_plain(1)
    grow(first, 2, size=500)
    found.grown(first)
    assert found.plain is None
    second = found.open_plain(1)
    assert second is not first
    second.is_due = True
    assert [found.take_due(), found.take_due()] == [first, second]


def test_plain_batches_take_partitions_in_turn() -> None:
    found = gathering(ManualClock())
    lanes = []
    for _ in range(4):
        lanes.append(found.open_plain(3).lane)
        found.hurry()
        found.take_due()
    assert lanes == [(0, "normal"), (1, "normal"), (2, "normal"), (0, "normal")]


def test_the_oldest_lane_goes_first_and_all_can_be_hurried() -> None:
    clock = ManualClock()
    found = gathering(clock)
    batches = []
    for partition in (2, 0, 1):
        batches.append(found.open_batch((partition, "high")))
        clock.advance(0.1)
    assert found.take_due() is None
    assert found.hurry() == batches
    assert [found.take_due() for _ in range(4)] == [*batches, None]


def test_a_batch_is_encoded_the_same_each_time() -> None:
    batch = ProducerBatch((0, "normal"), 0.0, 7_000_000)
    batch.values += [b"a", b"b", b"c"]
    batch.rests[1] = EntryFields(b"k", {"h": b"1"})
    producer = Producer(5, 1, 10)
    encoded = batch.encoded(producer, Codec.NONE, 1000)
    assert encoded == batch.encoded(producer, Codec.NONE, 1000)
    records = Frame.parse(encoded).records()
    assert [(r.value, r.key, r.headers) for r in records] == [
        (b"a", None, {}), (b"b", b"k", {"h": b"1"}), (b"c", None, {})
    ]  # fmt: skip
    assert {(r.timestamp, r.expires_at) for r in records} == {(7_000_000, 8_000_000)}


def test_a_producer_counts_by_lane_and_begins_anew_after_a_failure() -> None:
    identity = Identity()
    first = identity.next_of((0, "normal"))
    assert (first.producer_id > 0, first.epoch, first.base_sequence) == (True, 0, 0)
    identity.advance((0, "normal"), 2**32 - 1)
    identity.advance((0, "normal"), 3)
    assert identity.next_of((0, "normal")).base_sequence == 2
    assert identity.next_of((0, "high")).base_sequence == 0
    identity.renew()
    assert identity.next_of((0, "normal")) == Producer(first.producer_id, 1, 0)
    identity.epoch = 2**16 - 2
    identity.renew()
    assert identity.producer_id != first.producer_id
    assert identity.epoch == 0
