import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from crc32c import crc32c
from support.damage import cut, flip, overwrite
from support.segments import NOON_US, ends, frame_at, frames_from, joined, new_segment, put

from quivermq.disk import SystemDisk
from quivermq.errors import Corruption
from quivermq.frame import HEADER_BYTES, Codec, Flag, Frame, encode, encode_control
from quivermq.segment import Damage, Found, Segment, SegmentWriter, index_path, load_index, log_path
from quivermq.segment.index import TIMESTAMP_NONE, SparseIndex
from quivermq.segment.scan import FrameScan
from quivermq.settings import StorageSettings

DISK = SystemDisk()
EVERY: dict[str, Any] = {"index_interval_bytes": 1}
BATCHES = [[b"a"], [b"bb", b"cc"], [b"dddd"], [b"e", b"f", b"g"], [b"h" * 50]]
FRAMES = frames_from(0, *BATCHES)
STARTS = [0, *ends(FRAMES)]
OFFSETS = [0, 1, 3, 4, 7, 8]
DATA = joined(FRAMES)


def sealed(directory: Path, *batches: Sequence[bytes], **settings: Any) -> Segment:
    """A segment that was closed in order, as the next opening finds it."""
    writer = new_segment(directory, **EVERY | settings)
    put(writer, *(batches or BATCHES))
    writer.close()
    return found(directory, writer.segment.end_offset, **settings)


def found(directory: Path, end_offset: int = 8, **settings: Any) -> Segment:
    size = log_path(directory, 0).stat().st_size
    wanted = StorageSettings(**EVERY | settings)
    return Segment(DISK, directory, 0, wanted, end_offset=end_offset, end=size)


def written(segment: Segment, frames: Sequence[Frame]) -> None:
    """Put frames where the segment's are, however they are stamped."""
    segment.path.write_bytes(joined(frames))
    segment.end = segment.path.stat().st_size
    segment.end_offset = frames[-1].header.end_offset


# Reading


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("start", range(9))
def test_frames_begin_with_the_one_that_holds_the_offset(tmp_path: Path, start: int, mapped: bool) -> None:
    segment = sealed(tmp_path)
    first = max(n for n, offset in enumerate(OFFSETS) if offset <= start)
    read = list(segment.frames(start, mapped=mapped))
    assert [position for position, _ in read] == STARTS[first:-1]
    assert [frame.values() for _, frame in read] == BATCHES[first:]


@pytest.mark.parametrize("interval_bytes", [1, 10**6])
def test_whoever_reads_little_by_little_is_not_led_over_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval_bytes: int
) -> None:
    segment = sealed(tmp_path, index_interval_bytes=interval_bytes)
    begun = []
    scan_frames = FrameScan.frames

    def frames(self: FrameScan, position: int, offset: int, skip_to_offset: int = 0) -> Any:
        begun.append((position, offset))
        return scan_frames(self, position, offset, skip_to_offset)

    monkeypatch.setattr(FrameScan, "frames", frames)
    for number, offset in enumerate(OFFSETS[:-1]):
        assert next(segment.frames(offset))[0] == STARTS[number]
    assert begun[-len(FRAMES) :] == list(zip(STARTS, OFFSETS, strict=True))[:-1]
    # And backwards, where nobody has stopped before.
    assert [next(segment.frames(offset))[0] for offset in reversed(OFFSETS[:-1])] == STARTS[-2::-1]


@pytest.mark.parametrize("wrong", [(8, 3), (STARTS[1], 3), (STARTS[2], 2), (STARTS[-1] + 8, 3)])
def test_a_reader_who_stopped_at_a_wrong_place_misleads_nobody(
    tmp_path: Path, wrong: tuple[int, int]
) -> None:
    segment = sealed(tmp_path, index_interval_bytes=10**6)
    segment._read_to = wrong
    assert [position for position, _ in segment.frames(3)] == STARTS[2:-1]


def test_an_empty_segment_has_no_frames(tmp_path: Path) -> None:
    new_segment(tmp_path).close()
    segment = found(tmp_path, 0)
    assert (list(segment.frames(0)), list(segment.frames(0, mapped=True))) == ([], [])
    assert (segment.messages, segment.find_time(0)) == (0, None)
    assert (segment.first_append_time(), segment.last_append_time()) == (None, None)


