"""Every kind of finding, by file, bytes and offsets; and nothing changed by looking."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.damage import cut, flip, insert, overwrite, remove
from support.faulty_disk import FaultyDisk
from support.logs import Logs, tree
from support.remote import RemoteLog
from support.segments import frame_at
from support.threads import PATIENCE_S, start

from quivermq.disk import SystemDisk
from quivermq.errors import NotFound, StorageFailed, UnsupportedFrame
from quivermq.frame import HEADER_BYTES
from quivermq.log import LogFinding, LogFollower, repair, total_bytes, verify
from quivermq.log import directory as directory_module
from quivermq.segment.index import SparseIndex
from quivermq.settings import StorageSettings

EVERY: dict[str, Any] = {"index_interval_bytes": 1}
FRAME_BYTES = 96
DAMAGES = pytest.mark.damages


def filled(logs: Logs, name: str = "log", **settings: Any) -> Path:
    """Twelve messages, one a frame, four a segment, closed in order; the directory of the log."""
    with logs.open(name, **EVERY | {"segment_messages": 4} | settings) as log:
        for n in range(12):
            log.append_many([b"%d" % n], timestamp=n)
    return log.directory


def log_file(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.log"


def index_file(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.idx"


Told = tuple[str, str, tuple[int, int], tuple[int, int | None]]


def told(logs: Logs) -> list[Told]:
    """Kind, file, bytes and offsets of every finding."""
    return [(f.kind, f.path.name, (f.position, f.end), f.offsets) for f in logs.verify(**EVERY).findings]


def frames(first: int, last: int) -> tuple[int, int]:
    """The bytes of the frames [first, last) of a segment."""
    return first * FRAME_BYTES, last * FRAME_BYTES


# What is sound


def test_a_sound_log_is_counted(logs: Logs) -> None:
    filled(logs)
    filled(logs, "topics/other/p0")
    report = logs.verify()
    assert report.is_sound
    assert report.findings == []
    assert (report.logs, report.segments, report.frames, report.messages) == (2, 6, 24, 24)
    assert report.bytes == 24 * FRAME_BYTES == total_bytes(logs.path)


def test_verification_begins_anywhere(logs: Logs) -> None:
    filled(logs, "a/b")
    filled(logs, "a/c")
    assert [verify(logs.path / part).logs for part in ("", "a", "a/b")] == [2, 2, 1]
    assert verify(str(logs.path)).logs == 2


def test_there_is_nothing_wrong_with_nothing(tmp_path: Path) -> None:
    report = verify(tmp_path)
    assert (report.is_sound, report.logs, report.bytes) == (True, 0, 0)
    assert total_bytes(tmp_path) == 0


def test_a_directory_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        verify(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_messages_are_counted_and_not_frames(logs: Logs) -> None:
    with logs.open() as log:
        log.append_many([b"x"] * 5)
        log.append(b"y")
    report = logs.verify()
    assert (report.frames, report.messages) == (2, 6)


def test_progress_adds_up_to_the_bytes(logs: Logs) -> None:
    filled(logs)
    steps: list[int] = []
    verify(logs.path, progress=steps.append)
    assert sum(steps) == total_bytes(logs.path)
    assert len(steps) == 12


@DAMAGES
def test_progress_adds_up_over_damage(logs: Logs) -> None:
    directory = filled(logs)
    flip(log_file(directory, 0), FRAME_BYTES)
    overwrite(log_file(directory, 4), 0, bytes(4 * FRAME_BYTES))
    log_file(directory, 8).write_bytes(log_file(directory, 8).read_bytes() + b"torn")
    steps: list[int] = []
    verify(logs.path, progress=steps.append)
    assert sum(steps) == total_bytes(logs.path)


# Damage


@DAMAGES
@pytest.mark.parametrize("where", [0, 5, 40, HEADER_BYTES, FRAME_BYTES - 1])
@pytest.mark.parametrize("base", [0, 4, 8])
@pytest.mark.parametrize("number", range(4))
def test_each_damaged_frame_is_told(logs: Logs, base: int, number: int, where: int) -> None:
    directory = filled(logs)
    flip(log_file(directory, base), number * FRAME_BYTES + where)
    offset = base + number
    assert told(logs) == [("damage", f"{base:020}.log", frames(number, number + 1), (offset, offset + 1))]
    report = logs.verify(**EVERY)
    assert not report.is_sound
    assert (report.frames, report.messages) == (11, 11)
    assert report.findings[0].reason


@DAMAGES
def test_several_ranges_are_told_one_by_one(logs: Logs) -> None:
    directory = filled(logs)
    for base, number in [(0, 0), (0, 2), (4, 1), (4, 2), (8, 0), (8, 3)]:
        flip(log_file(directory, base), number * FRAME_BYTES + 20)
    assert told(logs) == [
        ("damage", f"{0:020}.log", frames(0, 1), (0, 1)),
        ("damage", f"{0:020}.log", frames(2, 3), (2, 3)),
        ("damage", f"{4:020}.log", frames(1, 3), (5, 7)),
        ("damage", f"{8:020}.log", frames(0, 1), (8, 9)),
        ("damage", f"{8:020}.log", frames(3, 4), (11, 12)),
    ]


Break = Callable[[Path], None]


@DAMAGES
@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        # A file that lost its end, or all of it.
        (lambda d: cut(log_file(d, 4), 200), ("damage", 4, (192, 200), (6, 8))),
        (lambda d: cut(log_file(d, 4), 192), ("damage", 4, (192, 192), (6, 8))),
        (lambda d: cut(log_file(d, 4), 0), ("damage", 4, (0, 0), (4, 8))),
        (lambda d: log_file(d, 4).unlink(), ("damage", 0, (384, 384), (4, 8))),
        # A file of something else.
        (lambda d: overwrite(log_file(d, 4), 0, bytes(384)), ("damage", 4, (0, 384), (4, 8))),
        (lambda d: log_file(d, 4).write_bytes(b"\xff" * 99), ("damage", 4, (0, 99), (4, 8))),
        # A frame that is missing, is there twice, or stands in the wrong place.
        (lambda d: remove(log_file(d, 4), 96, 192), ("damage", 4, (96, 96), (5, 6))),
        (lambda d: remove(log_file(d, 4), 0, 96), ("damage", 4, (0, 0), (4, 5))),
        (lambda d: remove(log_file(d, 4), 288, 384), ("damage", 4, (288, 288), (7, 8))),
        (
            lambda d: insert(log_file(d, 4), 96, log_file(d, 4).read_bytes()[:96]),
            ("damage", 4, (96, 192), (5, 5)),
        ),
        # Garbage in between, before and behind.
        (lambda d: insert(log_file(d, 4), 96, b"\xff" * 40), ("damage", 4, (96, 136), (5, 5))),
        (lambda d: insert(log_file(d, 4), 0, b"\xff" * 40), ("damage", 4, (0, 40), (4, 4))),
        (lambda d: insert(log_file(d, 4), 384, b"\xff" * 40), ("damage", 4, (384, 424), (8, 8))),
        # The end of the log, which its index says was durable.
        (lambda d: cut(log_file(d, 8), 200), ("damage", 8, (192, 200), (10, 12))),
        (lambda d: cut(log_file(d, 8), 192), ("damage", 8, (192, 192), (10, 12))),
        (lambda d: cut(log_file(d, 8), 0), ("damage", 8, (0, 0), (8, 12))),
        (lambda d: overwrite(log_file(d, 8), 0, bytes(384)), ("damage", 8, (0, 384), (8, 12))),
        (lambda d: overwrite(log_file(d, 8), 288, bytes(96)), ("damage", 8, (288, 384), (11, 12))),
        (lambda d: log_file(d, 8).write_bytes(b"\xff" * 9), ("damage", 8, (0, 9), (8, 12))),
    ],
)
def test_every_kind_of_damage(logs: Logs, break_it: Break, expected: tuple[str, int, Any, Any]) -> None:
    directory = filled(logs)
    break_it(directory)
    before = list(tree(logs.path))
    kind, base, span, offsets = expected
    findings = [finding for finding in told(logs) if finding[0] != "index"]
    assert findings == [(kind, f"{base:020}.log", span, offsets)]
    assert not logs.verify(**EVERY).is_sound
    assert list(tree(logs.path)) == before


@DAMAGES
def test_segments_that_overlap_are_damage(logs: Logs) -> None:
    directory = filled(logs)
    log_file(directory, 6).write_bytes(b"".join(bytes(frame_at(n, b"x")) for n in (6, 7)))
    index_file(directory, 6).write_bytes(SparseIndex(6).encode())
    damages = [finding for finding in told(logs) if finding[0] == "damage"]
    assert damages == [("damage", f"{4:020}.log", frames(2, 4), (6, 6))]


@DAMAGES
def test_damage_is_told_of_the_log_that_has_it(logs: Logs) -> None:
    filled(logs, "a")
    flip(log_file(filled(logs, "b"), 4), 100)
    filled(logs, "c")
    report = logs.verify()
    assert [finding.path.parent.name for finding in report.findings] == ["b"]
    assert (report.logs, report.messages) == (3, 35)


@DAMAGES
def test_what_cannot_be_read_is_damage_and_the_rest_is_looked_at(
    faulty_logs: Logs, faulty_disk: FaultyDisk
) -> None:
    directory = filled(faulty_logs)
    filled(faulty_logs, "other")
    faulty_disk.fail_read(log_file(directory, 4), 100)
    report = faulty_logs.verify(**EVERY)
    assert not report.is_sound
    (finding,) = report.findings
    assert (finding.kind, finding.path) == ("damage", log_file(directory, 4))
    assert finding.offsets[0] == 4
    assert "Input/output error" in finding.reason
    assert report.messages == 20


# A torn tail


@pytest.mark.parametrize("torn", [b"t", bytes(FRAME_BYTES), bytes(frame_at(12, b"x"))[:-1]])
def test_a_torn_tail_is_told_and_is_no_damage(logs: Logs, torn: bytes) -> None:
    directory = filled(logs)
    size = 4 * FRAME_BYTES
    log_file(directory, 8).write_bytes(log_file(directory, 8).read_bytes() + torn)
    assert told(logs) == [("tail", f"{8:020}.log", (size, size + len(torn)), (12, None))]
    report = logs.verify()
    assert report.is_sound
    assert report.messages == 12


def test_what_was_not_synced_may_be_torn(logs: Logs, tmp_path: Path) -> None:
    log = logs.open(**EVERY)
    for n in range(2):
        log.append(b"%d" % n)
    log.sync()
    log.append(b"2")
    log.append(b"3")
    after = logs.after_kill(tmp_path / "after")
    path = log_file(after.path / "log", 0)
    cut(path, 3 * FRAME_BYTES - 1)
    assert told(after) == [("tail", path.name, (2 * FRAME_BYTES, 3 * FRAME_BYTES - 1), (2, None))]
    flip(path, 2 * FRAME_BYTES + 10)
    assert told(after) == [("tail", path.name, (2 * FRAME_BYTES, 3 * FRAME_BYTES - 1), (2, None))]


@DAMAGES
def test_without_an_index_nobody_knows_what_was_synced(logs: Logs) -> None:
    directory = filled(logs)
    index_file(directory, 8).unlink()
    flip(log_file(directory, 8), 3 * FRAME_BYTES + 10)
    assert told(logs) == [
        ("tail", f"{8:020}.log", frames(3, 4), (11, None)),
        ("index", f"{8:020}.idx", (0, 4 * FRAME_BYTES), (8, 11)),
    ]


# Gaps


def test_a_gap_is_told_and_is_no_damage(logs: Logs) -> None:
    directory = filled(logs)
    flip(log_file(directory, 4), FRAME_BYTES + HEADER_BYTES)
    repair(logs.path, clock=logs.clock)
    ((kind, name, (position, end), offsets),) = told(logs)
    assert (kind, name, position, offsets) == ("gap", f"{4:020}.log", FRAME_BYTES, (5, 6))
    assert end > position
    report = logs.verify()
    assert report.is_sound
    assert (report.frames, report.messages) == (12, 11)
    assert report.findings[0].reason == (
        f"the body's checksum does not match; set aside in {4:020}.96-192.bytes"
    )


# The index


@DAMAGES
@pytest.mark.parametrize("base", [0, 8])
@pytest.mark.parametrize("data", [None, b"", b"\xff" * 99, SparseIndex(1).encode()])
def test_an_index_that_cannot_be_read_is_told_and_is_no_damage(
    logs: Logs, base: int, data: bytes | None
) -> None:
    directory = filled(logs)
    path = index_file(directory, base)
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    assert told(logs) == [("index", path.name, (0, 4 * FRAME_BYTES), (base, base + 4))]
    report = logs.verify(**EVERY)
    assert report.is_sound
    assert report.findings[0].reason == "the index is missing or unreadable"


@DAMAGES
@pytest.mark.parametrize(
    ("entry", "position"),
    [((1, 0, 95), 95), ((2, 0, 96), 96), ((1, 0, 192), 192), ((1, -1, 96), 96), ((1, 7, 96), 96)],
)
def test_an_index_that_lies_is_told(logs: Logs, entry: tuple[int, int, int], position: int) -> None:
    directory = filled(logs)
    index = SparseIndex(0)
    index.add(*entry)
    index.add(4, 3, 384)
    index_file(directory, 0).write_bytes(index.encode())
    assert told(logs) == [("index", f"{0:020}.idx", (0, 384), (0, 4))]
    assert logs.verify(**EVERY).findings[0].reason == f"the index has a wrong entry for byte {position}"


def test_a_short_index_is_no_fault(logs: Logs) -> None:
    directory = filled(logs)
    cut(index_file(directory, 0), 64)
    cut(index_file(directory, 8), 70)
    assert told(logs) == []


@DAMAGES
def test_damage_does_not_make_the_index_wrong(logs: Logs) -> None:
    """The damaged frames had the largest timestamps, and entries of their own."""
    with logs.open(**EVERY) as log:
        for stamp in (1, 90, 80, 2, 3):
            log.append_many([b"x"], timestamp=stamp)
    path = log_file(log.directory, 0)
    for number in (1, 2):
        flip(path, number * FRAME_BYTES + 10)
    assert told(logs) == [("damage", path.name, frames(1, 3), (1, 3))]


@DAMAGES
def test_an_index_behind_damage_is_still_looked_at(logs: Logs) -> None:
    directory = filled(logs)
    flip(log_file(directory, 0), FRAME_BYTES + 10)
    for entry in [(3, 1, 2 * FRAME_BYTES), (2, -1, 2 * FRAME_BYTES)]:
        index = SparseIndex(0)
        index.add(*entry)
        index.add(4, 3, 384)
        index_file(directory, 0).write_bytes(index.encode())
        assert [finding[0] for finding in told(logs)] == ["damage", "index"]


@DAMAGES
def test_an_index_that_lies_says_nothing_of_what_was_synced(logs: Logs) -> None:
    directory = filled(logs)
    index = SparseIndex(8)
    index.add(10, 5, 100)
    index.add(40, 9, 4000)
    index_file(directory, 8).write_bytes(index.encode())
    assert [finding[0] for finding in told(logs)] == ["index"]


# Frames of other releases and of other settings


@DAMAGES
def test_a_frame_of_the_future_is_an_error_that_names_the_file(logs: Logs) -> None:
    directory = filled(logs)
    header = frame_at(5, b"5").header._replace(version=9).pack()
    overwrite(log_file(directory, 4), FRAME_BYTES, header)
    with pytest.raises(UnsupportedFrame, match=f"{4:020}.log"):
        logs.verify()


def test_lower_limits_do_not_make_good_frames_damage(logs: Logs) -> None:
    with logs.open(codec="zstd") as log:
        log.append_many([bytes(100_000)])
        log.append_many([os.urandom(100_000)])
    settings = StorageSettings(
        message_bytes_max=10, batch_bytes=10, frame_bytes_max=5000, frame_raw_bytes_max=5000
    )
    assert verify(logs.path, settings).findings == []


# Beside a writer


def test_beside_a_writer_in_another_process(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"segment_messages": 3, "durability": "os", "segments_max": 2} | EVERY
    with RemoteLog(tmp_path, **settings) as remote:
        for n in range(10):
            remote.append(f"{n}")
            if n % 3 == 0:
                remote.call("sync")
            if n % 4 == 0:
                remote.call("retain")
            report = verify(tmp_path)
            assert report.findings == []
            assert report.messages == n + 1 - LogFollower(tmp_path / "log", StorageSettings()).start


def test_beside_a_writer_nothing_is_found_that_is_not_there(logs: Logs) -> None:
    log = logs.open(**EVERY, segment_messages=20, segments_max=3)
    done = threading.Event()

    def write() -> None:
        for n in range(300):
            log.append(b"%d" % n, timestamp=(n * 7919) % 1000)
            if n % 10 == 0:
                log.sync()
            if n % 30 == 0:
                log.retain()
        done.set()

    def look() -> list[LogFinding]:
        found: list[LogFinding] = []
        while not done.is_set():
            found += logs.verify(**EVERY).findings
            total_bytes(logs.path)
        return found

    looking = [start(look) for _ in range(2)]
    start(write).result(PATIENCE_S)
    for each in looking:
        assert each.result(PATIENCE_S) == []


class Meddling(SystemDisk):
    """A disk on which something happens between two looks at it."""

    def __init__(self, name: str, happens: Callable[[], object]) -> None:
        self._name = name
        self._happens: Callable[[], object] | None = happens

    def open(self, path: Path, *, writable: bool = False) -> Any:
        if path.name == self._name and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return super().open(path, writable=writable)


def test_a_log_that_grows_while_it_is_looked_at(logs: Logs) -> None:
    log = logs.open(**EVERY)
    log.append(b"0")

    def grow() -> None:
        for n in range(1, 4):
            log.append(b"%d" % n)
        log.sync()

    for name in (f"{0:020}.idx", f"{0:020}.log"):
        report = verify(logs.path, disk=Meddling(name, grow))
        assert report.findings == []


@pytest.mark.parametrize("name", [f"{0:020}.log", f"{1:020}.log", f"{0:020}.idx", f"{2:020}.idx"])
def test_a_segment_that_goes_while_it_is_looked_at(logs: Logs, name: str) -> None:
    log = logs.open(segment_messages=1, segments_max=1)
    for n in range(4):
        log.append(b"%d" % n)
    report = verify(logs.path, disk=Meddling(name, log.retain))
    assert [finding for finding in report.findings if finding.kind == "damage"] == []
    assert report.is_sound


def test_a_segment_that_goes_before_its_size_is_known(logs: Logs) -> None:
    log = logs.open(segment_messages=1, segments_max=1)
    for n in range(4):
        log.append(b"%d" % n)
    assert total_bytes(logs.path, Meddling(f"{1:020}.log", log.retain)) > 0


def test_a_message_that_contains_a_frame_and_is_being_written(logs: Logs) -> None:
    with logs.open() as log:
        log.append(b"a")
    path = log_file(log.directory, 0)
    writing = bytes(frame_at(1, bytes(frame_at(2, b"x" * 16)), bytes(400)))
    path.write_bytes(path.read_bytes() + writing[:-100])
    assert [finding[0] for finding in told(logs)] == ["tail"]
    path.write_bytes(path.read_bytes()[:FRAME_BYTES])


def test_looking_needs_no_lock_and_leaves_no_trace(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(logs)
    before = list(tree(logs.path))

    def refuse(*_: object, **__: object) -> Any:
        raise StorageFailed("verification writes", path=logs.path)

    for name in ("create", "make_directory", "rename", "remove", "sync_directory", "lock"):
        monkeypatch.setattr(SystemDisk, name, refuse)
    assert logs.verify().is_sound
    monkeypatch.undo()
    assert list(tree(logs.path)) == before
    assert directory_module.LOCK_NAME not in os.listdir(logs.path)
