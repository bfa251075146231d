"""Looking on: beside a writer in this process, beside one in another, and over damage."""

import shutil
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.damage import flip, overwrite
from support.faulty_disk import FaultyDisk
from support.logs import Logs, offsets, tree, values
from support.remote import RemoteLog
from support.threads import PATIENCE_S, start

from quivermq.errors import Corruption, OffsetOutOfRange, StorageFailed
from quivermq.frame import HEADER_BYTES, encode
from quivermq.log import LogFollower, follow, repair
from quivermq.segment import Segment
from quivermq.settings import StorageSettings

SMALL: dict[str, Any] = {"segment_messages": 3, "durability": "os"}


def of(path: Path, **settings: Any) -> LogFollower:
    return follow(path, "log", StorageSettings(**settings))


# Beside a writer in another process


def test_what_another_process_appends_can_be_read_at_once(tmp_path: Path) -> None:
    with RemoteLog(tmp_path, **SMALL) as remote:
        follower = of(tmp_path)
        assert (follower.start, follower.end, values(follower)) == (0, 0, [])
        for n in range(10):
            assert remote.append(f"{n}") == [n]
            assert values(follower) == [b"%d" % m for m in range(n + 1)]
            assert values(follower, n) == [b"%d" % n]
            assert follower.end == n + 1
        assert len(follower.segments) == 4
    assert values(follower) == [b"%d" % n for n in range(10)]


def test_a_follower_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with RemoteLog(tmp_path, **SMALL) as remote:
        follower = of(tmp_path)
        read: list[bytes] = []
        for n in range(10):
            remote.append(*(f"{n}.{m}" for m in range(n)))
            read += values(follower, len(read))
        assert read == [b"%d.%d" % (n, m) for n in range(10) for m in range(n)]


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_what_another_process_has_only_buffered_is_not_seen(tmp_path: Path, durability: str) -> None:
    with RemoteLog(tmp_path, durability="buffered", linger_ms=10**9) as remote:
        remote.append("a", "b")
        follower = of(tmp_path)
        assert values(follower) == []
        remote.call("append", "c", durability=durability)
        assert values(follower) == [b"a", b"b", b"c"]


def test_retention_in_another_process_moves_the_start(tmp_path: Path) -> None:
    with RemoteLog(tmp_path, segments_max=2, **SMALL) as remote:
        follower = of(tmp_path)
        remote.append(*map(str, range(10)))
        assert values(follower, 1)[:2] == [b"1", b"2"]
        reading = follower.records(0)
        assert next(reading).value == b"0"
        remote.call("retain")
        # The file that is open is still there, the one behind it is not.
        assert [next(reading).value for _ in range(2)] == [b"1", b"2"]
        with pytest.raises(OffsetOutOfRange):
            next(reading)
        with pytest.raises(OffsetOutOfRange) as refused:
            list(follower.records(1))
        assert (refused.value.start, refused.value.end) == (6, 10)
        assert values(follower) == [b"6", b"7", b"8", b"9"]
        assert follower.find_time(0) == 6


def test_truncation_in_another_process_moves_the_end(tmp_path: Path) -> None:
    with RemoteLog(tmp_path, **SMALL) as remote:
        follower = of(tmp_path)
        remote.append(*map(str, range(10)))
        assert len(values(follower)) == 10
        for end in (9, 7, 5, 3, 1):
            remote.call("truncate", end)
            assert values(follower) == [b"%d" % n for n in range(end)]
            remote.append("again", "and again")
            assert values(follower, end) == [b"again", b"and again"]
            remote.call("truncate", end)


def test_mapped_frames_stay_as_they_were_whatever_the_other_process_does(tmp_path: Path) -> None:
    with RemoteLog(tmp_path, segments_max=1, **SMALL) as remote:
        follower = of(tmp_path)
        remote.append(*map(str, range(8)))
        frames = list(follower.frames(mapped=True))
        remote.call("truncate", 7)
        remote.append("more", "and more")
        remote.call("retain")
        assert [frame.values() for frame in frames] == [[b"%d" % n] for n in range(8)]
        assert values(follower) == [b"6", b"more", b"and more"]


def test_a_writer_that_was_killed_leaves_what_it_wrote(tmp_path: Path) -> None:
    remote = RemoteLog(tmp_path, **SMALL)
    follower = of(tmp_path)
    remote.append(*map(str, range(5)))
    remote.kill()
    assert values(follower) == [b"%d" % n for n in range(5)]
    with RemoteLog(tmp_path, **SMALL) as again:
        again.append("5")
        assert values(follower) == [b"%d" % n for n in range(6)]


