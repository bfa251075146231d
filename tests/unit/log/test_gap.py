from itertools import pairwise
from pathlib import Path

import pytest

from quivermq.frame import encode, encode_control
from quivermq.log.opening import gap_frames, gap_of


def test_a_gap_takes_the_offsets_and_says_where_they_went() -> None:
    (frame,) = gap_frames((5, 9), Path("log/@quarantine/0.8-96.bytes"), "rotten", 77)
    assert (frame.header.base_offset, frame.header.end_offset, len(frame)) == (5, 9, 4)
    assert (frame.header.append_time, frame.is_control) == (77, True)
    assert gap_of(frame) == "rotten; set aside in 0.8-96.bytes"
    assert frame.records() == []


def test_a_gap_without_bytes_says_so() -> None:
    (frame,) = gap_frames((5, 9), None, "missing", 0)
    assert gap_of(frame) == "missing; nothing was left to set aside"


def test_a_gap_that_no_header_can_count_is_several_frames() -> None:
    frames = gap_frames((7, 7 + 2**33), None, "missing", 0)
    assert frames[0].header.base_offset == 7
    assert frames[-1].header.end_offset == 7 + 2**33
    assert all(a.header.end_offset == b.header.base_offset for a, b in pairwise(frames))
    assert len(frames) == 3


@pytest.mark.parametrize(
    "record", [b"", b"?", b"[]", b"null", b'"gap"', b"{}", b'{"kind": "other"}', b"\xff"]
)
def test_another_control_frame_is_no_gap(record: bytes) -> None:
    assert gap_of(encode_control(record, count=1, timestamp=0)) is None


@pytest.mark.parametrize("start", [b"", b'{"kind": "gap", "reason": '])
def test_a_control_frame_that_nests_too_deeply_is_no_gap(start: bytes) -> None:
    assert gap_of(encode_control(start + b"[" * 100_000, count=1, timestamp=0)) is None


def test_a_frame_of_messages_is_no_gap() -> None:
    assert gap_of(encode([b'{"kind": "gap"}'], timestamp=0)) is None
