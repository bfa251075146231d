"""What is whole and what is not: every kind of damage, in memory, byte by byte."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.segments import ends, frame_at, frames_from, joined

from quivermq.disk import Buffer
from quivermq.errors import UnsupportedFrame
from quivermq.frame import HEADER_BYTES, RAW_BYTES_MAX, Codec, Frame, encode
from quivermq.segment.index import SparseIndex
from quivermq.segment.scan import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Damage, Found, FrameScan, MappedFile

FRAMES = frames_from(5, [b"a"], [b"bb", b"cc"], [b"dddddddddd"], [b"e", b"f", b"g"])
STARTS = [0, *ends(FRAMES)]
OFFSETS = [5, 6, 8, 9, 12]
DATA = joined(FRAMES)
PATH = Path("00000000000000000005.log")


@dataclass
class Read:
    """A file of which a test sees what is read."""

    data: Buffer
    lengths: list[int] = field(default_factory=list)
    path: Path = PATH

    def size(self) -> int:
        return len(self.data)

    def read(self, position: int, length: int) -> Buffer:
        self.lengths.append(length)
        return self.data[position : position + length]


def scanned(
    data: Buffer, offset: int = 5, *, position: int = 0, skip_to_offset: int = 0
) -> list[Found | Damage]:
    scan = FrameScan(Read(data), raw_bytes_max=RAW_BYTES_MAX)
    return list(scan.frames(position, offset, skip_to_offset))


def told(steps: Sequence[Found | Damage]) -> list[tuple[int, int, int, int | None]]:
    """Position, end, and offsets of every step; a damage's position is negative, less 1."""
    return [
        (-1 - step.position, step.end, *step.offsets)
        if isinstance(step, Damage)
        else (step.position, step.end, step.frame.header.base_offset, step.frame.header.end_offset)
        for step in steps
    ]


def whole(*numbers: int) -> list[tuple[int, int, int, int | None]]:
    """What a scan tells of these frames of DATA."""
    return [(STARTS[n], STARTS[n + 1], OFFSETS[n], OFFSETS[n + 1]) for n in numbers]


def damage(position: int, end: int, start: int, end_offset: int | None) -> tuple[int, int, int, int | None]:
    return (-1 - position, end, start, end_offset)


def flipped(data: bytes, position: int, mask: int = 0x10) -> bytes:
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def of_the_future(frame: Frame) -> bytes:
    """The frame as a later release might write it: everything is right, the version is unknown."""
    return frame.header._replace(version=9).pack() + bytes(frame)[HEADER_BYTES:]


# What is whole


def test_whole_frames_are_found_where_they_are() -> None:
    steps = scanned(DATA)
    assert told(steps) == whole(0, 1, 2, 3)
    assert [bytes(step.frame) for step in steps if isinstance(step, Found)] == list(map(bytes, FRAMES))


def test_nothing_is_found_in_an_empty_file() -> None:
    assert scanned(b"") == []


def test_mapped_memory_is_scanned_without_a_copy() -> None:
    memory = memoryview(DATA)
    steps = list(FrameScan(MappedFile(PATH, memory), raw_bytes_max=RAW_BYTES_MAX).frames(0, 5))
    assert told(steps) == whole(0, 1, 2, 3)
    for step in steps:
        assert isinstance(step, Found)
        assert isinstance(step.frame.stored, memoryview)
        assert step.frame.stored.obj is DATA


def test_a_scan_begins_at_any_frame() -> None:
    assert told(scanned(DATA, OFFSETS[2], position=STARTS[2])) == whole(2, 3)


def test_what_lies_behind_the_end_is_not_looked_at() -> None:
    scan = FrameScan(Read(DATA + b"garbage"), end=STARTS[2], raw_bytes_max=RAW_BYTES_MAX)
    assert told(list(scan.frames(0, 5))) == whole(0, 1)


