"""The delay store: what waits, in which order it comes, and what never comes."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faulty_disk import FaultyDisk
from support.logs import assert_sound
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.threads import PATIENCE_S, start

from quivermq.disk import Disk
from quivermq.errors import Closing, DiskFull, FsyncFailed, StorageFailed
from quivermq.log import DataDirectory, Log, verify
from quivermq.model.lanes import HIGH, LOW, NORMAL, PRIORITIES
from quivermq.model.messages import Record
from quivermq.settings import StorageSettings
from quivermq.topic.delay import Delayed, DelayStore, store, upcoming

OS = StorageSettings(durability="os")
FSYNC = StorageSettings()
NAME = "topics/t/delayed"
NOW = 1_700_000_000_000_000
SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


class Place:
    """A data directory with a delay store and lanes, which can be opened again."""

    def __init__(self, path: Path, disk: Disk | None = None, storage: StorageSettings = OS) -> None:
        self.path, self.disk, self.storage = path, disk, storage
        self.clock = ManualClock()
        self.open()

    def open(self) -> None:
        self.directory = DataDirectory(
            self.path,
            self.storage,
            disk=self.disk,
            clock=self.clock,
            scheduler=ManualScheduler(self.clock),
        )
        self.store = DelayStore(self.directory, NAME, self.storage, self.lane)

    def lane(self, partition: int, lane: int) -> Log:
        return self.directory.log(f"topics/t/p{partition}/{PRIORITIES[lane]}", self.storage)

    def reopen(self) -> None:
        self.close()
        self.open()

    def close(self) -> None:
        self.store.close()
        self.directory.close()

    def buckets(self) -> list[str]:
        names = self.directory.disk.names(self.directory.path / NAME)
        return [name for name in names if name != "journal"]

    def values(self, partition: int = 0, lane: int = NORMAL) -> list[bytes]:
        return [record.value for record in self.records(partition, lane)]

    def records(self, partition: int = 0, lane: int = NORMAL) -> list[Record]:
        return list(self.lane(partition, lane).records())

    def put(self, *dues: int, timestamp: int = NOW) -> list[str]:
        """Put messages, each with its due time as its value."""
        return ids(self.store.put([message(due, timestamp=timestamp) for due in dues], "os"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "data")
    yield place
    place.close()


@pytest.fixture
def faulty(faulty_disk: FaultyDisk) -> Iterator[Place]:
    place = Place(Path("/data"), faulty_disk)
    yield place
    place.close()
    assert_sound(verify(Path("/data"), OS, disk=faulty_disk))


def message(
    due: int,
    value: bytes | None = None,
    *,
    partition: int = 0,
    lane: int = NORMAL,
    key: bytes | None = None,
    timestamp: int = NOW,
    dedup_id: str | None = None,
) -> Delayed:
    value = b"%d" % due if value is None else value
    return Delayed(due, partition, lane, value, key, None, timestamp, None, dedup_id)


def ids(given: list[str | None]) -> list[str]:
    found = [id_ for id_ in given if id_ is not None]
    assert len(found) == len(given) == len(set(found))
    return found


def is_empty(place: Place) -> bool:
    return place.store.pending == 0 and place.store.next_due is None


def numbers(values: list[bytes]) -> list[int]:
    return [int(value) for value in values]


def dues(place: Place, limit: int | None = None) -> list[int]:
    return [waiting.deliver_at for waiting in place.store.scheduled(limit)]


# What is there before anything was put.


def test_nothing_is_on_disk_before_the_first_put(place: Place) -> None:
    assert is_empty(place)
    assert place.store.release(NOW) == []
    assert place.store.scheduled() == []
    assert not place.store.cancel("1-1-0")
    assert list(place.store.dedup_ids()) == []
    assert place.store.put([], "fsync") == []
    place.reopen()
    assert not (place.path / NAME).exists()


# Order.


def test_messages_come_in_the_order_in_which_they_are_due(place: Place) -> None:
    dues_ = [NOW + n * SECOND for n in (5, 1, 4, 2, 3)]
    place.put(*dues_)
    assert place.store.next_due == NOW + SECOND
    [released] = place.store.release(NOW + 5 * SECOND)
    assert released == (0, NORMAL, range(5))
    assert numbers(place.values()) == sorted(dues_)
    assert is_empty(place)


def test_messages_that_are_due_together_come_as_they_were_put(place: Place) -> None:
    due = NOW + 3 * DAY
    for number in range(5):
        # Each comes when less time is left: into a bucket of a day at first, then into one of an hour.
        now = NOW + number * 12 * HOUR
        place.store.release(now)
        place.store.put([message(due, b"%d" % number, timestamp=now)], "os")
        place.reopen()
    # And one whose timestamp says that much time is left: it must not get before the others.
    place.store.put([message(due, b"5", timestamp=0)], "os")
    assert len(place.buckets()) == 2
    place.store.release(due)
    assert numbers(place.values()) == [0, 1, 2, 3, 4, 5]


def test_a_message_is_due_at_its_due_time_and_not_before(place: Place) -> None:
    place.put(NOW + 10)
    assert place.store.release(NOW + 9) == []
    assert place.store.pending == 1
    assert len(place.store.release(NOW + 10)) == 1
    assert place.store.release(NOW + 11) == []
    assert place.values() == [b"%d" % (NOW + 10)]


def test_a_message_that_is_due_already_is_not_taken(place: Place) -> None:
    place.store.release(NOW)
    messages = [message(NOW), message(NOW + 1), message(-5), message(0)]
    first, second, third, fourth = place.store.put(messages, "os")
    assert (first, third, fourth) == (None, None, None)
    assert second is not None
    assert place.store.pending == 1


def test_each_message_goes_to_its_lane_as_it_came(place: Place) -> None:
    full = Delayed(NOW + 1, 3, HIGH, b"v", b"k", {"a": b"1", "b": b""}, NOW - 7, NOW + 99, "d")
    bare = Delayed(NOW + 2, 0, LOW, b"", None, None, NOW, None, None)
    empty_key = Delayed(NOW + 3, 3, HIGH, b"w", b"", {}, NOW, None, None)
    identifiers = ids(place.store.put([full, bare, empty_key], "os"))
    assert [waiting[1:] for waiting in place.store.scheduled()] == [
        (NOW + 1, 3, "high", b"k", b"v", {"a": b"1", "b": b""}, NOW - 7, NOW + 99, "d"),
        (NOW + 2, 0, "low", None, b"", {}, NOW, None, None),
        (NOW + 3, 3, "high", b"", b"w", {}, NOW, None, None),
    ]
    assert [waiting.id for waiting in place.store.scheduled()] == identifiers
    assert place.store.release(NOW + 3) == [(3, HIGH, range(2)), (0, LOW, range(1))]
    assert [record[1:] for record in place.records(3, HIGH)] == [
        (NOW - 7, b"k", b"v", {"a": b"1", "b": b""}, NOW + 99, "d", identifiers[0]),
        (NOW, b"", b"w", {}, None, None, identifiers[2]),
    ]
    assert place.records(0, LOW) == [Record(0, NOW, None, b"", {}, None, None, identifiers[1])]


def test_a_release_is_divided_into_small_frames(place: Place) -> None:
    place.put(*range(NOW + 1, NOW + 2501))
    large = bytes(400_000)
    place.store.put([message(NOW + 3000, large) for _ in range(5)], "os")
    sizes = [len(offsets) for _, _, offsets in place.store.release(NOW + DAY)]
    assert sizes == [1000, 1000, 502, 2, 1]
    assert numbers(place.values()[:2500]) == list(range(NOW + 1, NOW + 2501))
    # Two in the frame of the last small ones, which has room for them.
    assert place.values()[2500:] == [large] * 5


def test_a_message_as_large_as_any_may_be_waits_as_well(place: Place) -> None:
    value = bytes(OS.message_bytes_max)
    place.store.put([message(NOW + 1, value, dedup_id=None) for _ in range(20)], "os")
    place.reopen()
    place.store.release(NOW + 1)
    assert [len(v) for v in place.values()] == [len(value)] * 20


def test_messages_are_read_in_parts_when_they_are_large(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_FETCH_BYTES", 10_000)
    shuffled = random.Random(1).sample(range(200), 200)
    for first in range(0, 200, 10):
        part = shuffled[first : first + 10]
        place.store.put([message(NOW + 1 + n, b"%d" % n + b" " * 900) for n in part], "os")
    place.store.release(NOW + DAY)
    assert numbers(place.values()) == list(range(200))


# Opening again.


def test_what_fell_due_meanwhile_comes_after_opening_in_order(place: Place) -> None:
    dues_ = [NOW + n * HOUR for n in (50, 1, 3000, 2, 30)]
    place.put(*dues_)
    place.store.release(NOW + HOUR)
    place.reopen()
    assert place.store.pending == 4
    due = place.store.next_due
    assert due is not None
    assert due <= NOW + 2 * HOUR
    place.store.release(NOW + 50 * HOUR)
    assert numbers(place.values()) == sorted(dues_)[:4]
    assert place.store.pending == 1
    place.reopen()
    assert dues(place) == [NOW + 3000 * HOUR]
    place.store.release(NOW + 4000 * HOUR)
    assert numbers(place.values()) == sorted(dues_)
    assert place.store.release(NOW + 5000 * HOUR) == []


def test_next_due_never_comes_too_late(place: Place) -> None:
    """Whoever waits until `next_due`, each time, releases everything at its due time."""
    dues_ = sorted(NOW + n for n in (HOUR, 30 * HOUR, 31 * HOUR, 40 * DAY, 41 * DAY, 900 * DAY, 9000 * DAY))
    place.put(*dues_)
    place.reopen()
    looks = 0
    for due in dues_:
        while (now := place.store.next_due) is not None and not place.store.release(now):
            assert now <= due
            looks += 1
        assert now == due
    assert place.store.next_due is None
    assert looks < 30


def test_a_released_message_does_not_come_again(place: Place) -> None:
    place.put(NOW + 1, NOW + 2, NOW + 3)
    place.store.release(NOW + 2)
    for _ in range(3):
        place.reopen()
        assert place.store.pending == 1
        assert place.store.release(NOW + 2) == []
    place.store.release(NOW + 3)
    place.reopen()
    assert place.store.pending == 0
    assert numbers(place.values()) == [NOW + 1, NOW + 2, NOW + 3]


def test_a_clock_that_was_set_back_makes_nothing_early(place: Place) -> None:
    place.put(NOW + 10 * SECOND, NOW + 2 * HOUR)
    place.store.release(NOW + 10 * SECOND)
    place.reopen()
    earlier = NOW - HOUR
    place.put(earlier + SECOND, NOW + 5 * SECOND, NOW + 11 * SECOND, timestamp=earlier)
    assert place.store.release(earlier) == []
    for _ in range(2):
        place.reopen()
        assert dues(place) == [earlier + SECOND, NOW + 5 * SECOND, NOW + 11 * SECOND, NOW + 2 * HOUR]
    assert len(place.store.release(earlier + SECOND)) == 1
    place.reopen()
    assert place.store.pending == 3
    # Once more, behind what the new epoch has released.
    place.put(earlier - 5, timestamp=earlier)
    place.store.release(NOW + 3 * HOUR)
    assert numbers(place.values()) == [
        NOW + 10 * SECOND,
        earlier + SECOND,
        earlier - 5,
        NOW + 5 * SECOND,
        NOW + 11 * SECOND,
        NOW + 2 * HOUR,
    ]
    place.reopen()
    assert place.store.pending == 0


def test_what_is_no_bucket_is_left_alone(place: Place) -> None:
    place.put(NOW + 1)
    names = ("0-1-5", "0-1-05-1", "0-1-5-1-1", "x", "-1-1-5-1", "٣-1-5-1")
    for name in names:
        (place.path / NAME / name).mkdir()
    place.reopen()
    assert place.store.pending == 1
    assert set(names) < set(place.buckets())


# Cancelling.


def test_a_cancelled_message_never_comes(place: Place) -> None:
    first, second, third = place.put(NOW + 1, NOW + 2, NOW + 3)
    assert place.store.cancel(first)
    assert place.store.next_due == NOW + 2
    assert not place.store.cancel(first)
    assert place.store.pending == 2
    place.reopen()
    assert not place.store.cancel(first)
    assert place.store.cancel(third)
    assert dues(place) == [NOW + 2]
    assert dues(place, 5) == [NOW + 2]
    place.store.release(NOW + 3)
    assert not place.store.cancel(second)
    assert numbers(place.values()) == [NOW + 2]
    place.reopen()
    assert not place.store.cancel(second)
    assert is_empty(place)


def test_all_can_be_cancelled(place: Place) -> None:
    for id_ in place.put(*range(NOW + 1, NOW + 100)):
        assert place.store.cancel(id_)
    assert is_empty(place)
    place.reopen()
    assert is_empty(place)
    assert place.store.release(NOW + DAY) == []
    assert place.buckets() == []


@pytest.mark.parametrize(
    "bad",
    ["", "x", "../../t", "1-1", "1-1-0-0", "-1-1-0", "1-1-0 ", " 1-1-0", "1-1-0\n", "0x1-1-0", "٣-1-0",
     "f" * 17 + "-1-0", "ffffffffffffffff-ffffffff-ffffffffffffffff", "1-ffffffffff-1", "1" * 100_000,
     None, 5, b"1-1-0"],
)  # fmt: skip
def test_an_id_that_nobody_was_given_is_unknown(place: Place, bad: str) -> None:
    place.put(NOW + 1)
    assert place.store.cancel(bad) is False
    assert place.store.pending == 1


def test_an_id_that_is_almost_right_is_unknown(place: Place) -> None:
    [id_] = place.put(NOW + 0xABC)
    due, serial, offset = (int(part, 16) for part in id_.split("-"))
    others = [(due + 1, serial, offset), (due, serial + 1, offset), (due, serial, offset + 1)]
    others += [(due + DAY, serial, offset), (0, serial, offset), (due, 0, offset)]
    for other in others:
        assert not place.store.cancel("{:x}-{:x}-{:x}".format(*other))
    for other_id in (id_.upper(), f"0{id_}", id_.replace("-", "-0", 1)):
        assert not place.store.cancel(other_id)
    assert place.store.cancel(id_)


def test_an_id_is_never_used_again(place: Place) -> None:
    seen = set()
    for _ in range(5):
        [id_] = place.put(NOW + SECOND)
        assert place.store.cancel(id_)
        seen.add(id_)
        # All of the bucket is done with: it goes, and the clock is set back.
        place.store.release(NOW + DAY)
        assert place.buckets() == []
        place.reopen()
    assert len(seen) == 5


def test_many_cancellations_keep_the_journal_short(place: Place) -> None:
    identifiers = place.put(*range(NOW + 1, NOW + 60_001))
    for id_ in identifiers[::2]:
        place.store.cancel(id_)
    assert place.store.pending == 30_000
    assert len(place.store._journal._opened().replay()) < 20_000
    place.reopen()
    assert place.store.pending == 30_000
    place.store.release(NOW + DAY)
    assert numbers(place.values()) == list(range(NOW + 2, NOW + 60_001, 2))


# Listing.


def test_listing_is_in_order_and_takes_a_limit(place: Place) -> None:
    dues_ = [NOW + n * HOUR for n in (500, 1, 3000, 2, 30)]
    place.put(*dues_)
    for _ in range(2):
        assert dues(place) == sorted(dues_)
        for limit in range(7):
            assert dues(place, limit) == sorted(dues_)[:limit]
        place.reopen()


def test_deduplication_ids_of_what_waits(place: Place) -> None:
    place.put(NOW + 5)
    messages = [message(NOW + n, timestamp=NOW - n, dedup_id=f"d{n}") for n in (1, 2, 3)]
    messages.append(message(NOW + 4 * DAY, dedup_id="far"))
    identifiers = ids(place.store.put([*messages, message(NOW + 6)], "os"))
    place.store.cancel(identifiers[1])
    place.store.release(NOW + 1)
    for _ in range(2):
        assert sorted(place.store.dedup_ids()) == [
            ("d3", NOW, 0, 1, identifiers[2]),
            ("far", NOW, 0, 1, identifiers[3]),
        ]
        place.reopen()


# Buckets.


def test_the_far_future_has_few_buckets(place: Place) -> None:
    year_9999 = 253_402_300_799_999_999
    rng = random.Random(5)
    dues_ = [NOW + rng.randrange(1, 365 * DAY) for _ in range(3000)]
    dues_ += [rng.randrange(NOW, year_9999) for _ in range(300)]
    dues_ += [year_9999, 2**63 - 1]
    place.put(*dues_)
    assert len(place.buckets()) < 330
    place.reopen()
    assert place.store.pending == len(dues_)
    assert dues(place, 10) == sorted(dues_)[:10]
    assert dues(place)[-2:] == sorted(dues_)[-2:]
    place.store.release(2**63 - 1)
    assert numbers(place.values()) == sorted(dues_)
    assert place.store.pending == 0


def test_few_files_are_open_at_a_time(place: Place) -> None:
    for day in range(200):
        place.put(NOW + day * DAY + HOUR, timestamp=NOW + day * DAY)
    assert len(place.buckets()) == 200
    for _ in range(2):
        logs = [name for name in place.directory._logs if name.startswith(NAME)]
        assert len(logs) <= 129
        assert len(dues(place)) == place.store.pending == 200
        place.reopen()
    for day in range(200):
        place.store.release(NOW + day * DAY + HOUR)
        assert place.store.pending == 199 - day
    assert len(place.values()) == 200


def test_an_empty_bucket_goes_once_nothing_can_come_into_it(place: Place) -> None:
    place.put(NOW + 1, NOW + 2, NOW + 3 * HOUR)
    place.store.release(NOW + 1)
    assert len(place.buckets()) == 2
    place.store.release(NOW + 2)
    place.put(NOW + 3)
    assert len(place.buckets()) == 2
    place.store.release(NOW + HOUR)
    assert len(place.buckets()) == 1
    place.store.release(NOW + 5 * HOUR)
    assert place.buckets() == []
    place.reopen()
    assert numbers(place.values()) == [NOW + 1, NOW + 2, NOW + 3, NOW + 3 * HOUR]


def test_an_empty_bucket_that_is_large_goes_at_once(place: Place) -> None:
    place.store.put([message(NOW + 1, bytes(700_000)), message(NOW + 2, bytes(700_000))], "os")
    place.store.release(NOW + 1)
    assert len(place.buckets()) == 1
    place.store.release(NOW + 2)
    assert place.buckets() == []


def test_more_than_memory_is_meant_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcoming, "RANKS_MAX", 50)
    monkeypatch.setattr(store, "_FETCH_MESSAGES", 30)
    rng = random.Random(7)
    dues_ = [NOW + rng.randrange(1, 5 * HOUR) for _ in range(1000)]
    for first in range(0, 1000, 20):
        place.put(*dues_[first : first + 20])
        assert len(place.store._waiting.upcoming.heap) <= 100
    assert dues(place, 100) == sorted(dues_)[:100]
    place.reopen()
    for now in (NOW + HOUR, NOW + 2 * HOUR, NOW + 6 * HOUR):
        place.store.release(now)
        assert len(place.store._waiting.upcoming.heap) <= 100
        assert numbers(place.values()) == sorted(due for due in dues_ if due <= now)
    assert place.store.pending == 0


# What goes wrong.


def test_a_full_disk_refuses_all_messages_of_a_put(faulty: Place, faulty_disk: FaultyDisk) -> None:
    faulty.put(NOW + 1, NOW + 1 + 5 * HOUR)
    faulty_disk.fill_after(500)
    messages = [message(NOW + 2, bytes(200)), message(NOW + 2 + 5 * HOUR, bytes(200))]
    with pytest.raises(DiskFull):
        faulty.store.put(messages, "os")
    assert faulty.store.pending == 2
    faulty_disk.fill_after(None)
    faulty.put(NOW + 3 + 5 * HOUR)
    for _ in range(2):
        assert dues(faulty) == [NOW + 1, NOW + 1 + 5 * HOUR, NOW + 3 + 5 * HOUR]
        faulty.reopen()


def test_a_bucket_that_found_no_room_is_made_later(faulty: Place, faulty_disk: FaultyDisk) -> None:
    for _ in range(3):
        faulty_disk.fill_after(10)
        with pytest.raises(DiskFull):
            faulty.put(NOW + 1)
    faulty_disk.fill_after(None)
    faulty.put(NOW + 1)
    faulty.put(NOW + 2)
    faulty.reopen()
    faulty.put(NOW + 2, NOW + 3 * DAY)
    assert dues(faulty) == [NOW + 1, NOW + 2, NOW + 2, NOW + 3 * DAY]
    faulty.store.release(NOW + 4 * DAY)
    faulty.reopen()
    assert faulty.buckets() == []
    assert len(faulty.values()) == 4


def release_until_full(place: Place) -> list[tuple[int, int, range]]:
    released: list[tuple[int, int, range]] = []
    while True:
        try:
            more = place.store.release(NOW + DAY)
        except DiskFull:
            return released
        assert more
        released += more


@pytest.mark.parametrize("room_bytes", range(0, 900, 100))
def test_a_release_onto_a_full_disk_goes_on_later(
    faulty: Place, faulty_disk: FaultyDisk, room_bytes: int
) -> None:
    lanes = [(0, 0), (0, 1), (1, 2)]
    messages = [message(NOW + n, partition=p, lane=lane) for n, (p, lane) in enumerate(lanes * 5, 1)]
    faulty.store.put(messages, "os")
    for lane in lanes:
        faulty.lane(*lane)
    faulty_disk.fill_after(room_bytes)
    released = release_until_full(faulty)
    assert faulty.store.next_due is not None
    assert faulty.store.next_due <= NOW + DAY
    faulty_disk.fill_after(None)
    released += faulty.store.release(NOW + DAY)
    assert sorted(released) == [(p, lane, range(5)) for p, lane in sorted(lanes)]
    assert sum(len(faulty.values(*lane)) for lane in lanes) == 15
    assert is_empty(faulty)


def test_a_failed_sync_of_a_lane_is_told_until_it_is_opened_again(
    faulty_disk: FaultyDisk,
) -> None:
    place = Place(Path("/data"), faulty_disk, FSYNC)
    place.store.put([message(NOW + 1), message(NOW + 2)], "fsync")
    place.lane(0, NORMAL)
    faulty_disk.fail_sync("*/p0/normal/*")
    assert place.store.release(NOW + 1) == [(0, NORMAL, range(1))]
    for _ in range(2):
        with pytest.raises(FsyncFailed):
            place.store.release(NOW + 2)
    place = Place(Path("/data"), faulty_disk.after_power_loss(keep="nothing"), FSYNC)
    assert numbers(place.values()) == [NOW + 1]
    place.store.release(NOW + 2)
    assert numbers(place.values()) == [NOW + 1, NOW + 2]


@pytest.mark.damages
def test_damage_stops_the_release_until_it_is_repaired(faulty: Place, faulty_disk: FaultyDisk) -> None:
    place = faulty
    for n in range(1, 4):
        place.put(NOW + n, NOW + n + DAY)
    place.reopen()
    [name, _] = place.buckets()
    path = Path("/data") / NAME / name / f"{0:020d}.log"
    faulty_disk.flip(path, 100)
    before = faulty_disk.files()[path]
    for _ in range(2):
        with pytest.raises(StorageFailed):
            place.store.release(NOW + 1)
    assert place.store.pending == 6
    faulty_disk.flip(path, 100)
    assert faulty_disk.files()[path] != before
    place.reopen()
    place.store.release(NOW + 3)
    assert len(place.values()) == 3


def test_a_closed_store_says_so(place: Place) -> None:
    [id_] = place.put(NOW + 1)
    place.store.close()
    place.store.close()
    attempts: list[Callable[[], object]] = [
        lambda: place.put(NOW + 2),
        lambda: place.store.release(NOW),
        place.store.scheduled,
        lambda: place.store.cancel(id_),
        lambda: list(place.store.dedup_ids()),
        place.store.sync,
    ]
    for attempt in attempts:
        with pytest.raises(Closing):
            attempt()


def test_settings_change_while_it_is_open(place: Place) -> None:
    place.put(NOW + 1)
    place.store.configure(replace(OS, segment_messages=1, retention_messages=1, batch_messages=2))
    for n in range(2, 7):
        place.put(NOW + n)
    assert place.store.pending == 6
    released = place.store.release(NOW + 6)
    assert [len(offsets) for _, _, offsets in released] == [2, 2, 2]


# Durability.


@contextmanager
def lost(place: Place, disk: FaultyDisk) -> Iterator[Place]:
    """The store as it is after a power loss now."""
    after = Place(Path("/data"), disk.after_power_loss(keep="nothing"), place.storage)
    yield after
    after.close()


@pytest.mark.parametrize("how", ["fsync", "sync"])
def test_what_was_synced_survives_a_power_loss(faulty: Place, faulty_disk: FaultyDisk, how: str) -> None:
    messages = [message(NOW + 1), message(NOW + DAY)]
    faulty.store.put(messages, "fsync" if how == "fsync" else "os")
    if how == "sync":
        faulty.store.sync()
    faulty.put(NOW + 2)
    with lost(faulty, faulty_disk) as after:
        assert dues(after) == [NOW + 1, NOW + DAY]


def test_cancelled_offsets_that_a_power_loss_took_are_not_cancelled_again(
    faulty: Place, faulty_disk: FaultyDisk
) -> None:
    faulty.store.put([message(NOW + 1)], "fsync")
    identifiers = faulty.put(NOW + 2, NOW + 3)
    for id_ in identifiers:
        faulty.store.cancel(id_)
    # The journal is synced, the bucket is not.
    faulty.store._journal._opened().sync()
    with lost(faulty, faulty_disk) as after:
        after.store.put([message(NOW + 4), message(NOW + 5)], "fsync")
        for _ in range(2):
            assert dues(after) == [NOW + 1, NOW + 4, NOW + 5]
            assert after.store.pending == 3
            assert not after.store.cancel(identifiers[0])
            after.reopen()


def test_released_messages_that_a_lane_lost_come_again(faulty: Place, faulty_disk: FaultyDisk) -> None:
    """With durability `os`, too, what was put durably stays safe until its lane is synced."""
    faulty.store.put([message(NOW + n) for n in range(1, 6)], "fsync")
    for n in range(1, 6):
        faulty.store.release(NOW + n)
        if n == 2:
            faulty.lane(0, NORMAL).sync()
    faulty.store._journal._opened().sync()
    with lost(faulty, faulty_disk) as after:
        assert after.store.pending == 0
        assert numbers(after.values()) == [NOW + n for n in range(1, 6)]


def test_messages_that_retention_took_from_a_lane_do_not_come_again(place: Place) -> None:
    place.put(NOW + 1)
    place.store.release(NOW + 1)
    place.lane(0, NORMAL).retain(finished=1)
    assert place.values() == []
    place.reopen()
    assert place.lane(0, NORMAL).end == 1


# Everything at once.


@given(data=st.data())
@settings(max_examples=60)
def test_against_a_sorted_list(data: st.DataObject) -> None:
    disk = FaultyDisk()
    place = Place(Path("/data"), disk)
    now, number = NOW, 0
    waiting: dict[str, tuple[int, int]] = {}
    came: list[int] = []
    delays = st.one_of(st.integers(1, 5), st.integers(1, 3 * HOUR), st.integers(1, 100 * DAY))
    steps = st.sampled_from(["put", "put", "put", "release", "cancel", "reopen", "list", "set back"])
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(steps)
        if step == "put":
            dues_ = [now + delay for delay in data.draw(st.lists(delays, min_size=1, max_size=5))]
            messages = [message(due, b"%d" % n, timestamp=now) for n, due in enumerate(dues_, number)]
            for id_, due in zip(ids(place.store.put(messages, "os")), dues_, strict=True):
                waiting[id_] = (due, number)
                number += 1
        elif step == "release":
            now += data.draw(delays)
            place.store.release(now)
            due_now = sorted((waits, id_) for id_, waits in waiting.items() if waits[0] <= now)
            came += [waits[1] for waits, _ in due_now]
            for _, id_ in due_now:
                del waiting[id_]
                assert not place.store.cancel(id_)
        elif step == "cancel" and waiting:
            id_ = data.draw(st.sampled_from(sorted(waiting)))
            del waiting[id_]
            assert place.store.cancel(id_)
        elif step == "reopen":
            place.reopen()
        elif step == "set back":
            place.reopen()
            now -= data.draw(st.integers(1, 3 * HOUR))
        expected = [waits for waits, _ in sorted((waits, id_) for id_, waits in waiting.items())]
        limit = data.draw(st.one_of(st.none(), st.integers(0, 10)))
        listed = [(found.deliver_at, int(found.value)) for found in place.store.scheduled(limit)]
        assert listed == expected[:limit]
        assert place.store.pending == len(expected)
        soonest = place.store.next_due
        assert (soonest is None) == (not expected)
        assert soonest is None or soonest <= expected[0][0]
        assert numbers(place.values()) == came
    place.close()
    assert_sound(verify(Path("/data"), OS, disk=disk))


def test_many_threads_at_once(place: Place) -> None:
    per_thread, cancelled = 300, []

    def produce(thread: int) -> None:
        for n in range(per_thread):
            due = NOW + 1 + n * 7 + thread
            [id_] = place.store.put([message(due, b"%d" % (thread * per_thread + n))], "os")
            if id_ is not None and n % 10 == 0 and place.store.cancel(id_):
                cancelled.append(thread * per_thread + n)
            elif id_ is None:
                place.lane(0, NORMAL).append(b"%d" % (thread * per_thread + n))

    def consume() -> None:
        for n in range(0, per_thread * 7, 21):
            place.store.release(NOW + n)
            place.store.scheduled(5)

    running = [start(partial(produce, thread)) for thread in range(4)] + [start(consume), start(consume)]
    for thread in running:
        thread.result(PATIENCE_S)
    place.store.release(NOW + DAY)
    assert place.store.pending == 0
    assert sorted(numbers(place.values()) + cancelled) == list(range(4 * per_thread))
