"""Ctrl-C, full disks and short files: whatever interrupts a log, it knows what it holds."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.faulty_disk import FaultyDisk

from quivermq.clock import SystemClock
from quivermq.disk import SystemDisk
from quivermq.errors import Corruption, DiskFull, MessageTooLarge, OffsetOutOfRange
from quivermq.frame import encode
from quivermq.log import Log, repair, verify
from quivermq.log.flusher import Flusher
from quivermq.segment import log_path
from quivermq.segment.index import Noter
from quivermq.settings import Durability, StorageSettings

OS = StorageSettings(durability="os")
COLUMNS_OF_999_BYTES: list[dict[str, Any]] = [
    {"keys": [b"k" * 999]},
    {"headers": [{"n" * 500: b"v" * 499}]},
    {"dedup_ids": ["x" * 999]},
]


def _append_and_flush(log: Log, value: bytes) -> None:
    log.append(value)
    log.flush()


@pytest.mark.parametrize(
    ("durability", "append"),
    [
        ("os", lambda log, value: log.append_many([value])),
        ("os", Log.append),
        ("buffered", _append_and_flush),
    ],
    ids=["a batch", "a message", "the buffer"],
)
def test_an_interruption_behind_the_write_leaves_no_frame_behind_the_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    durability: Durability,
    append: Callable[[Log, bytes], object],
) -> None:
    real: Callable[..., None] = Noter.__call__

    def interrupted(*arguments: object) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    with Log(tmp_path, StorageSettings(durability=durability)) as log:
        log.append(b"first")
        log.flush()
        monkeypatch.setattr(Noter, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            append(log, b"second")
        monkeypatch.undo()
        log.append(b"third")
        log.flush()
        expected = [b"first", b"third"] if durability == "os" else [b"first", b"second", b"third"]
        assert [record.value for record in log.records()] == expected
        assert [record.offset for record in log.records()] == list(range(len(expected)))
        assert log.end == len(expected)
    assert verify(tmp_path).findings == []


def test_offsets_that_were_synced_and_are_gone_never_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Log(tmp_path, OS) as log:
        for value in (b"a", b"b", b"c"):
            log.append(value)
        positions = [found.header.frame_bytes for found in log.frames()]
    path = log_path(tmp_path, 0)
    path.write_bytes(path.read_bytes()[: positions[0] + 10])
    with caplog.at_level(logging.ERROR), Log(tmp_path, OS) as log:
        assert log.end == 3
        assert log.append(b"d") == 3
        assert [(record.offset, record.value) for record in log.records()] == [(0, b"a"), (3, b"d")]
    assert "offsets [1, 3) are gone" in caplog.text
    (gap,) = verify(tmp_path).findings
    assert (gap.kind, gap.offsets) == ("gap", (1, 3))


def test_a_full_disk_does_not_keep_retention_from_making_room() -> None:
    disk = FaultyDisk()
    settings = StorageSettings(durability="buffered", segment_messages=1, segments_max=1, batch_messages=10)
    log = Log(Path("/log"), settings, disk=disk)
    for value in (b"a", b"b", b"c"):
        log.append(value, durability="os")
    log.append(b"d")
    disk.fill_after(0)
    with pytest.raises(DiskFull):
        log.flush()
    assert log.retain().segments == 2
    log.close()
    assert [record.value for record in log.records()] == [b"c", b"d"]


def test_one_broken_callback_does_not_end_the_background_thread() -> None:
    flusher = Flusher(SystemClock())
    called = threading.Event()

    def fails() -> None:
        raise MemoryError

    flusher.schedule(0, fails)
    flusher.schedule(0, called.set)
    assert called.wait(timeout=30)
    flusher.close()


def test_a_key_counts_as_part_of_its_message(tmp_path: Path) -> None:
    settings = StorageSettings(message_bytes_max=1000)
    with Log(tmp_path, settings) as log:
        for columns in COLUMNS_OF_999_BYTES:
            log.append_many([b"v"], **columns)
            with pytest.raises(MessageTooLarge) as caught:
                log.append_frame(encode([b"vv"], timestamp=1, **columns))
            assert caught.value.size_bytes == 1001


def test_a_log_can_be_cut_where_it_is_damaged(tmp_path: Path) -> None:
    with Log(tmp_path, OS) as log:
        for value in (b"a", b"b", b"c"):
            log.append(value)
        size = log.segments[0].end // 3
    path = log_path(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[size + 90] ^= 1
    path.write_bytes(data)
    with Log(tmp_path, OS) as log:
        log.truncate(1)
        assert log.append(b"d") == 1
        assert [record.value for record in log.records()] == [b"a", b"d"]
    assert verify(tmp_path).is_sound


def test_readers_of_a_log_that_is_being_cut_see_no_damage(tmp_path: Path) -> None:
    disk = SystemDisk()
    with Log(tmp_path, StorageSettings(durability="os", segment_messages=4), disk=disk) as log:
        stop, errors = threading.Event(), []

        def read() -> None:
            while not stop.is_set():
                try:
                    list(log.records())
                except OffsetOutOfRange:
                    pass
                except BaseException as error:
                    errors.append(error)
                    return

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(60):
            log.append_many([b"x" * 50] * 3)
            log.append_many([b"y" * 50] * 3)
            log.truncate(1)
        stop.set()
        for reader in readers:
            reader.join()
        assert errors == []
        assert len(list(log.records())) == 1


@pytest.mark.parametrize("byte", [4, 20, 90])
def test_rot_in_the_last_frame_of_a_closed_log_is_damage_and_not_a_torn_tail(
    tmp_path: Path, byte: int
) -> None:
    with Log(tmp_path, OS) as log:
        for value in (b"a", b"b", b"c"):
            log.append(value)
        size = log.segments[0].end
    path = log_path(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[size // 3 * 2 + byte] ^= 1
    path.write_bytes(data)
    for expected in (3, 4):
        with Log(tmp_path, OS) as log:
            assert log.append(b"more") == expected
            with pytest.raises(Corruption) as caught:
                list(log.records())
            assert caught.value.offsets == (2, 3)
    assert repair(tmp_path).mended[0].offsets == (2, 3)
    with Log(tmp_path, OS) as log:
        assert [record.value for record in log.records()] == [b"a", b"b", b"more", b"more"]


def test_a_log_that_has_no_offsets_left_refuses_and_closes(tmp_path: Path) -> None:
    last = 2**63 - 8
    SystemDisk().create(log_path(tmp_path, last)).close()
    with Log(tmp_path, OS) as log:
        assert log.append_many([b"x"] * 5) == last
        with pytest.raises(OffsetOutOfRange):
            log.append_many([b"y"] * 5)
        assert [record.value for record in log.records()] == [b"x"] * 5
    assert verify(tmp_path).is_sound