def test_frames_before_the_wanted_offset_are_stepped_over_by_their_headers() -> None:
    rotten_body = flipped(DATA, STARTS[1] + HEADER_BYTES)
    # 7 lies inside frame 1, so that one is read; 8 is the beginning of frame 2.
    assert told(scanned(DATA, skip_to_offset=7)) == whole(1, 2, 3)
    assert told(scanned(rotten_body, skip_to_offset=8)) == whole(2, 3)
    assert told(scanned(rotten_body, skip_to_offset=7))[0] == damage(STARTS[1], STARTS[2], 6, 8)


def test_a_header_that_is_stepped_over_must_be_right() -> None:
    rotten_header = flipped(DATA, STARTS[1] + 30)
    assert told(scanned(rotten_header, skip_to_offset=9)) == [damage(STARTS[1], STARTS[2], 6, 8), *whole(3)]


@pytest.mark.parametrize(
    ("position", "offset", "begins"),
    [
        (0, 5, True),
        (STARTS[1], 6, True),
        (STARTS[-1], 12, True),
        (STARTS[-1], 99, True),
        (0, 6, False),
        (STARTS[1], 5, False),
        (8, 5, False),
        (STARTS[-1] - 8, 12, False),
        (STARTS[-1] + 8, 12, False),
    ],
)
def test_whether_a_frame_begins_somewhere(position: int, offset: int, begins: bool) -> None:
    assert FrameScan(Read(DATA), raw_bytes_max=RAW_BYTES_MAX).begins(position, offset) is begins


@pytest.mark.parametrize(
    ("start", "end", "end_offset", "leads"),
    [
        (0, STARTS[0], 5, True),
        (0, STARTS[1], 6, True),
        (0, STARTS[4], 12, True),
        (1, STARTS[3], 9, True),
        (0, STARTS[1], 7, False),
        (0, STARTS[1] + 8, 6, False),
        (0, STARTS[2] - 8, 8, False),
        (0, STARTS[4] + 8, 12, False),
    ],
)
def test_whether_headers_lead_from_one_frame_to_another(
    start: int, end: int, end_offset: int, leads: bool
) -> None:
    scan = FrameScan(Read(flipped(DATA, STARTS[2] + HEADER_BYTES)), raw_bytes_max=RAW_BYTES_MAX)
    assert scan.leads(STARTS[start], OFFSETS[start], end, end_offset) is leads


def test_no_headers_lead_over_a_rotten_one_or_over_missing_offsets() -> None:
    rotten = FrameScan(Read(flipped(DATA, STARTS[1] + 30)), raw_bytes_max=RAW_BYTES_MAX)
    assert not rotten.leads(0, 5, STARTS[3], 9)
    backwards = joined([FRAMES[0], frame_at(5, b"x"), frame_at(7, b"y")])
    assert not FrameScan(Read(backwards), raw_bytes_max=RAW_BYTES_MAX).leads(0, 5, len(backwards), 8)


# Chunks


@pytest.mark.parametrize("shift", range(-88, 97, 8))
def test_frames_that_straddle_the_end_of_a_chunk_are_found(shift: int) -> None:
    # The second frame begins around the end of the first chunk that is read.
    first = frame_at(0, bytes(CHUNK_BYTES_MIN - HEADER_BYTES - 8 + shift))
    frames = [first, *frames_from(1, [b"b"], [b"c" * 100], [b"d"])]
    steps = scanned(joined(frames), 0)
    assert [bytes(step.frame) for step in steps if isinstance(step, Found)] == list(map(bytes, frames))


def test_a_frame_that_is_larger_than_any_chunk_is_read_at_once() -> None:
    frames = frames_from(0, [b"a"], [b"b" * (3 * CHUNK_BYTES_MAX)], [b"c"])
    file = Read(joined(frames))
    steps = list(FrameScan(file, raw_bytes_max=RAW_BYTES_MAX).frames(0, 0))
    assert [step.end for step in steps] == ends(frames)
    assert file.lengths.count(frames[1].header.frame_bytes) == 1


