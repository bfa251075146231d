"""The frames that stand where damaged ones were."""

from pathlib import Path

from quivermq.frame import Flag, Frame, encode, encode_control
from quivermq.log.gap import gap_frames, gap_of


def test_a_gap_takes_its_offsets_and_says_where_the_bytes_went() -> None:
    (frame,) = gap_frames((40, 70), Path("side.bytes"), "rotten", 5)
    assert (frame.header.base_offset, frame.header.end_offset) == (40, 70)
    assert gap_of(Frame.parse(bytes(frame))) == "rotten; set aside in side.bytes"
    assert frame.records() == []


def test_a_gap_that_no_header_can_count_takes_several_frames() -> None:
    end = 2**33
    frames = gap_frames((7, end), None, "rotten", 5)
    assert [frame.header.base_offset for frame in frames] == [7, 7 + 2**32 - 1, 7 + 2 * (2**32 - 1)][
        : len(frames)
    ]
    assert frames[-1].header.end_offset == end
    assert all(gap_of(frame) for frame in frames)


def test_other_frames_are_no_gap() -> None:
    encrypted = encode_control(b"{}", count=1, timestamp=0)
    header = encrypted.header._replace(flags=Flag.CONTROL | Flag.ENCRYPTED)
    assert gap_of(encode([b"{}"], timestamp=0)) is None
    assert gap_of(encode_control(b"no json", count=1, timestamp=0)) is None
    assert gap_of(encode_control(b"[]", count=1, timestamp=0)) is None
    assert gap_of(encode_control(b'{"kind": "other"}', count=1, timestamp=0)) is None
    assert gap_of(Frame(header, encrypted.stored)) is None
