"""The loop that reads usual frames quickly lets nothing pass that the careful way would refuse."""

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import pytest
from vectors import forged, int32s

from quivermq.errors import InvalidFrame
from quivermq.frame import (
    OFFSET_MAX,
    RAW_BYTES_MAX,
    Codec,
    Flag,
    Found,
    Frame,
    encode,
    encode_control,
    usual_run,
)

TIME = 1_700_000_000_000_000
FRAMES = [
    encode([b"a"], timestamp=TIME).stamped(5, TIME),
    encode([b"bb", b""], timestamp=[TIME, TIME + 1], keys=[b"k", None]).stamped(6, TIME),
    encode([b"c" * 100], timestamp=TIME, headers=[{"n": b"v"}], dedup_ids=["x"]).stamped(8, TIME),
    encode([b"d"], timestamp=TIME, expires_at=[TIME]).stamped(9, TIME),
]
PARTS = [bytes(frame) for frame in FRAMES]
DATA = b"".join(PARTS)
STARTS = [sum(map(len, PARTS[:count])) for count in range(len(PARTS) + 1)]
OFFSETS = [5, 6, 8, 9, 10]
BODY = int32s(0, 8) + b"12345678"


def run(
    data: bytes, position: int = 0, offset: int = 5, **arguments: Any
) -> tuple[list[Found], tuple[int, int]]:
    """What a run finds, and where it ends."""
    given = {"end_offset": OFFSET_MAX, "skip_to_offset": 0, "raw_bytes_max": RAW_BYTES_MAX}
    found: list[Found] = []

    def take() -> Generator[Found, None, tuple[int, int]]:
        return (yield from usual_run(data, 0, position, offset, **given | arguments))

    steps = take()
    while True:
        try:
            found.append(next(steps))
        except StopIteration as stop:
            return found, stop.value


def test_a_run_finds_every_frame_as_it_is() -> None:
    found, end = run(DATA)
    assert [step.position for step in found] == STARTS[:-1]
    assert [step.end for step in found] == STARTS[1:]
    assert [step.frame.header for step in found] == [frame.header for frame in FRAMES]
    assert [bytes(step.frame) for step in found] == PARTS
    assert [step.frame.records() for step in found] == [frame.records() for frame in FRAMES]
    assert end == (STARTS[-1], 10)


def test_positions_count_from_the_beginning_of_the_file() -> None:
    steps = usual_run(
        DATA, 1000, 1000 + STARTS[1], 6, end_offset=10, skip_to_offset=0, raw_bytes_max=RAW_BYTES_MAX
    )
    assert [step.position for step in steps] == [1000 + start for start in STARTS[1:-1]]


def test_frames_before_the_wanted_offset_are_stepped_over_whatever_their_bodies_are() -> None:
    rotten = bytearray(DATA)
    rotten[STARTS[1] + 90] ^= 1
    found, _ = run(bytes(rotten), skip_to_offset=8)
    assert [step.position for step in found] == STARTS[2:-1]
    assert run(bytes(rotten), skip_to_offset=7) == ([], (STARTS[1], 6))


@pytest.mark.parametrize("size", range(0, len(DATA), 8))
def test_a_run_ends_where_the_buffer_does(size: int) -> None:
    found, end = run(DATA[:size])
    whole = max(place for place, start in enumerate(STARTS) if start <= size)
    assert [bytes(step.frame) for step in found] == PARTS[:whole]
    assert end == (STARTS[whole], OFFSETS[whole])


@pytest.mark.parametrize(
    ("position", "offset"), [(-8, 5), (8, 5), (0, 6), (len(DATA), 10), (len(DATA) + 8, 10)]
)
def test_where_no_frame_begins_nothing_is_found(position: int, offset: int) -> None:
    assert run(DATA, position, offset) == ([], (position, offset))


def test_a_frame_that_ends_behind_the_last_offset_is_not_taken() -> None:
    found, end = run(DATA, end_offset=7)
    assert (len(found), end) == (1, (STARTS[1], 6))


@pytest.mark.parametrize("bit", range(8 * len(PARTS[0])))
def test_no_flipped_bit_gets_through(bit: int) -> None:
    flipped = bytearray(DATA)
    flipped[STARTS[1] + bit // 8] ^= 1 << bit % 8
    found, end = run(bytes(flipped))
    assert (len(found), end) == (1, (STARTS[1], 6))


@pytest.mark.parametrize(
    "frame",
    [
        encode([b"z" * 1000], timestamp=TIME, codec=Codec.ZSTD).stamped(5, TIME),
        encode_control(b"record", count=2, timestamp=TIME).stamped(5, TIME),
    ],
    ids=["compressed", "control"],
)
def test_what_is_special_is_left_to_others(frame: Frame) -> None:
    assert run(bytes(frame) + DATA) == ([], (0, 5))


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 0},
        {"version": 2},
        {"codec": 4},
        {"codec": 255},
        {"flags": Flag.CONTROL},
        {"flags": Flag.ENCRYPTED},
        {"flags": 16},
        {"columns": 0},
        {"columns": 2},
        {"columns": 126},
        {"columns": 128},
        {"columns": 129},
        {"columns": 2**16 - 1},
        {"message_count": 0},
        {"message_count": 4},
        {"message_count": 2**32 - 1},
        {"raw_bytes": 8},
        {"raw_bytes": 24},
        {"stored_bytes": 8},
        {"stored_bytes": 24},
        {"stored_bytes": 2**32 - 1, "raw_bytes": 2**32 - 1},
        {"base_offset": -1},
        {"base_offset": OFFSET_MAX},
        {"timestamp_min": TIME + 1},
        {"body_crc": 0},
    ],
    ids=repr,
)
def test_what_the_careful_way_refuses_is_not_taken(fields: dict[str, int]) -> None:
    data = forged(BODY, **fields)
    offset = fields.get("base_offset", 0)
    with pytest.raises(InvalidFrame):
        Frame.parse(data).validate()
    assert run(data, 0, offset) == ([], (0, offset))


def test_the_last_offset_there_is_can_be_taken() -> None:
    data = forged(BODY, base_offset=OFFSET_MAX - 1)
    (found,), end = run(data, 0, OFFSET_MAX - 1)
    assert (bytes(found.frame), end) == (data, (len(data), OFFSET_MAX))


def test_a_body_that_needs_padding_is_left_to_whoever_looks_at_the_padding() -> None:
    assert run(forged(BODY + b"odd")) == ([], (0, 5))


def test_frames_are_the_same_memory() -> None:
    found, _ = run(DATA)
    assert all(
        isinstance(step.frame.stored, memoryview) and step.frame.stored.obj is DATA for step in found
    )
    assert [len(step.frame.stored) for step in found] == [b - a - 80 for a, b in pairwise(STARTS)]