def test_a_look_up_reads_little_and_a_walk_reads_more_and_more() -> None:
    frames = frames_from(0, *([[bytes(1000)]] * 10_000))
    file = Read(joined(frames))
    walk = FrameScan(file, raw_bytes_max=RAW_BYTES_MAX).frames(0, 0)
    next(walk)
    assert file.lengths == [CHUNK_BYTES_MIN]
    assert sum(1 for _ in walk) == 9_999
    assert max(file.lengths) == CHUNK_BYTES_MAX
    # Little is read twice: the beginning of a frame that the chunk before held in part.
    assert sum(file.lengths) < file.size() + len(file.lengths) * frames[0].header.frame_bytes


def test_a_lying_length_is_not_read() -> None:
    header = FRAMES[0].header._replace(stored_bytes=2**30, raw_bytes=2**30)
    file = Read(header.pack() + bytes(1000))
    (found,) = FrameScan(file, raw_bytes_max=RAW_BYTES_MAX).frames(0, 5)
    assert isinstance(found, Damage)
    assert found.reason == f"the frame has {2**30 + HEADER_BYTES} bytes, {1000 + HEADER_BYTES} are there"
    assert max(file.lengths) <= file.size()


@pytest.mark.parametrize("gap", [8, 1000, CHUNK_BYTES_MAX - 96, CHUNK_BYTES_MAX, 2 * CHUNK_BYTES_MAX + 72])
def test_the_search_goes_on_over_chunks(gap: int) -> None:
    before, after = frame_at(0, b"a"), frame_at(9, b"b")
    data = bytes(before) + b"\xff" * gap + bytes(after)
    start = before.header.frame_bytes
    assert told(scanned(data, 0))[1:] == [
        damage(start, start + gap, 1, 9),
        (start + gap, len(data), 9, 10),
    ]


# Damage


@pytest.mark.parametrize("number", range(len(FRAMES)))
def test_each_flipped_byte_costs_its_frame_and_no_other(number: int) -> None:
    for position in range(STARTS[number], STARTS[number + 1]):
        steps = told(scanned(flipped(DATA, position)))
        is_last = number == len(FRAMES) - 1
        broken = damage(
            STARTS[number], STARTS[number + 1], OFFSETS[number], None if is_last else OFFSETS[number + 1]
        )
        assert steps == [*whole(*range(number)), broken, *whole(*range(number + 1, len(FRAMES)))], position


def test_each_cut_costs_only_the_frame_that_it_goes_through() -> None:
    for size in range(len(DATA)):
        steps = told(scanned(DATA[:size]))
        number = next(n for n in range(len(FRAMES)) if STARTS[n + 1] > size)
        torn = [damage(STARTS[number], size, OFFSETS[number], None)] if size > STARTS[number] else []
        assert steps == [*whole(*range(number)), *torn], size


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (flipped(DATA, 0), "a frame begins with b'QVF1', not b'AVF1'"),
        (flipped(DATA, 5), "the header's checksum does not match"),
        (flipped(DATA, 40), "the header's checksum does not match"),
        (flipped(DATA, HEADER_BYTES), "the body's checksum does not match"),
        (flipped(DATA, STARTS[2] - 1), "the body's checksum does not match"),
        (DATA[STARTS[1] :], "the frame begins with offset 6, not 5"),
        (DATA[:79], "a header has 80 bytes, only 79 are left"),
        (DATA[:81], "the frame has 96 bytes, 81 are there"),
        (bytes(200), "a frame begins with b'QVF1', not b'\\x00\\x00\\x00\\x00'"),
    ],
)
def test_damage_says_why(data: bytes, reason: str) -> None:
    damages = [step for step in scanned(data) if isinstance(step, Damage)]
    assert [damage.reason for damage in damages] == [reason]


