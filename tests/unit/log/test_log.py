"""Appending and what comes back: every way in, every durability, every column."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from crc32c import crc32c
from support.faulty_disk import FaultyDisk
from support.logs import Logs, offsets, values
from support.threads import wait_until

from quivermq.errors import (
    Closing,
    DiskFull,
    InvalidFrame,
    InvalidRequest,
    MessageTooLarge,
    UnsupportedFrame,
)
from quivermq.frame import Codec, Flag, Frame, Producer, encode, encode_control
from quivermq.log import Log
from quivermq.model.messages import Record
from quivermq.settings import Durability, StorageSettings

DURABILITIES = get_args(Durability)
COLUMNS: list[dict[str, Any]] = [
    {},
    {"key": b"k"},
    {"key": b""},
    {"headers": {"a": b"1", "ü": b""}},
    {"headers": {}},
    {"timestamp": 5},
    {"timestamp": -(2**63) + 1},
    {"expires_at": 2**63 - 1},
    {"dedup_id": "x"},
    {"dedup_id": ""},
    {"key": b"k", "headers": {"b": b"2"}, "timestamp": 7, "expires_at": 9, "dedup_id": "ü"},
]


def record(log: Logs, offset: int, value: bytes, columns: dict[str, Any]) -> Record:
    """What a message looks like when it is read."""
    defaults: dict[str, Any] = {
        "timestamp": log.clock.now_us(),
        "key": None,
        "headers": {},
        "expires_at": None,
        "dedup_id": None,
    }
    return Record(offset=offset, value=value, **defaults | columns)


# One message


@pytest.mark.parametrize("durability", DURABILITIES)
def test_single_messages_come_back_with_everything_they_had(logs: Logs, durability: Durability) -> None:
    log = logs.open()
    for offset, columns in enumerate(COLUMNS):
        assert log.append(b"%d" % offset, durability=durability, **columns) == offset
    expected = [record(logs, n, b"%d" % n, columns) for n, columns in enumerate(COLUMNS)]
    assert list(log.records()) == expected
    log.close()
    assert list(logs.open().records()) == expected


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_settings_say_how_durable_a_message_is(faulty_logs: Logs, durability: Durability) -> None:
    log = faulty_logs.open(durability=durability)
    log.append(b"x")
    disk = faulty_logs.disk
    assert isinstance(disk, FaultyDisk)
    after_kill = Logs(faulty_logs.path, disk.after_kill()).open()
    after_power_loss = Logs(faulty_logs.path, disk.after_power_loss(keep="nothing")).open()
    assert len(values(after_kill)) == (durability in ("fsync", "os"))
    assert len(values(after_power_loss)) == (durability == "fsync")


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("default", DURABILITIES)
def test_a_call_overrules_the_settings(
    faulty_logs: Logs, faulty_disk: FaultyDisk, default: Durability, durability: Durability
) -> None:
    log = faulty_logs.open(durability=default)
    ways: list[Callable[[], int]] = [
        lambda: log.append(b"x", durability=durability),
        lambda: log.append_many([b"x"], durability=durability),
        lambda: log.append_frame(encode([b"x"], timestamp=0), durability=durability),
    ]
    for count, way in enumerate(ways, start=1):
        assert way() == count - 1
        assert (log.synced_end == count) == (durability == "fsync")
        after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing")).open()
        assert len(values(after)) == (count if durability == "fsync" else 0)


@pytest.mark.parametrize("way", ["append", "append_many", "append_frame"])
def test_a_word_that_promises_nothing_is_refused(logs: Logs, way: str) -> None:
    log = logs.open()
    given: Any = {"append": b"x", "append_many": [b"x"], "append_frame": encode([b"x"], timestamp=0)}[way]
    with pytest.raises(InvalidRequest, match="durability is one of fsync, os, buffered, not 'fysnc'"):
        getattr(log, way)(given, durability="fysnc")
    assert log.end == 0


def test_what_a_caller_changes_afterwards_is_not_in_the_log(logs: Logs) -> None:
    log = logs.open(durability="buffered")
    value, key, headers = bytearray(b"value"), bytearray(b"key"), {"a": bytearray(b"1")}
    log.append(value, key=key, headers=headers)  # type: ignore[arg-type]
    value[:] = key[:] = b"?"
    headers["a"][:] = b"?"
    headers["b"] = bytearray()
    (message,) = log.records()
    assert (message.value, message.key, message.headers) == (b"value", b"key", {"a": b"1"})


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "text"},
        {"value": 5},
        {"value": None},
        {"value": b"", "key": "text"},
        {"value": b"", "headers": [("a", b"1")]},
        {"value": b"", "headers": {"a": "text"}},
        {"value": b"", "headers": {b"a": b"1"}},
        {"value": b"", "headers": {"\ud800": b"1"}},
        {"value": b"", "timestamp": 1.5},
        {"value": b"", "timestamp": True},
        {"value": b"", "timestamp": 2**63},
        {"value": b"", "timestamp": -(2**63)},
        {"value": b"", "expires_at": "soon"},
        {"value": b"", "expires_at": 2**64},
        {"value": b"", "dedup_id": b"bytes"},
        {"value": b"", "dedup_id": "\udfff"},
        {"value": memoryview(b"12345678").cast("Q")[::2]},
    ],
)
def test_a_message_that_cannot_be_written_spoils_no_other(
    logs: Logs, durability: Durability, wrong: dict[str, Any]
) -> None:
    log = logs.open(durability=durability)
    log.append(b"before")
    given = dict(wrong)
    if isinstance(given["value"], memoryview):
        # Not contiguous, and yet bytes: it is taken as it is.
        log.append(given.pop("value"))
    else:
        with pytest.raises(InvalidRequest):
            log.append(given.pop("value"), **given)
    log.append(b"after")
    assert values(log)[0] == b"before"
    assert values(log)[-1] == b"after"


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_size_of_a_message_is_all_of_it(logs: Logs, durability: Durability) -> None:
    log = logs.open(durability=durability, message_bytes_max=100)
    fits: list[dict[str, Any]] = [
        {"value": bytes(100)},
        {"value": bytes(50), "key": bytes(50)},
        {"value": bytes(50), "headers": {"ü": bytes(48)}},
        {"value": bytes(50), "dedup_id": "x" * 50},
        {"value": bytearray(100)},
    ]
    for columns in fits:
        log.append(**columns)
        with pytest.raises(MessageTooLarge) as refused:
            log.append(**columns | {"value": bytes(columns["value"]) + b"!"})
        assert (refused.value.size_bytes, refused.value.limit_bytes) == (101, 100)
        assert refused.value.setting == "message_bytes_max"
    assert log.end == len(values(log)) == len(fits)


# A batch


def test_a_batch_comes_back_with_everything_it_had(logs: Logs) -> None:
    log = logs.open()
    producer = Producer(producer_id=7, epoch=2, base_sequence=30)
    offset = log.append_many(
        [b"a", b"b", b"c"],
        timestamp=[3, 1, 2],
        keys=[b"k", None, b""],
        headers=[{"h": b"1"}, None, {}],
        expires_at=[None, 5, None],
        dedup_ids=[None, "d", None],
        producer=producer,
    )
    assert offset == 0
    assert list(log.records()) == [
        Record(0, 3, b"k", b"a", {"h": b"1"}, None, None),
        Record(1, 1, None, b"b", {}, 5, "d"),
        Record(2, 2, b"", b"c", {}, None, None),
    ]
    (frame,) = log.frames()
    header = frame.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 30)
    assert header.append_time == logs.clock.now_us()


def test_a_batch_without_times_has_the_time_of_now(logs: Logs) -> None:
    log = logs.open()
    log.append_many([b"a", b"b"])
    logs.clock.advance(1)
    log.append_many([b"c"])
    now_us = logs.clock.now_us()
    assert [r.timestamp for r in log.records()] == [now_us - 1_000_000] * 2 + [now_us]


@pytest.mark.parametrize(
    ("batch", "columns"),
    [
        ([], {}),
        ([b"a", "text"], {}),
        ([b"a"], {"keys": []}),
        ([b"a"], {"timestamp": [1, 2]}),
        ([b"a"], {"headers": [{"a": 1}]}),
        ([b"a"], {"expires_at": [2**64]}),
        ([b"a"], {"dedup_ids": [b"x"]}),
    ],
)
def test_a_batch_is_taken_as_a_whole_or_not_at_all(logs: Logs, batch: Any, columns: dict[str, Any]) -> None:
    log = logs.open()
    with pytest.raises(InvalidRequest):
        log.append_many(batch, **columns)
    assert (log.end, values(log)) == (0, [])


SMALL: dict[str, Any] = {
    "message_bytes_max": 1000,
    "batch_bytes": 1000,
    "frame_bytes_max": 6000,
    "frame_raw_bytes_max": 8000,
}


def test_a_batch_keeps_to_the_limits(logs: Logs) -> None:
    log = logs.open(**SMALL)
    log.append_many([bytes(1000), bytes(1000)])
    for batch, setting in [
        ([bytes(1001)], "message_bytes_max"),
        ([bytes(10), bytes(1001), bytes(10)], "message_bytes_max"),
        ([bytes(990)] * 6, "frame_bytes_max"),
        ([bytes(990)] * 9, "frame_raw_bytes_max"),
    ]:
        with pytest.raises(MessageTooLarge) as refused:
            log.append_many(batch)
        assert refused.value.setting == setting
        assert refused.value.size_bytes > refused.value.limit_bytes == SMALL[setting]
    assert log.end == 2


def test_a_batch_that_compresses_well_keeps_to_the_limit_of_the_raw_one(logs: Logs) -> None:
    log = logs.open(codec="zstd", **SMALL)
    log.append_many([bytes(900)] * 7)
    with pytest.raises(MessageTooLarge) as refused:
        log.append_many([bytes(900)] * 9)
    assert refused.value.setting == "frame_raw_bytes_max"
    with pytest.raises(MessageTooLarge) as refused:
        log.append_many([bytes(1001)])
    assert refused.value.setting == "message_bytes_max"


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4", "gzip"])
def test_every_codec_comes_back(logs: Logs, codec: str) -> None:
    log = logs.open(codec=codec)
    batch = [b"the same words " * 20, b"", b"the same words " * 20]
    log.append_many(batch)
    log.append(batch[0])
    assert values(log) == [*batch, batch[0]]
    assert {Codec(frame.header.codec) for frame in log.frames()} == {Codec[codec.upper()]}


# A frame


def test_a_frame_is_taken_in_as_it_is_but_for_its_stamp(logs: Logs) -> None:
    log = logs.open()
    log.append(b"first")
    frame = encode([b"a", b"b"], timestamp=[5, 6], codec=Codec.ZSTD).stamped(99, 1, leader_epoch=3)
    assert log.append_frame(bytes(frame)) == 1
    assert log.append_frame(memoryview(bytes(frame))) == 3
    assert log.append_frame(frame) == 5
    _, *taken = log.frames()
    assert [bytes(each.stored) for each in taken] == [bytes(frame.stored)] * 3
    assert offsets(taken) == [(1, 3), (3, 5), (5, 7)]
    for each in taken:
        stamp = {
            "base_offset": each.header.base_offset,
            "append_time": logs.clock.now_us(),
            "leader_epoch": 0,
        }
        assert each.header == frame.header._replace(**stamp)


def forged(frame: Frame, body: bytes, **fields: Any) -> bytes:
    header = frame.header._replace(body_crc=crc32c(body), stored_bytes=len(body), **fields)
    return bytes(Frame(header, body))


GOOD = encode([b"abc", b"d"], timestamp=1)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", InvalidFrame),
        (bytes(GOOD)[:-1], InvalidFrame),
        (bytes(GOOD) + b"\0", InvalidFrame),
        (bytes(GOOD) * 2, InvalidFrame),
        (b"?" + bytes(GOOD)[1:], InvalidFrame),
        (bytes(GOOD)[:-3] + b"?" + bytes(GOOD)[-2:], InvalidFrame),
        (forged(GOOD, b"\x01" + bytes(GOOD.stored)[1:]), InvalidFrame),
        (bytes(encode_control(b"{}", count=1, timestamp=0)), InvalidFrame),
        (encode_control(b"{}", count=1, timestamp=0), InvalidFrame),
        (forged(GOOD, bytes(GOOD.header.raw_bytes + 28), flags=int(Flag.ENCRYPTED)), UnsupportedFrame),
    ],
)
def test_a_frame_from_outside_is_checked_to_the_bone(
    logs: Logs, data: Any, error: type[InvalidFrame]
) -> None:
    log = logs.open()
    with pytest.raises(error):
        log.append_frame(data)
    assert log.end == 0


def test_a_frame_from_outside_keeps_to_the_limits(logs: Logs) -> None:
    log = logs.open(**SMALL)
    with pytest.raises(InvalidFrame, match="the limit is 6000"):
        log.append_frame(bytes(encode([bytes(990)] * 6, timestamp=0)))
    with pytest.raises(MessageTooLarge):
        log.append_frame(encode([bytes(990)] * 6, timestamp=0))
    with pytest.raises(MessageTooLarge):
        log.append_frame(bytes(encode([bytes(1001)], timestamp=0)))
    with pytest.raises(InvalidFrame, match="the limit is 8000"):
        log.append_frame(bytes(encode([bytes(900)] * 20, timestamp=0, codec=Codec.ZSTD)))
    assert log.append_frame(bytes(encode([bytes(1000)], timestamp=0))) == 0


# Offsets


def test_offsets_are_contiguous_whatever_the_way_in(logs: Logs) -> None:
    log = logs.open()
    expected = 0
    for durability in DURABILITIES * 2:
        assert log.append(b"1", durability=durability) == expected
        assert log.append_many([b"2", b"3"], durability=durability) == expected + 1
        assert (
            log.append_frame(encode([b"4", b"5", b"6"], timestamp=0), durability=durability) == expected + 3
        )
        expected += 6
        assert log.end == expected
    assert [r.offset for r in log.records()] == list(range(expected))
    assert b"".join(values(log)) == b"123456" * 6
    covered = [
        offset
        for frame in log.frames()
        for offset in range(frame.header.base_offset, frame.header.end_offset)
    ]
    assert covered == list(range(expected))


# What is only buffered


def test_what_is_only_buffered_can_be_read(logs: Logs) -> None:
    log = logs.open(durability="buffered")
    for n in range(3):
        log.append(b"%d" % n, timestamp=n)
    assert (log.start, log.end, log.size_bytes) == (0, 3, 0)
    assert values(log, 1) == [b"1", b"2"]
    log.append(b"3", timestamp=3)
    assert log.find_time(3) == 3
    log.append(b"4", timestamp=4)
    assert [len(frame) for frame in log.read(3)] == [1, 1]


def test_buffered_messages_become_one_frame_when_they_have_lingered(logs: Logs) -> None:
    log = logs.open(durability="buffered", linger_ms=5)
    for n in range(3):
        log.append(b"%d" % n)
    logs.clock.advance(0.0049)
    assert logs.scheduler.run_due() == 0
    assert log.size_bytes == 0
    logs.clock.advance(0.0001)
    logs.scheduler.run_due()
    assert log.size_bytes > 0
    assert offsets(log.frames()) == [(0, 3)]
    # The next message begins to linger anew.
    log.append(b"3")
    logs.clock.advance(0.005)
    logs.scheduler.run_due()
    assert offsets(log.frames()) == [(0, 3), (3, 4)]


def test_a_full_buffer_is_written_before_more_is_taken(logs: Logs) -> None:
    log = logs.open(durability="buffered", batch_messages=3)
    for n in range(7):
        log.append(b"%d" % n)
    assert offsets(logs.follow().frames()) == [(0, 3), (3, 6)]
    assert offsets(log.frames()) == [(0, 3), (3, 6), (6, 7)]


def test_a_buffer_of_many_bytes_is_written_before_more_is_taken(logs: Logs) -> None:
    log = logs.open(durability="buffered", **SMALL)
    for _ in range(5):
        log.append(bytes(400))
    # It holds what makes it full, and is then divided into frames of at most 1000 bytes.
    assert offsets(logs.follow().frames()) == [(0, 2), (2, 3)]
    log.flush()
    assert offsets(log.frames()) == [(0, 2), (2, 3), (3, 5)]


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("column", ["key", "headers", "dedup_id"])
def test_what_is_large_beside_the_value_does_not_spoil_a_frame(
    logs: Logs, durability: Durability, column: str
) -> None:
    large = {"key": bytes(900), "headers": {"h": bytes(900)}, "dedup_id": "x" * 900}[column]
    log = logs.open(durability=durability, **SMALL)
    for n in range(30):
        assert log.append(b"%d" % n, **{column: large}) == n  # type: ignore[arg-type]
    assert values(log) == [b"%d" % n for n in range(30)]


def test_many_small_headers_do_not_spoil_a_frame(logs: Logs) -> None:
    # Each name and value needs eight bytes more in the frame than the message says.
    log = logs.open(durability="buffered", **SMALL)
    headers = {f"{n:02}": b"" for n in range(99)}
    for n in range(30):
        log.append(b"%d" % n, headers=headers)
    assert values(log) == [b"%d" % n for n in range(30)]


def test_flush_and_sync_write_what_is_buffered(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="buffered")
    log.append(b"a")
    log.flush()
    assert values(faulty_logs.follow()) == [b"a"]
    assert log.synced_end == 0
    log.append(b"b")
    log.sync()
    assert log.synced_end == 2
    after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing")).open()
    assert values(after) == [b"a", b"b"]


@pytest.mark.parametrize("durability", ["os", "buffered"])
def test_the_interval_makes_everything_safe_from_power_loss(
    faulty_logs: Logs, faulty_disk: FaultyDisk, durability: Durability
) -> None:
    log = faulty_logs.open(durability=durability, fsync_interval_ms=1000, linger_ms=5)
    log.append(b"a")
    faulty_logs.clock.advance(0.9)
    faulty_logs.scheduler.run_due()
    log.append(b"b")
    assert log.synced_end == 0
    faulty_logs.clock.advance(1.0)
    faulty_logs.scheduler.run_due()
    assert log.synced_end >= 1
    faulty_logs.clock.advance(1.0)
    faulty_logs.scheduler.run_due()
    assert log.synced_end == 2
    after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing")).open()
    assert values(after) == [b"a", b"b"]


def test_an_idle_log_is_left_alone(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open()
    log.append(b"a")
    for _ in range(3):
        faulty_logs.clock.advance(1)
        faulty_logs.scheduler.run_due()
    before = faulty_disk.steps
    faulty_logs.clock.advance(100)
    assert faulty_logs.scheduler.run_due() == 0
    assert faulty_disk.steps == before


# Closing


def test_closing_writes_and_syncs_everything(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="buffered", segment_messages=1)
    for n in range(3):
        log.append(b"%d" % n)
        log.flush()
    log.append(b"3")
    log.close()
    after = Logs(faulty_logs.path, faulty_disk.after_power_loss(keep="nothing")).open()
    assert values(after) == [b"0", b"1", b"2", b"3"]


def test_after_a_clean_close_opening_writes_nothing(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(segment_messages=2)
    for n in range(5):
        log.append(b"%d" % n)
    log.close()
    before = faulty_disk.files()
    steps = faulty_disk.steps
    again = faulty_logs.open(segment_messages=2)
    changes = {step.operation for step in faulty_disk.history[steps:]}
    assert changes <= {"sync_directory"}
    again.close()
    assert faulty_disk.files() == before


def test_closing_twice_is_allowed(logs: Logs) -> None:
    log = logs.open()
    log.append(b"x")
    log.close()
    log.close()
    with logs.open() as again:
        assert values(again) == [b"x"]
    again.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda log: log.append(b"x", durability="fsync"),
        lambda log: log.append(b"x", durability="os"),
        lambda log: log.append(b"x", durability="buffered"),
        lambda log: log.append_many([b"x"]),
        lambda log: log.append_frame(encode([b"x"], timestamp=0)),
        lambda log: log.flush(),
        lambda log: log.sync(),
        lambda log: log.retain(),
        lambda log: log.truncate(0),
    ],
)
def test_a_closed_log_takes_nothing(logs: Logs, use: Callable[[Log], object]) -> None:
    log = logs.open()
    log.append(b"a")
    log.close()
    told = []
    for _ in range(2):
        with pytest.raises(Closing, match="was closed") as refused:
            use(log)
        told.append(refused.value)
    assert told[0] is not told[1]
    assert logs.follow().end == 1


def test_what_was_due_when_the_log_was_closed_happens_no_more(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    log = faulty_logs.open(durability="buffered")
    log.append(b"a")
    log.close()
    steps = faulty_disk.steps
    faulty_logs.clock.advance(10)
    assert faulty_logs.scheduler.run_due() > 0
    assert faulty_disk.steps == steps


def test_closing_with_no_room_keeps_what_is_buffered(faulty_logs: Logs, faulty_disk: FaultyDisk) -> None:
    log = faulty_logs.open(durability="buffered")
    log.append(b"a")
    faulty_disk.fill_after(0)
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.close()
    log.append(b"b")
    faulty_disk.fill_after(None)
    log.close()
    assert values(faulty_logs.follow()) == [b"a", b"b"]


def test_a_log_has_a_scheduler_of_its_own_and_ends_it(tmp_path: Path) -> None:
    before = threading.active_count()
    log = Log(tmp_path / "log", replace(StorageSettings(), durability="buffered"))
    log.append(b"a")
    # Another thread starts it, and may not have come to it yet.
    wait_until(lambda: threading.active_count() == before + 1)
    log.close()
    assert threading.active_count() == before
    with Log(str(tmp_path / "log"), StorageSettings()) as again:
        assert values(again) == [b"a"]


# Opening


def test_a_new_log_is_empty(logs: Logs) -> None:
    log = logs.open()
    assert (log.start, log.end, log.size_bytes, values(log), len(log.segments)) == (0, 0, 0, [], 1)
    assert (logs.path / "log").is_dir()


def test_a_log_that_is_opened_again_goes_on(logs: Logs) -> None:
    for n in range(4):
        with logs.open(segment_messages=2) as log:
            assert (log.end, log.synced_end) == (3 * n, 3 * n)
            for m in range(3):
                log.append(b"%d" % (3 * n + m))
    assert values(logs.open()) == [b"%d" % n for n in range(12)]


def test_other_files_in_the_directory_are_left_alone(logs: Logs) -> None:
    logs.open().close()
    other = logs.path / "log" / "notes.txt"
    other.write_text("mine")
    nested = logs.path / "log" / "sub"
    nested.mkdir()
    logs.open().close()
    assert other.read_text() == "mine"
    assert nested.is_dir()
    assert [each.base_offset for each in logs.open().segments] == [0]