def test_times_are_found_beside_a_writer(tmp_path: Path) -> None:
    with RemoteLog(tmp_path, index_interval_bytes=1, **SMALL) as remote:
        follower = of(tmp_path)
        for n in range(10):
            remote.call("append", "x", timestamp=10 * n)
            assert follower.find_time(10 * n) == n
            assert follower.find_time(10 * n + 1) == n + 1
        assert [follower.find_time(t) for t in (0, 1, 35, 90, 91)] == [0, 1, 4, 9, 10]


# A write that is under way


def test_a_frame_that_is_being_written_is_waited_for(logs: Logs) -> None:
    with logs.open() as log:
        log.append(b"a")
    path = log.segments[-1].path
    whole = path.read_bytes()
    frame = bytes(encode([b"b" * 100], timestamp=0).stamped(1, 0))
    follower = logs.follow()
    for written in range(0, len(frame), 9):
        path.write_bytes(whole + frame[:written])
        assert values(follower) == [b"a"]
        assert values(logs.follow()) == [b"a"]
        assert values(logs.follow(), 1) == []
    path.write_bytes(whole + frame)
    assert values(follower) == [b"a", b"b" * 100]
    next_frame = bytes(encode([b"c"], timestamp=0).stamped(2, 0))
    path.write_bytes(whole + frame + next_frame[:50])
    assert values(follower) == [b"a", b"b" * 100]
    path.write_bytes(whole + frame + next_frame)
    assert values(follower) == [b"a", b"b" * 100, b"c"]


# A follower changes nothing