def test_a_byte_in_the_padding_behind_a_compressed_body_counts_too() -> None:
    frame = encode([b"x" * 200, b"y" * 100], timestamp=0, codec=Codec.ZSTD).stamped(0, 0)
    padding = -frame.header.stored_bytes % 8
    assert padding, "the test needs a body that is padded"
    data = flipped(bytes(frame), frame.header.frame_bytes - 1)
    (found,) = scanned(data, 0)
    assert isinstance(found, Damage)
    assert found.reason == "padding behind the body is not zero"


def test_several_ranges_are_found_one_by_one() -> None:
    data = flipped(flipped(DATA, 10), STARTS[2] + HEADER_BYTES + 1)
    assert told(scanned(data)) == [
        damage(0, STARTS[1], 5, 6),
        *whole(1),
        damage(STARTS[2], STARTS[3], 8, 9),
        *whole(3),
    ]


def test_neighbours_that_are_damaged_are_one_range() -> None:
    for first, second in [(10, 10), (10, HEADER_BYTES), (HEADER_BYTES, 10), (HEADER_BYTES, HEADER_BYTES)]:
        data = flipped(flipped(DATA, STARTS[1] + first), STARTS[2] + second)
        assert told(scanned(data)) == [*whole(0), damage(STARTS[1], STARTS[3], 6, 9), *whole(3)]


@pytest.mark.parametrize("garbage", [bytes(8), bytes(80), b"\xff" * 4096, b"QVF1" * 40])
def test_garbage_between_frames_is_a_range_without_offsets(garbage: bytes) -> None:
    data = DATA[: STARTS[1]] + garbage + DATA[STARTS[1] :]
    steps = told(scanned(data))
    assert steps[:2] == [*whole(0), damage(STARTS[1], STARTS[1] + len(garbage), 6, 6)]
    assert [step[2:] for step in steps[2:]] == [step[2:] for step in whole(1, 2, 3)]


def test_a_missing_frame_is_a_range_without_bytes() -> None:
    data = DATA[: STARTS[1]] + DATA[STARTS[2] :]
    steps = told(scanned(data))
    assert steps[:2] == [*whole(0), damage(STARTS[1], STARTS[1], 6, 8)]
    assert [step[2:] for step in steps[2:]] == [step[2:] for step in whole(2, 3)]


def test_a_frame_that_is_there_twice_is_a_range_without_offsets() -> None:
    data = DATA[: STARTS[2]] + DATA[STARTS[1] : STARTS[2]] + DATA[STARTS[2] :]
    size = STARTS[2] - STARTS[1]
    steps = told(scanned(data))
    assert steps[:3] == [*whole(0, 1), damage(STARTS[2], STARTS[2] + size, 8, 8)]
    assert [step[2:] for step in steps[3:]] == [step[2:] for step in whole(2, 3)]


def test_frames_that_run_backwards_are_not_gone_back_to() -> None:
    data = DATA[STARTS[2] :] + DATA[: STARTS[2]]
    assert told(scanned(data, 8)) == [
        (0, STARTS[3] - STARTS[2], 8, 9),
        (STARTS[3] - STARTS[2], STARTS[4] - STARTS[2], 9, 12),
        damage(STARTS[4] - STARTS[2], len(DATA), 12, None),
    ]


def test_two_frames_that_changed_places() -> None:
    one, two = DATA[STARTS[1] : STARTS[2]], DATA[STARTS[2] : STARTS[3]]
    steps = told(scanned(DATA[: STARTS[1]] + two + one + DATA[STARTS[3] :]))
    assert [step[2:] for step in steps] == [(5, 6), (6, 8), (8, 9), (9, 9), (9, 12)]
    assert [step[0] < 0 for step in steps] == [False, True, False, True, False]


def test_nothing_whole_behind_the_damage_leaves_its_end_open() -> None:
    (found,) = scanned(b"\xff" * 1000)
    assert isinstance(found, Damage)
    assert found == Damage(0, 1000, (5, None), found.reason)
    assert found.is_last
    assert not Damage(0, 1000, (5, 6), "").is_last


# A message may contain a frame