def test_a_segment_knows_when_its_first_and_last_frames_came_in(tmp_path: Path) -> None:
    writer = new_segment(tmp_path)
    for second in range(3):
        writer.append([encode([b"x", b"y"], timestamp=0)], second)
    writer.close()
    segment = found(tmp_path, 6)
    assert (segment.first_append_time(), segment.last_append_time()) == (0, 2)


@pytest.mark.damages
def test_nobody_knows_when_a_rotten_frame_came_in(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    flip(segment.path, 20)
    flip(segment.path, STARTS[-2] + 20)
    assert (segment.first_append_time(), segment.last_append_time()) == (None, None)


def test_a_reader_of_an_active_segment_stops_where_it_ended(tmp_path: Path) -> None:
    writer = new_segment(tmp_path, **EVERY)
    put(writer, [b"a"])
    reading = writer.segment.frames(0)
    next(reading)
    put(writer, [b"b"])
    assert list(reading) == []
    assert [frame.values() for _, frame in writer.segment.frames(0)] == [[b"a"], [b"b"]]
    writer.close()


# Damage


@pytest.mark.damages
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("where", [0, 20, HEADER_BYTES])
@pytest.mark.parametrize("number", range(5))
def test_damage_is_told_once_everything_before_it_was_served(
    tmp_path: Path, number: int, where: int, mapped: bool
) -> None:
    segment = sealed(tmp_path)
    flip(segment.path, STARTS[number] + where)
    reading = segment.frames(0, mapped=mapped)
    assert [next(reading)[1].values() for _ in range(number)] == BATCHES[:number]
    with pytest.raises(Corruption) as told:
        next(reading)
    assert (told.value.path, told.value.position) == (segment.path, STARTS[number])
    assert told.value.offsets == (OFFSETS[number], OFFSETS[number + 1])


@pytest.mark.damages
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("size", [0, 50, STARTS[2], STARTS[2] + 90, STARTS[4]])
def test_a_file_that_ends_before_its_segment_is_damage(tmp_path: Path, size: int, mapped: bool) -> None:
    whole = max(n for n, start in enumerate(STARTS) if start <= size)
    sealed(tmp_path)
    cut(log_path(tmp_path, 0), size)
    segment = found(tmp_path)
    reading = segment.frames(0, mapped=mapped)
    assert [next(reading)[1].values() for _ in range(whole)] == BATCHES[:whole]
    with pytest.raises(Corruption) as told:
        next(reading)
    assert (told.value.position, told.value.offsets) == (STARTS[whole], (OFFSETS[whole], 8))


@pytest.mark.damages
@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_that_is_cut_while_its_segment_is_known_is_damage(tmp_path: Path, mapped: bool) -> None:
    segment = sealed(tmp_path)
    cut(segment.path, STARTS[3] + 5)
    with pytest.raises(Corruption) as told:
        list(segment.frames(0, mapped=mapped))
    assert (told.value.position, told.value.offsets) == (STARTS[3], (4, 8))


def test_asking_for_the_end_is_not_damage(tmp_path: Path) -> None:
    assert list(sealed(tmp_path).frames(8)) == []


@pytest.mark.damages
def test_missing_offsets_at_the_end_begin_with_the_one_asked_for(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    segment.end_offset = 20
    with pytest.raises(Corruption) as told:
        list(segment.frames(12))
    assert (told.value.position, told.value.offsets) == (len(DATA), (12, 20))
    assert told.value.reason == "the file ends before the segment does"


@pytest.mark.damages
def test_a_sealed_segment_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    """Frames that go on past the next segment's first offset: there would be two of each message."""
    segment = sealed(tmp_path)
    segment.end_offset = 5
    reading = segment.frames(0)
    assert [next(reading)[1].values() for _ in range(3)] == BATCHES[:3]
    with pytest.raises(Corruption) as told:
        next(reading)
    assert (told.value.position, told.value.offsets) == (STARTS[3], (4, 5))
    assert [type(step) for step in segment.examine()] == [Found, Found, Found, Damage]


# The index


def test_a_sealed_segment_takes_its_index_from_the_file(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    # A frame that is not noted tells where the index came from: the log has it.
    index = SparseIndex(0)
    index.add(3, NOON_US, STARTS[2])
    index.add(8, NOON_US, STARTS[5])
    index_path(tmp_path, 0).write_bytes(index.encode())
    assert list(segment.index.offsets) == [3, 8]
    assert segment.index is segment.index


@pytest.mark.damages
@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xff" * 200,
        SparseIndex(1).encode(),
        SparseIndex(0).encode(),
    ],
    ids=["missing", "empty", "garbage", "of another segment", "short"],
)
def test_an_index_that_cannot_be_used_is_made_from_the_log(tmp_path: Path, data: bytes | None) -> None:
    segment = sealed(tmp_path)
    path = index_path(tmp_path, 0)
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    assert list(segment.index.offsets) == OFFSETS[1:-1]
    assert list(segment.index.positions) == STARTS[1:-1]
    assert [frame.values() for _, frame in segment.frames(5)] == BATCHES[3:]
    # Readers change no file.
    assert path.exists() == (data is not None)


@pytest.mark.damages
@pytest.mark.parametrize("mark", [(8, NOON_US, 1000), (7, NOON_US, len(DATA)), (9, NOON_US, len(DATA))])
def test_an_index_that_ends_elsewhere_is_made_from_the_log(
    tmp_path: Path, mark: tuple[int, int, int]
) -> None:
    segment = sealed(tmp_path)
    index = SparseIndex(0)
    index.add(1, NOON_US + 5, STARTS[1])
    index.add(*mark)
    index_path(tmp_path, 0).write_bytes(index.encode())
    assert list(segment.index.positions) == STARTS[1:-1]
    assert list(segment.index.timestamps) == [NOON_US] * 4


@pytest.mark.damages
@pytest.mark.parametrize("entry", [(1, 8), (2, STARTS[1]), (3, STARTS[1]), (1, STARTS[2])])
def test_an_index_that_lies_is_noticed_before_it_misleads(tmp_path: Path, entry: tuple[int, int]) -> None:
    segment = sealed(tmp_path)
    index = SparseIndex(0)
    offset, position = entry
    index.add(offset, NOON_US, position)
    index.add(8, NOON_US, STARTS[5])
    index_path(tmp_path, 0).write_bytes(index.encode())
    for start in range(8):
        number = max(n for n, first in enumerate(OFFSETS) if first <= start)
        assert next(segment.frames(start))[1].values() == BATCHES[number]


def test_the_index_is_forgotten_and_read_again(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    index = segment.index
    segment.forget_index()
    assert segment.index is not index
    assert list(segment.index.positions) == list(index.positions)


def test_the_index_of_an_active_segment_is_never_forgotten(tmp_path: Path) -> None:
    writer = new_segment(tmp_path, **EVERY)
    put(writer, *BATCHES)
    index = writer.segment.index
    writer.segment.forget_index()
    assert writer.segment.index is index
    assert list(index.positions) == STARTS[1:-1]
    writer.close()


def test_one_thread_may_forget_the_index_while_another_asks_for_it(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    asked = vars(Segment)["index"].fget

    def forget_between_lines(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is asked.__code__:
            segment.forget_index()
            return forget_between_lines
        return None

    before = sys.gettrace()
    sys.settrace(forget_between_lines)
    try:
        index = segment.index
    finally:
        sys.settrace(before)
    assert list(index.positions) == STARTS[1:]


@pytest.mark.parametrize(
    ("interval_bytes", "noted"),
    [(1, [1, 2, 3, 4]), (96, [1, 2, 3, 4]), (97, [2, 4]), (200, [2, 4]), (201, [3]), (10_000, [])],
)
def test_an_entry_is_noted_whenever_enough_bytes_have_gone_by(
    tmp_path: Path, interval_bytes: int, noted: list[int]
) -> None:
    segment = sealed(tmp_path, index_interval_bytes=interval_bytes)
    loaded = load_index(DISK, tmp_path, 0)
    assert loaded is not None
    assert list(loaded.positions) == [*(STARTS[n] for n in noted), STARTS[5]]
    assert list(loaded.offsets) == [*(OFFSETS[n] for n in noted), 8]
    index_path(tmp_path, 0).unlink()
    assert list(segment.index.positions) == [STARTS[n] for n in noted]
    index_path(tmp_path, 0).write_bytes(loaded.encode())


# Time


def timed(directory: Path, *stamps: int | Sequence[int], **settings: Any) -> SegmentWriter:
    """An active segment with one frame per item; a list gives one timestamp a message."""
    writer = new_segment(directory, **EVERY | settings)
    for stamp in stamps:
        count = 1 if isinstance(stamp, int) else len(stamp)
        writer.append([encode([b"x"] * count, timestamp=stamp)], NOON_US)
    return writer


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    "stamps",
    [
        [10, 20, 30, 40],
        [40, 30, 20, 10],
        [[10, 50, 20], [15, 15], 50, [60, 5]],
        [[5, 5], [5], 5, 5],
        [-5, [-(2**63) + 1, 0], 2**63 - 1],
        [30, 10, [10, 20, 40], 20, 45, 5, 100],
    ],
)
def test_the_first_message_that_is_not_older(
    tmp_path: Path, stamps: list[int | list[int]], is_sealed: bool
) -> None:
    writer = timed(tmp_path, *stamps)
    flat = [stamp for item in stamps for stamp in ([item] if isinstance(item, int) else item)]
    wanted = {t for stamp in flat for t in (stamp - 1, stamp, stamp + 1) if -(2**63) < t < 2**63}
    if is_sealed:
        writer.close()
    segment = found(tmp_path, len(flat)) if is_sealed else writer.segment
    for timestamp in sorted(wanted):
        expected = next((n for n, stamp in enumerate(flat) if stamp >= timestamp), None)
        assert segment.find_time(timestamp) == expected, timestamp
    writer.abandon()


def test_an_entry_has_the_largest_timestamp_before_it(tmp_path: Path) -> None:
    writer = timed(tmp_path, 30, [10, 40], 20, 50)
    assert list(writer.segment.index.timestamps) == [30, 40, 40]
    writer.close()
    loaded = load_index(DISK, tmp_path, 0)
    assert loaded is not None
    assert list(loaded.timestamps) == [30, 40, 40, 50]


def test_a_gap_has_no_message_to_be_found(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    gap = encode_control(b"{}", count=3, timestamp=NOON_US + 10).stamped(1, 0)
    written(segment, [frame_at(0, b"a"), gap, frame_at(4, b"b", timestamp=NOON_US + 5)])
    index_path(tmp_path, 0).unlink()
    segment.forget_index()
    assert segment.find_time(NOON_US + 1) == 4
    assert segment.find_time(NOON_US + 6) is None
    segment.path.unlink()


# Growing


def follower_of(writer: SegmentWriter) -> Segment:
    """The segment as another process sees it now."""
    segment = writer.segment
    index = SparseIndex(0)
    return Segment(DISK, segment.directory, 0, segment.settings, end_offset=0, end=0, index=index)


def test_a_segment_grows_by_what_another_process_appends(tmp_path: Path) -> None:
    writer = new_segment(tmp_path, **EVERY)
    follower = follower_of(writer)
    for count, batch in enumerate(BATCHES, start=1):
        put(writer, batch)
        assert follower.grow()
        assert (follower.end, follower.end_offset) == (STARTS[count], OFFSETS[count])
    assert list(follower.index.positions) == list(writer.segment.index.positions)
    assert list(follower.index.timestamps) == list(writer.segment.index.timestamps)
    assert follower.timestamp_max == NOON_US
    assert follower.grow()
    assert [frame.values() for _, frame in follower.frames(5)] == BATCHES[3:]
    writer.close()


@pytest.mark.damages
def test_a_frame_that_is_being_written_is_not_taken_in(tmp_path: Path) -> None:
    writer = new_segment(tmp_path, **EVERY)
    follower = follower_of(writer)
    put(writer, *BATCHES)
    writer.close()
    for size in (STARTS[2] + 7, STARTS[4] - 1):
        follower.path.write_bytes(DATA[:size])
        assert not follower.grow()
    assert (follower.end, follower.end_offset) == (STARTS[3], 4)


@pytest.mark.damages
def test_a_segment_that_was_replaced_by_a_shorter_one_does_not_grow(tmp_path: Path) -> None:
    writer = new_segment(tmp_path, **EVERY)
    follower = follower_of(writer)
    put(writer, *BATCHES)
    assert follower.grow()
    writer.close()
    cut(follower.path, STARTS[2])
    assert not follower.grow()
    follower.path.write_bytes(DATA + DATA)
    assert not follower.grow()


# Every byte


def test_examining_finds_every_frame(tmp_path: Path) -> None:
    steps = list(sealed(tmp_path).examine())
    assert [(step.position, step.end) for step in steps] == list(pairwise(STARTS))
    assert all(isinstance(step, Found) for step in steps)


def with_body(frame: Frame, body: bytes, **fields: Any) -> Frame:
    """The frame with another body, its checksums right: wrong from the start, not rotten."""
    header = frame.header._replace(body_crc=crc32c(body), stored_bytes=len(body), **fields)
    return Frame(header, body)


@pytest.mark.damages
def test_examining_looks_into_every_frame(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    body = bytearray(FRAMES[1].stored)
    body[0] = 1
    written(segment, [FRAMES[0], with_body(FRAMES[1], bytes(body)), *FRAMES[2:]])
    steps = list(segment.examine())
    assert [type(step) for step in steps] == [Found, Damage, Found, Found, Found]
    assert steps[1] == Damage(STARTS[1], STARTS[2], (1, 3), "offsets do not run upwards from 0 in the body")


@pytest.mark.damages
def test_an_encrypted_frame_cannot_be_looked_into_and_is_not_damage(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    raw_bytes = FRAMES[1].header.raw_bytes
    sealed_frame = with_body(FRAMES[1], bytes(raw_bytes + 28), flags=int(Flag.ENCRYPTED))
    written(segment, [FRAMES[0], sealed_frame])
    assert [type(step) for step in segment.examine()] == [Found, Found]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_frame_above_the_limit_of_today_is_not_damage(tmp_path: Path, codec: Codec) -> None:
    writer = new_segment(tmp_path)
    writer.append([encode([b"x" * 200_000], timestamp=0, codec=codec)], NOON_US)
    writer.close()
    limits = {
        "message_bytes_max": 1000,
        "batch_bytes": 1000,
        "frame_bytes_max": 10_000,
        "frame_raw_bytes_max": 100_000,
    }
    assert [type(step) for step in found(tmp_path, 1, **limits).examine()] == [Found]


@pytest.mark.damages
def test_the_reason_of_an_open_end_is_told_up_to_the_end_of_the_segment(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    error = segment.corruption(Damage(80, 160, (3, None), "why"))
    assert (error.path, error.position, error.offsets, error.reason) == (segment.path, 80, (3, 8), "why")
    assert segment.corruption(Damage(80, 160, (3, 5), "why")).offsets == (3, 5)


def test_without_messages_there_is_no_largest_timestamp(tmp_path: Path) -> None:
    writer = new_segment(tmp_path)
    assert writer.segment.timestamp_max == TIMESTAMP_NONE
    writer.close()


@pytest.mark.damages
def test_a_rotten_header_at_a_noted_place_is_damage_and_not_a_lying_index(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    overwrite(segment.path, STARTS[2], bytes(16))
    with pytest.raises(Corruption) as told:
        list(segment.frames(3))
    assert (told.value.position, told.value.offsets) == (STARTS[2], (3, 4))


# An index that cannot be one


@pytest.mark.damages
def test_an_index_of_a_size_that_no_log_needs_is_none(tmp_path: Path) -> None:
    segment = sealed(tmp_path)
    os.truncate(index_path(tmp_path, 0), 2**42)
    assert load_index(DISK, tmp_path, 0) is None
    assert [frame.values() for _, frame in segment.frames(0)] == BATCHES


@pytest.mark.damages
def test_an_index_of_a_log_that_was_cut_is_still_read(tmp_path: Path) -> None:
    sealed(tmp_path)
    os.truncate(log_path(tmp_path, 0), 0)
    loaded = load_index(DISK, tmp_path, 0)
    assert loaded is not None
    assert loaded.mark[0] == 8