@pytest.mark.damages
@pytest.mark.parametrize("mapped", [False, True])
def test_looking_on_writes_nothing(logs: Logs, mapped: bool) -> None:
    log = logs.open(segment_messages=2)
    for n in range(7):
        log.append(b"%d" % n)
    log.sync()
    directory = log.directory
    (directory / f"{0:020}.idx").unlink()
    overwrite(directory / f"{2:020}.idx", 0, b"rotten")
    last = directory / f"{6:020}.log"
    last.write_bytes(last.read_bytes() + b"torn")
    (directory / "left.tmp").write_bytes(b"behind")
    before = list(tree(logs.path))
    for path in [logs.path, *logs.path.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    follower = logs.follow()
    assert len(list(follower.frames(mapped=mapped))) == 7
    follower.find_time(0)
    logs.verify()
    assert list(tree(logs.path)) == before
    for path in [logs.path, *logs.path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    last.write_bytes(last.read_bytes()[:-4])


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    follower = of(tmp_path)
    assert (follower.start, follower.end, follower.size_bytes) == (0, 0, 0)
    assert (values(follower), follower.read(0), follower.find_time(0)) == ([], [], 0)
    with pytest.raises(OffsetOutOfRange):
        list(follower.frames(1))
    assert not list(tmp_path.iterdir())
    with RemoteLog(tmp_path) as remote:
        remote.append("a")
        assert values(follower) == [b"a"]


def test_a_log_that_was_removed_is_empty(logs: Logs) -> None:
    with logs.open(segment_messages=1) as log:
        log.append(b"a")
        log.append(b"b")
    follower = logs.follow()
    assert values(follower) == [b"a", b"b"]
    shutil.rmtree(log.directory)
    assert values(follower) == []


def test_segments_that_are_known_keep_their_index(logs: Logs) -> None:
    log = logs.open(segment_messages=1)
    for n in range(4):
        log.append(b"%d" % n)
    log.close()
    follower = logs.follow()
    values(follower)
    known = [(segment, segment.index) for segment in follower.segments]
    values(follower)
    assert [(segment, segment.index) for segment in follower.segments] == known


def test_a_segment_removed_while_it_is_looked_at_is_looked_for_again(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.open(segment_messages=1, segments_max=2)
    for n in range(6):
        log.append(b"%d" % n)
    follower = logs.follow()
    listed = follower.disk.names

    def list_then_remove(directory: Path) -> list[str]:
        names = listed(directory)
        monkeypatch.undo()
        log.retain()
        return names

    monkeypatch.setattr(follower.disk, "names", list_then_remove)
    assert values(follower) == [b"4", b"5"]


def test_a_segment_that_is_listed_and_never_there_is_not_looked_for_for_ever(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logs.open() as log:
        log.append(b"a")
    follower = logs.follow()
    with monkeypatch.context() as patch:
        patch.setattr(follower.disk, "names", lambda _: [f"{0:020}.log", f"{1:020}.log"])
        with pytest.raises(StorageFailed) as failure:
            follower.refresh()
    assert failure.value.path == log.directory
    assert values(follower) == [b"a"]


# Many threads


def test_only_one_thread_at_a_time_looks_for_what_is_new(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.open()
    log.append(b"a")
    follower = logs.follow()
    log.append(b"b")
    grow, inside, most = Segment.grow, [0], [0]
    others: list[Future[list[bytes]]] = []

    def held_grow(segment: Segment) -> bool:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        if not others:
            others.append(start(lambda: values(follower)))
            # Long enough for the other one to get here too, if nothing keeps it away.
            with suppress(TimeoutError):
                others[0].result(0.2)
        result = grow(segment)
        inside[0] -= 1
        return result

    monkeypatch.setattr(Segment, "grow", held_grow)
    assert values(follower) == [b"a", b"b"]
    assert others[0].result(PATIENCE_S) == [b"a", b"b"]
    assert most == [1]


def test_many_threads_read_while_a_log_grows(logs: Logs) -> None:
    log = logs.open(index_interval_bytes=1, segment_messages=200)
    follower = logs.follow(index_interval_bytes=1)
    count = 400

    def read_all() -> list[int]:
        read: list[int] = []
        while len(read) < count:
            read += [record.offset for record in follower.records(len(read))]
        return read

    readers = [start(read_all) for _ in range(4)]
    for n in range(count):
        log.append(b"%d" % n)
    assert all(reader.result(PATIENCE_S) == list(range(count)) for reader in readers)
    for segment in follower.segments:
        assert list(segment.index.offsets) == sorted(set(segment.index.offsets))


# Damage


def damaged(logs: Logs, base: int) -> Path:
    with logs.open(segment_messages=2) as log:
        for n in range(6):
            log.append(b"%d" % n)
    path = log.directory / f"{base:020}.log"
    flip(path, HEADER_BYTES)
    return path


@pytest.mark.parametrize("base", [0, 2, 4])
def test_a_follower_stops_at_damage_and_goes_on_after_the_repair(logs: Logs, base: int) -> None:
    path = damaged(logs, base)
    follower = logs.follow()
    for _ in range(2):
        with pytest.raises(Corruption) as told:
            values(follower)
        assert (told.value.path, told.value.offsets) == (path, (base, base + 1))
        with pytest.raises(Corruption):
            values(follower, base + 1)
    repair(logs.path)
    assert values(follower, base + 1) == [b"%d" % n for n in range(base + 1, 6)]
    assert values(follower, base) == [b"%d" % n for n in range(base + 1, 6)]
    assert values(follower) == [b"%d" % n for n in range(6) if n != base]
    assert offsets(follower.frames(base))[0] == (base, base + 1)


@pytest.mark.damages
def test_a_follower_sees_an_index_appear_and_vanish(logs: Logs) -> None:
    with logs.open(segment_messages=2) as log:
        for n in range(6):
            log.append(b"%d" % n)
    for path in log.directory.glob("*.idx"):
        path.unlink()
        assert len(values(logs.follow())) == 6


@pytest.mark.parametrize("seed", range(5))
def test_what_a_follower_has_synced_survives_power_loss(tmp_path: Path, seed: int) -> None:
    disk = FaultyDisk()
    logs = Logs(tmp_path, disk)
    log = logs.open(segment_messages=10)
    for number in range(35):
        log.append(b"%d" % number)
    assert log.synced_end == 0
    assert logs.follow().sync() == 35
    log.append(b"late")
    crashed = Logs(tmp_path, disk.after_power_loss(seed, keep="random" if seed else "nothing"))
    found = [record.value for record in crashed.open().records()]
    assert found[:35] == [b"%d" % number for number in range(35)]
    crashed.close()
    logs.close()


def test_a_follower_syncs_only_what_is_asked_for(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open(segment_messages=10)
    for number in range(35):
        log.append(b"%d" % number)
    follower, before = faulty_logs.follow(), faulty_disk.steps
    assert follower.sync(25) == 35
    synced = [step.path.name for step in faulty_disk.history[before:] if step.operation == "sync"]
    assert synced == [segment.path.name for segment in follower.segments[2:]]