def plausible(offset: int, size_min: int = 0) -> bytes:
    """A whole frame that would fit in behind offset 6, as somebody's message."""
    return bytes(frame_at(offset, b"not a frame of this log" + bytes(size_min)))


def aligned(value: bytes) -> bytes:
    """A value that lies at a multiple of 8 in a frame of one message."""
    return value + bytes(-len(value) % 8)


def test_a_rotten_body_is_stepped_over_whatever_it_contains() -> None:
    for offset in (6, 7, 8, 100):
        hollow = frame_at(6, aligned(plausible(offset)))
        data = flipped(bytes(FRAMES[0]) + bytes(hollow), STARTS[1] + HEADER_BYTES + 2) + bytes(
            frame_at(7, b"c")
        )
        end = STARTS[1] + hollow.header.frame_bytes
        assert told(scanned(data))[1:] == [damage(STARTS[1], end, 6, 7), (end, len(data), 7, 8)]


def test_a_torn_frame_is_torn_whatever_it_contains() -> None:
    hollow = frame_at(6, aligned(plausible(7)), bytes(500))
    for missing in (8, 100, 400):
        data = bytes(FRAMES[0]) + bytes(hollow)[:-missing]
        assert told(scanned(data))[1:] == [damage(STARTS[1], len(data), 6, None)]


def test_behind_a_rotten_header_only_later_offsets_are_taken_for_frames() -> None:
    # Nothing says where the frame ends, so its bytes are searched: a frame in a message can deceive,
    # but not one of the past, which is what a message of frames mostly has.
    hollow = frame_at(6, aligned(plausible(5)))
    data = flipped(bytes(FRAMES[0]) + bytes(hollow), STARTS[1] + 30) + bytes(frame_at(7, b"c"))
    end = STARTS[1] + hollow.header.frame_bytes
    assert told(scanned(data))[1:] == [damage(STARTS[1], end, 6, 7), (end, len(data), 7, 8)]


def broken_around(value: bytes) -> tuple[bytes, int]:
    """A log in which only the header around this message is rotten, and where the next frame begins."""
    hollow = frame_at(6, aligned(value))
    data = flipped(bytes(FRAMES[0]) + bytes(hollow), STARTS[1] + 30)
    return data + joined(frames_from(7, [b"c"], [b"d"])), STARTS[1] + hollow.header.frame_bytes


def index_of(*places: tuple[int, int]) -> SparseIndex:
    index = SparseIndex(5)
    for position, offset in places:
        index.add(offset, 0, position)
    return index


FORGED = {
    "next": plausible(7),
    "far": plausible(2**40),
    "very far": plausible(2**62),
    "unsupported": of_the_future(frame_at(7, b"x")),
    "chain": plausible(7) + plausible(8),
    "past the end": plausible(7)
    + frame_at(8, b"x").header._replace(stored_bytes=2**30, raw_bytes=2**30).pack(),
}


