from typing import Any

import pytest

from quivermq.errors import MessageTooLarge
from quivermq.frame import Codec, Frame, lone_frame
from quivermq.log.entries import EntryBatch, checked_entry
from quivermq.settings import StorageSettings

# The narrowest that the settings allow: a full batch and 4 KiB for everything else.
NARROW = StorageSettings(
    message_bytes_max=1000, batch_bytes=1000, frame_bytes_max=5096, frame_raw_bytes_max=5096
)


def entry(value: bytes, **columns: Any) -> tuple[bytes, Any]:
    given = dict.fromkeys(("key", "headers", "timestamp", "expires_at", "dedup_id")) | columns
    return checked_entry(value, settings=NARROW, **given)


def encoded(*entries: tuple[bytes, Any], settings: StorageSettings = NARROW) -> list[Frame]:
    return EntryBatch(entries).frames(7, Codec.NONE, settings)


def test_messages_that_fit_become_one_frame() -> None:
    (frame,) = encoded((b"a", None), entry(b"b", key=b"k"), (b"c", None))
    assert [(r.value, r.key, r.timestamp) for r in frame.records()] == [
        (b"a", None, 7),
        (b"b", b"k", 7),
        (b"c", None, 7),
    ]


def test_a_column_that_no_message_has_is_not_in_the_frame() -> None:
    (plain,) = encoded((b"a", None), (b"b", None))
    (with_rest,) = encoded(entry(b"a"), entry(b"b"))
    assert bytes(plain) == bytes(with_rest)


def test_messages_without_a_time_get_the_time_of_the_frame() -> None:
    (frame,) = encoded((b"a", None), entry(b"b", timestamp=3), entry(b"c", key=b"k"))
    assert list(frame.timestamps()) == [7, 3, 7]


def test_what_does_not_fit_into_a_batch_becomes_several_frames() -> None:
    frames = encoded(*[(bytes(300), None)] * 7)
    assert [len(frame) for frame in frames] == [3, 3, 1]
    frames = encoded((bytes(1000), None), (b"a", None), (bytes(1000), None))
    assert [len(frame) for frame in frames] == [1, 1, 1]


def test_every_part_keeps_what_belongs_to_its_messages() -> None:
    entries = [entry(b"%d" % n, key=bytes(200) + b"%d" % n, timestamp=n) for n in range(9)]
    records = [record for frame in encoded(*entries) for record in frame.records()]
    assert [(r.value, r.timestamp) for r in records] == [(b"%d" % n, n) for n in range(9)]
    assert [(r.key or b"")[200:] for r in records] == [b"%d" % n for n in range(9)]


@pytest.mark.parametrize("count", [1, 100, 249, 250, 2000])
def test_very_many_empty_messages_find_room(count: int) -> None:
    frames = encoded(*[(b"", None)] * count)
    assert sum(map(len, frames)) == count


def test_a_column_of_one_message_may_make_the_frame_of_all_too_large() -> None:
    # 240 messages of nothing fit into 1000 bytes, until one of them brings five more columns along.
    everything = entry(b"x", key=b"k", headers={"h": b""}, timestamp=1, expires_at=2, dedup_id="d")
    entries = [(b"", None)] * 200 + [everything]
    frames = encoded(*entries)
    assert len(frames) > 1
    assert sum(map(len, frames)) == 201
    assert all(frame.header.raw_bytes <= NARROW.frame_raw_bytes_max for frame in frames)
    assert frames[-1].records()[-1].key == b"k"


def test_a_message_of_the_largest_size_can_always_be_written() -> None:
    for columns in [
        {"value": bytes(1000)},
        {"value": b"", "key": bytes(1000)},
        {"value": b"", "headers": {"h": bytes(999)}},
        {"value": bytes(990), "key": b"k", "timestamp": 1, "expires_at": 2, "dedup_id": "123456789"},
    ]:
        (frame,) = encoded(entry(**columns))  # type: ignore[arg-type]
        assert len(frame) == 1


def test_a_message_of_too_many_headers_is_refused_before_it_is_taken() -> None:
    settings = StorageSettings(
        message_bytes_max=100_000, batch_bytes=1000, frame_bytes_max=104_096, frame_raw_bytes_max=104_096
    )
    headers = {f"{n:04}": b"" for n in range(10_000)}
    with pytest.raises(MessageTooLarge) as refused:
        checked_entry(b"", None, headers, None, None, None, settings)
    assert refused.value.setting == "frame_raw_bytes_max"
    fewer = dict.fromkeys(list(headers)[:8600], b"")
    taken = checked_entry(b"", None, fewer, None, None, None, settings)
    assert len(encoded(taken, settings=settings)) == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"key": b"k"},
        {"headers": {"n": b"v"}},
        {"headers": {}},
        {"timestamp": 3},
        {"expires_at": 9},
        {"dedup_id": "x"},
        {"key": b"", "headers": {"n": b"v"}, "timestamp": -3, "expires_at": 0, "dedup_id": ""},
    ],
    ids=repr,
)
def test_a_message_alone_is_what_it_would_be_among_others(columns: dict[str, Any], codec: Codec) -> None:
    value, rest = entry(b"value" * 20, **columns)
    alone = Frame.parse(lone_frame(value, rest, codec).at(0, 7))
    (gathered,) = EntryBatch([(value, rest)]).frames(7, codec, NARROW)
    alone.validate()
    assert alone.records() == gathered.records()
