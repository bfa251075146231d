"""Some messages of a frame: the same as of all of them, at the cost of those alone."""

from typing import Any

import pytest

from quivermq.errors import InvalidFrame
from quivermq.frame import Codec, Frame, Wanted, each_left, encode, part_of, records_at
from quivermq.frame import frame as frame_module
from quivermq.frame.header import Column
from quivermq.model.messages import Record

COUNT = 5000


def columns(count: int = COUNT) -> dict[str, Any]:
    return {
        "timestamp": [n * 7 % 100 for n in range(count)],
        "keys": [None if n % 3 else b"k%d" % n for n in range(count)],
        "headers": [{f"h{i}": b"%d" % n for i in range(n % 4)} for n in range(count)],
        "expires_at": [None if n % 5 else n for n in range(count)],
        "dedup_ids": [None if n % 7 else f"ö{n}" for n in range(count)],
        "origin_ids": [None if n % 2 else f"{n:x}-1-0" for n in range(count)],
    }


def frames() -> list[Frame]:
    values = [b"v%d" % n * (n % 3) for n in range(COUNT)]
    made = [
        encode(values, timestamp=7),
        encode(values, timestamp=7, codec=Codec.ZSTD),
        encode(values, **columns()),
        encode(values, **columns(), codec=Codec.LZ4),
    ]
    return [Frame.parse(bytes(frame.stamped(100, 9))) for frame in made]


@pytest.mark.parametrize("frame", frames())
@pytest.mark.parametrize(
    ("first", "behind"), [(0, 1), (0, COUNT), (7, 16), (4990, 9999), (4999, 5000), (5000, 5001), (3, 3)]
)
def test_a_part_is_a_part_of_the_whole(frame: Frame, first: int, behind: int) -> None:
    expected = Frame.parse(bytes(frame)).records()[first:behind]
    assert frame.part(first, behind) == expected
    assert list(frame.each_record(first)) == Frame.parse(bytes(frame)).records()[first:]
    # Whether the rest has been looked at by then or not.
    frame.validate()
    assert frame.part(first, behind) == expected
    if expected:
        assert part_of(frame, 100 + first, 100 + first + len(expected)).records() == expected
    assert records_at(frame, [n for n in (first, behind) if n < COUNT]) == [
        record for n in (first, behind) for record in frame.part(n, n + 1)
    ]


def test_one_message_of_very_many_costs_no_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole is counted by what would make something of every message."""
    frame = Frame.parse(bytes(encode([b""] * 100_000, timestamp=7, codec=Codec.ZSTD)))
    assert frame.header.frame_bytes < 300
    made: list[Record] = []
    real = frame_module._record

    def record(fields: Any) -> Record:
        made.append(real(fields))
        return made[-1]

    monkeypatch.setattr(frame_module, "_record", record)
    monkeypatch.setattr(Frame, "_laid_out", lambda _: pytest.fail("all of it was checked again"))
    assert [record.offset for record in frame.part(70_000, 70_001)] == [70_000]
    assert next(each_left(frame, 99_000)).offset == 99_000
    assert next(iter(Wanted().records(frame, 50_000))).offset == 50_000
    assert len(part_of(frame, 5, 7)) == 2
    assert len(made) < 3000


def test_an_offset_that_leads_elsewhere_is_not_followed() -> None:
    frame = Frame.parse(bytes(encode([b"abc"] * COUNT, timestamp=7)))
    body = bytearray(frame.stored)
    for wrong in (2**31 - 1, -5, 0):
        body[4 * 17 : 4 * 18] = wrong.to_bytes(4, "little", signed=True)
        broken = Frame(frame.header, bytes(body))
        with pytest.raises(InvalidFrame, match="do not run upwards"):
            broken.part(16, 18)
        assert broken.part(100, 101)[0].value == b"abc"


def test_text_that_is_none_is_told() -> None:
    headers = [{"name": b"1"}] * COUNT
    frame = Frame.parse(bytes(encode([b""] * COUNT, timestamp=7, headers=headers)))
    assert frame.header.columns == Column.VALUE | Column.HEADERS
    broken = Frame(frame.header, bytes(frame.stored).replace(b"name", b"\xff\xff\xff\xff"))
    with pytest.raises(InvalidFrame, match="not UTF-8"):
        broken.part(0, 1)