@pytest.mark.parametrize("value", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("indexed", [False, True])
def test_behind_a_rotten_header_no_frame_in_a_message_counts(value: bytes, indexed: bool) -> None:
    data, end = broken_around(value)
    index = index_of((end, 7)) if indexed else None
    steps = told(list(FrameScan(Read(data), index=index, raw_bytes_max=RAW_BYTES_MAX).frames(0, 5)))
    assert steps[1:3] == [damage(STARTS[1], end, 6, 7), (end, end + 96, 7, 8)]
    assert len(steps) == 4


def test_a_jump_of_offsets_that_lost_bytes_cannot_hold_is_not_followed() -> None:
    data = flipped(bytes(FRAMES[0]) + bytes(FRAMES[1]), STARTS[1] + 30) + plausible(2**62)
    assert told(scanned(data))[1:] == [damage(STARTS[1], len(data), 6, None)]


def test_the_index_tells_where_to_go_on_when_no_headers_lead_there() -> None:
    data = flipped(flipped(DATA, 30), STARTS[2] + 30)
    # Without an index the frame between two broken ones leads nowhere; the last one leads to the end.
    assert told(scanned(data)) == [damage(0, STARTS[3], 5, 9), *whole(3)]
    scan = FrameScan(Read(data), index=index_of((STARTS[1], 6)), raw_bytes_max=RAW_BYTES_MAX)
    assert told(list(scan.frames(0, 5))) == [
        damage(0, STARTS[1], 5, 6),
        *whole(1),
        damage(STARTS[2], STARTS[3], 8, 9),
        *whole(3),
    ]


def test_an_index_of_another_log_does_not_lead_astray() -> None:
    index = index_of((STARTS[1] + 8, 6), (STARTS[2], 7))
    scan = FrameScan(Read(flipped(DATA, 30)), index=index, raw_bytes_max=RAW_BYTES_MAX)
    assert told(list(scan.frames(0, 5))) == [damage(0, STARTS[1], 5, 6), *whole(1, 2, 3)]


def test_frames_before_a_second_broken_header_are_not_taken_for_a_torn_end() -> None:
    data = flipped(flipped(DATA, 30), STARTS[3] + 30)
    assert told(scanned(data)) == [
        damage(0, STARTS[1], 5, 6),
        *whole(1, 2),
        damage(STARTS[3], STARTS[4], 9, None),
    ]


def test_many_lying_lengths_cost_no_more_than_a_few_readings() -> None:
    lie = frame_at(7, b"x").header._replace(stored_bytes=2**20, raw_bytes=2**20).pack()
    data, end = broken_around(lie * 400)
    file = Read(data + bytes(frame_at(9, bytes(2**21))))
    steps = told(list(FrameScan(file, raw_bytes_max=RAW_BYTES_MAX).frames(0, 5)))
    assert [step[0] for step in steps[1:3]] == [-1 - STARTS[1], end]
    assert sum(file.lengths) < 10 * file.size()


def test_a_frame_at_an_odd_place_is_not_one() -> None:
    for odd in range(1, 8):
        data = bytes(FRAMES[0]) + bytes(odd) + bytes(FRAMES[1]) + bytes(8 - odd) + bytes(FRAMES[2])
        end = STARTS[2] + 8
        assert told(scanned(data))[1] == damage(STARTS[1], end, 6, 8)


def test_a_header_whose_body_is_rotten_is_not_resumed_at() -> None:
    data = flipped(flipped(DATA, 30), STARTS[1] + HEADER_BYTES)
    assert told(scanned(data)) == [damage(0, STARTS[2], 5, 8), *whole(2, 3)]


# What a later release wrote


def test_a_frame_of_the_future_is_an_error_and_not_damage() -> None:
    data = bytes(FRAMES[0]) + of_the_future(FRAMES[1]) + bytes(FRAMES[2])
    scan = FrameScan(Read(data), raw_bytes_max=RAW_BYTES_MAX)
    walk = scan.frames(0, 5)
    next(walk)
    with pytest.raises(UnsupportedFrame) as refused:
        next(walk)
    assert "version 9" in refused.value.reason
    assert str(PATH) in refused.value.reason
    assert refused.value.position == STARTS[1]


def test_damage_does_not_reach_over_a_frame_of_the_future() -> None:
    future = of_the_future(FRAMES[1]) + bytes(FRAMES[2])
    with pytest.raises(UnsupportedFrame):
        scanned(flipped(bytes(FRAMES[0]), HEADER_BYTES) + future)
    # Behind a header that is gone, only the index can tell it from one in a message.
    scan = FrameScan(
        Read(flipped(bytes(FRAMES[0]), 30) + future),
        index=index_of((STARTS[1], 6)),
        raw_bytes_max=RAW_BYTES_MAX,
    )
    with pytest.raises(UnsupportedFrame):
        list(scan.frames(0, 5))


def test_no_frame_begins_where_one_of_the_future_does() -> None:
    scan = FrameScan(Read(of_the_future(FRAMES[0])), raw_bytes_max=RAW_BYTES_MAX)
    assert not scan.begins(0, 5)
