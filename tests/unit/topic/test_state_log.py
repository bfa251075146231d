"""A log of changes, and the snapshots that keep it short."""

from collections.abc import Iterator

import pytest
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import MODELS, Model, Parts

from quivermq.topic import state_log
from quivermq.topic.state_log import StateLog, parts


@pytest.fixture
def place() -> Iterator[Parts]:
    place = Parts()
    yield place
    place.close()


def test_a_new_log_has_nothing_to_say(place: Parts) -> None:
    assert place.state_log().replay() == []


def test_changes_come_back_in_order(place: Parts) -> None:
    log = place.state_log()
    assert [log.append(record) for record in (b"a", b"", b"ccc")] == [1, 2, 3]
    assert place.state_log().replay() == [b"a", b"", b"ccc"]


def test_a_snapshot_stands_for_everything_before_it(place: Parts) -> None:
    log = place.state_log()
    log.append(b"a")
    log.snapshot([b"A", b"B"])
    log.append(b"c")
    assert place.state_log().replay() == [b"A", b"B", b"c"]
    log.snapshot([])
    assert place.state_log().replay() == []
    log.append(b"d")
    assert place.state_log().replay() == [b"d"]


def test_a_snapshot_without_an_end_counts_for_nothing(place: Parts) -> None:
    log = place.state_log()
    log.append(b"a")

    def broken() -> Iterator[bytes]:
        yield b"A"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.snapshot(broken())
    assert place.state_log().replay() == [b"a"]
    log.append(b"b")
    assert place.state_log().replay() == [b"a", b"b"]
    log.snapshot([b"AB"])
    assert place.state_log().replay() == [b"AB"]


def test_two_snapshots_without_an_end_count_for_nothing_either(place: Parts) -> None:
    log = place.state_log()
    log.append(b"a")

    def broken() -> Iterator[bytes]:
        yield b"A"
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            log.snapshot(broken())
    log.append(b"b")
    assert place.state_log().replay() == [b"a", b"b"]


def test_changes_reach_the_system_at_once_and_the_disk_when_asked(place: Parts) -> None:
    log = place.state_log()
    log.sync(log.append(b"a"))
    end = log.append(b"b", "fsync")
    assert place.without_power().state_log().replay() == [b"a"]
    assert place.killed().state_log().replay() == [b"a", b"b"]
    log.sync(end)
    assert place.without_power().state_log().replay() == [b"a", b"b"]


def test_buffered_changes_wait_in_the_process(place: Parts) -> None:
    log = place.state_log()
    log.append(b"a", "buffered")
    assert place.killed().state_log().replay() == []
    assert log.replay() == [b"a"]


def test_a_snapshot_is_durable_on_return(place: Parts) -> None:
    log = place.state_log()
    log.append(b"a")
    log.snapshot([b"A"])
    assert place.without_power().state_log().replay() == [b"A"]


def test_a_snapshot_lets_go_of_the_files_before_it(place: Parts) -> None:
    log = place.state_log()
    for _ in range(6):
        log.append(bytes(1024 * 1024))
    before = sum(map(len, place.disk.files().values()))
    freed = log.snapshot([b"small"])
    assert freed > 3 * 1024 * 1024
    assert sum(map(len, place.disk.files().values())) <= before - freed + 1024
    assert place.state_log().replay() == [b"small"]


def test_a_snapshot_is_due_when_much_was_written(place: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 10_000)
    log = place.state_log()
    assert not log.wants_snapshot
    log.append(bytes(9_000))
    assert not log.wants_snapshot
    log.append(bytes(1_000))
    assert log.wants_snapshot
    log.snapshot([bytes(8_000)])
    assert not log.wants_snapshot
    # Twice as much as the snapshot takes, or a large state would be written again and again.
    log.append(bytes(15_000))
    assert not log.wants_snapshot
    log.append(bytes(1_000))
    assert log.wants_snapshot


def test_a_snapshot_is_as_due_in_the_next_process(place: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 10_000)
    log = place.state_log()
    log.snapshot([bytes(8_000)])
    log.append(bytes(15_000))
    opened = StateLog(place.directory, "state")
    opened.replay()
    assert not opened.wants_snapshot
    log.append(bytes(1_000))
    opened = StateLog(place.directory, "state")
    opened.replay()
    assert opened.wants_snapshot


def test_a_removed_log_is_gone(place: Parts) -> None:
    log = place.state_log()
    log.append(b"a")
    log.remove()
    assert place.state_log().replay() == []


def test_parts_are_joined_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_PART_BYTES", 10)
    assert list(parts([])) == []
    assert list(parts([b"a" * 4, b"b" * 4, b"c" * 4, b"d" * 20, b"e"])) == [
        b"aaaabbbb",
        b"cccc",
        b"d" * 20,
        b"e",
    ]


@pytest.mark.parametrize("model", MODELS)
def test_a_crash_at_every_step_of_a_snapshot_changes_nothing(model: Model) -> None:
    def run(disk: FaultyDisk, acknowledged: list[int]) -> None:
        log = Parts(disk).state_log()
        for number in range(1, 4):
            log.sync(log.append(b"%d" % number))
            acknowledged.append(number)
        log.snapshot([b"1 2", b"3"])
        log.sync(log.append(b"4"))
        acknowledged.append(4)
        log.snapshot([b"1 2 3 4"])

    for disk, acknowledged in every_crash(run, model=model):
        place = Parts(disk)
        found = b" ".join(place.state_log().replay()).split()
        assert found[: len(acknowledged)] == [b"%d" % number for number in acknowledged], disk.description
        assert found in ([b"1", b"2", b"3", b"4"][: len(found)],), disk.description
        place.state_log().append(b"more")
        assert b" ".join(place.state_log().replay()).split() == [*found, b"more"], disk.description
        place.close()
