"""The faulty disk itself: crash tests prove nothing unless it forgets and fails as it should."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faulty_disk import SECTOR_BYTES, FaultyDisk, FaultyFile, PowerCut, every_crash

from quivermq.disk import Disk, File, Lock
from quivermq.errors import DirectoryLocked, DiskFull, DiskRefused, FsyncFailed, StorageFailed

DATA = Path("/data")
LOG = DATA / "a.log"
SEEDS = range(500)


def new_disk(seed: int = 0) -> FaultyDisk:
    disk = FaultyDisk(seed)
    disk.make_directory(DATA)
    return disk


def new_file(disk: FaultyDisk, content: bytes = b"", path: Path = LOG) -> FaultyFile:
    """A file whose name and content are durable."""
    file = disk.create(path)
    file.append([content])
    file.sync()
    disk.sync_directory(path.parent)
    return file


def content(disk: FaultyDisk, path: Path = LOG) -> bytes | None:
    if path.name not in disk.names(path.parent):
        return None
    file = disk.open(path)
    return file.read(0, file.size())


def outcomes(disk: FaultyDisk, path: Path = LOG) -> set[bytes | None]:
    """Everything that some power loss makes of the file."""
    return {content(disk.after_power_loss(seed), path) for seed in SEEDS}


def test_it_is_a_disk() -> None:
    disk: Disk = new_disk()
    file: File = disk.create(LOG)
    lock: Lock = disk.lock(DATA / "LOCK")
    lock.release()
    file.close()


# Bytes after a power loss


def test_synced_bytes_never_vanish() -> None:
    disk = new_disk()
    new_file(disk, b"kept")
    assert outcomes(disk) == {b"kept"}


def test_unsynced_bytes_are_there_missing_or_there_in_part() -> None:
    disk = new_disk()
    new_file(disk, b"kept").append([b"lost?"])
    found = outcomes(disk)
    assert {b"kept", b"keptlost?", b"keptlo", b"kept\0\0\0\0\0"} <= found
    assert all(each is not None and each.startswith(b"kept") for each in found)
    assert content(disk.after_power_loss(keep="nothing")) == b"kept"
    assert content(disk.after_power_loss(keep="everything")) == b"keptlost?"


def test_a_later_sector_may_be_there_when_an_earlier_one_is_not() -> None:
    disk = new_disk()
    a, b, c = (letter * SECTOR_BYTES for letter in (b"a", b"b", b"c"))
    file = new_file(disk)
    file.append([a, b])
    file.append([c])
    found = outcomes(disk)
    nothing = bytes(SECTOR_BYTES)
    assert {b"", a + b + c, nothing + b + c, a + nothing + c, nothing * 3, a + b} <= found


def test_a_sector_may_hold_what_it_held_between_two_appends() -> None:
    disk = new_disk()
    file = new_file(disk)
    file.append([b"one"])
    file.append([b"two"])
    assert {b"", b"one", b"onetwo", b"one\0\0\0", bytes(6)} <= outcomes(disk)


def test_an_unsynced_cut_may_be_forgotten_and_mix_with_what_came_after() -> None:
    disk = new_disk()
    file = new_file(disk, b"keep+torn")
    file.truncate(4)
    file.append([b"!"])
    found = outcomes(disk)
    assert {b"keep+torn", b"keep", b"keep!", b"keep!\0\0\0\0"} <= found
    assert all(each is not None and each.startswith(b"keep") for each in found)
    file.sync()
    assert outcomes(disk) == {b"keep!"}


def test_a_file_replaced_by_create_may_be_back_or_be_gone() -> None:
    disk = new_disk()
    new_file(disk, b"old")
    disk.create(LOG).append([b"new"])
    assert {b"old", None, b"", b"new"} <= outcomes(disk)


def test_create_over_a_file_is_two_steps_with_nothing_in_between() -> None:
    disk = new_disk()
    new_file(disk, b"old")
    disk.stop_at(disk.steps + 2, torn=0.0)
    with pytest.raises(PowerCut):
        disk.create(LOG)
    assert [step.operation for step in disk.history[-2:]] == ["remove", "create"]
    assert disk.after_kill().names(DATA) == []
    assert outcomes(disk) == {None, b"old"}


def test_a_sync_owes_only_what_was_appended_before_it_began() -> None:
    disk = new_disk()
    file = new_file(disk)
    file.append([b"before"])

    def append_meanwhile(operation: str, path: Path) -> None:
        disk.before_step = None
        disk.open(LOG, writable=True).append([b"+during"])

    disk.before_step = append_meanwhile
    file.sync()
    assert content(disk) == b"before+during"
    assert content(disk.after_power_loss(keep="nothing")) == b"before"


# Names after a power loss


def test_a_file_whose_name_was_never_synced_may_vanish_with_its_synced_bytes() -> None:
    disk = new_disk()
    file = disk.create(LOG)
    file.append([b"synced"])
    file.sync()
    assert outcomes(disk) == {None, b"synced"}
    disk.sync_directory(DATA)
    assert outcomes(disk) == {b"synced"}


def test_an_unsynced_rename_leaves_the_old_or_the_new_name() -> None:
    disk = new_disk()
    new_file(disk, b"old", DATA / "target")
    new_file(disk, b"new", DATA / "source")
    disk.rename(DATA / "source", DATA / "target")
    restarted = [disk.after_power_loss(seed) for seed in SEEDS]
    assert {(content(d, DATA / "source"), content(d, DATA / "target")) for d in restarted} == {
        (b"new", b"old"),
        (None, b"new"),
    }


def test_an_unsynced_remove_may_be_forgotten() -> None:
    disk = new_disk()
    new_file(disk, b"x")
    disk.remove(LOG)
    assert outcomes(disk) == {None, b"x"}
    disk.sync_directory(DATA)
    assert outcomes(disk) == {None}


def test_changes_of_different_names_are_kept_in_any_combination() -> None:
    disk = new_disk()
    disk.create(DATA / "1")
    disk.create(DATA / "2")
    found = {tuple(disk.after_power_loss(seed).names(DATA)) for seed in SEEDS}
    assert found == {(), ("1",), ("2",), ("1", "2")}


def test_the_last_change_of_a_name_that_is_kept_wins() -> None:
    disk = new_disk()
    for text in (b"1", b"2"):
        file = disk.create(DATA / "new")
        file.append([text])
        file.sync()
        disk.rename(DATA / "new", LOG)
    assert outcomes(disk) == {None, b"1", b"2"}
    assert content(disk.after_power_loss(keep="everything")) == b"2"


def test_a_rename_into_another_directory_happens_in_both_or_in_none() -> None:
    disk = new_disk()
    other = Path("/other")
    disk.make_directory(other)
    new_file(disk, b"x")
    disk.rename(LOG, other / "b")
    found = {
        (*restarted.names(DATA), *restarted.names(other)) for restarted in map(disk.after_power_loss, SEEDS)
    }
    assert found == {("a.log",), ("b",)}
    disk.sync_directory(other)
    assert disk.after_power_loss(keep="nothing").names(DATA) == []


def test_a_synced_rename_brings_the_earlier_ones_of_its_file_with_it() -> None:
    disk = new_disk()
    other = Path("/other")
    disk.make_directory(other)
    new_file(disk, b"x")
    disk.rename(LOG, DATA / "b")
    disk.rename(DATA / "b", other / "c")
    disk.sync_directory(other)
    restarted = disk.after_power_loss(keep="nothing")
    assert (restarted.names(DATA), restarted.names(other)) == ([], ["c"])


def test_make_directory_is_two_steps_a_level_and_durable_after_the_second() -> None:
    disk = FaultyDisk()
    disk.make_directory(DATA / "topics")
    assert [(step.operation, str(step.path)) for step in disk.history] == [
        ("make_directory", "/data"),
        ("sync_directory", "/"),
        ("make_directory", "/data/topics"),
        ("sync_directory", "/data"),
    ]
    assert disk.after_power_loss(keep="nothing").is_directory(DATA / "topics")

    disk = FaultyDisk()
    disk.stop_at(1, torn=1.0)
    with pytest.raises(PowerCut):
        disk.make_directory(DATA)
    restarted = disk.after_kill()
    assert restarted.is_directory(DATA)
    assert not restarted.after_power_loss(keep="nothing").is_directory(DATA)
    restarted.make_directory(DATA)
    assert restarted.after_power_loss(keep="nothing").is_directory(DATA), "made durable after all"


names = st.sampled_from([Path("/1/a"), Path("/1/b"), Path("/2/a"), Path("/2/c")])
name_changes = st.one_of(
    st.tuples(st.sampled_from(["create", "remove"]), names),
    st.tuples(st.just("sync_directory"), st.sampled_from([Path("/1"), Path("/2")])),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("move the survivor"), names),
)


@settings(deadline=None)
@given(st.lists(name_changes, max_size=12), st.integers(0, 9), st.booleans())
def test_no_file_ever_has_two_names_or_loses_its_only_one(
    changes: list[tuple[str, *tuple[Path, ...]]], seed: int, syncs_fail: bool
) -> None:
    disk = FaultyDisk()
    disk.make_directory(Path("/1"))
    disk.make_directory(Path("/2"))
    # One file goes from name to name and is never replaced or removed.
    home = Path("/1/survivor")
    new_file(disk, b"", home)
    for operation, *paths in changes:
        if operation == "move the survivor":
            disk.rename(home, paths[0])
            home = paths[0]
        elif home not in paths:
            if syncs_fail:
                disk.fail_sync(keep="random")
            with suppress(StorageFailed):
                getattr(disk, operation)(*paths)
    restarted = disk.after_power_loss(seed)
    found = [Path(top) / name for top in ("/1", "/2") for name in restarted.names(Path(top))]
    identities = [restarted.identity(path) for path in found]
    assert len(identities) == len(set(identities)), found
    assert disk.identity(home) in identities, found


# Bytes against a model


file_changes = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1500)),
        st.tuples(st.just("cut"), st.integers(0, 600)),
        st.tuples(st.just("sync"), st.just(0)),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(file_changes, st.integers(0, 9))
def test_what_was_synced_and_never_cut_since_is_there_after_any_power_loss(
    changes: list[tuple[str, int]], seed: int
) -> None:
    disk = new_disk()
    file = new_file(disk)
    expected, safe_bytes, sizes = b"", 0, {0}
    for index, (operation, amount) in enumerate(changes, start=1):
        if operation == "append":
            file.append([bytes([index]) * amount])
            expected += bytes([index]) * amount
        elif operation == "cut":
            expected = expected[: max(0, len(expected) - amount)]
            file.truncate(len(expected))
            safe_bytes = min(safe_bytes, len(expected))
        else:
            file.sync()
            safe_bytes, sizes = len(expected), set()
        sizes.add(len(expected))
    assert content(disk) == expected
    assert content(disk.after_power_loss(keep="everything")) == expected
    found = content(disk.after_power_loss(seed))
    assert found is not None
    assert found[:safe_bytes] == expected[:safe_bytes]
    assert len(found) <= max(sizes)


# Dying


def test_a_dead_disk_stays_dead_in_every_thread_and_only_closing_is_allowed() -> None:
    disk = new_disk()
    file, lock = new_file(disk), disk.lock(DATA / "LOCK")
    disk.stop_at(disk.steps + 1)
    with pytest.raises(PowerCut):
        file.append([b"x"])
    refused: list[str] = []

    def try_everything() -> None:
        attempts: list[Callable[[], object]] = [
            file.size,
            file.sync,
            lambda: file.append([b"x"]),
            lambda: file.read(0, 1),
            lambda: file.map(0),
            lambda: file.truncate(0),
            lambda: disk.create(LOG),
            lambda: disk.open(LOG),
            lambda: disk.names(DATA),
            lambda: disk.is_directory(DATA),
            lambda: disk.exists(LOG),
            lambda: disk.make_directory(DATA / "x"),
            lambda: disk.rename(LOG, DATA / "x"),
            lambda: disk.remove(LOG),
            lambda: disk.sync_directory(DATA),
            lambda: disk.lock(DATA / "LOCK"),
        ]
        for attempt in attempts:
            with pytest.raises(PowerCut):
                attempt()
            refused.append("")

    thread = threading.Thread(target=try_everything)
    thread.start()
    thread.join()
    assert len(refused) == 16
    file.close()
    lock.release()
    assert disk.dead


def test_no_except_clause_for_errors_survives_a_power_cut() -> None:
    disk = FaultyDisk()
    disk.stop_at(1)

    def stubborn() -> None:
        with suppress(Exception):
            disk.make_directory(DATA)

    with pytest.raises(PowerCut):
        stubborn()


@pytest.mark.parametrize(("torn", "left"), [(0.0, b"ab"), (0.5, b"abcd"), (1.0, b"abcdef")])
def test_a_torn_append_leaves_its_part_to_the_next_process(torn: float, left: bytes) -> None:
    disk = new_disk()
    file = new_file(disk, b"ab")
    disk.stop_at(disk.steps + 1, torn=torn)
    with pytest.raises(PowerCut):
        file.append([b"cd", b"ef"])
    assert content(disk.after_kill()) == left
    assert content(disk.after_power_loss(keep="nothing")) == b"ab"


def test_the_seed_tears_an_append_at_any_byte() -> None:
    def left(seed: int) -> int:
        disk = new_disk(seed)
        file = new_file(disk)
        disk.stop_at(disk.steps + 1)
        with pytest.raises(PowerCut):
            file.append([b"0123456789"])
        return len(content(disk.after_kill()) or b"")

    assert {left(seed) for seed in SEEDS} == set(range(11))


@pytest.mark.parametrize(("torn", "happens"), [(0.0, False), (0.5, False), (1.0, True)])
def test_what_cannot_be_torn_happens_or_does_not(torn: float, happens: bool) -> None:
    def state(act: Callable[[FaultyDisk], object]) -> tuple[list[str], bytes | None]:
        disk = new_disk()
        new_file(disk, b"abc")
        disk.stop_at(disk.steps + 1, torn=torn)
        with pytest.raises(PowerCut):
            act(disk)
        after = disk.after_kill()
        return after.names(DATA), content(after)

    untouched = (["a.log"], b"abc")
    expected: list[tuple[Callable[[FaultyDisk], object], tuple[list[str], bytes | None]]] = [
        (lambda disk: disk.create(DATA / "b"), (["a.log", "b"], b"abc")),
        (lambda disk: disk.open(LOG, writable=True).truncate(1), (["a.log"], b"a")),
        (lambda disk: disk.rename(LOG, DATA / "b"), (["b"], None)),
        (lambda disk: disk.remove(LOG), ([], None)),
        (lambda disk: disk.make_directory(DATA / "d"), (["a.log", "d"], b"abc")),
        (lambda disk: disk.lock(DATA / "LOCK"), (["LOCK", "a.log"], b"abc")),
    ]
    for act, done in expected:
        assert state(act) == (done if happens else untouched)


def test_a_sync_that_is_cut_off_made_nothing_something_or_everything_durable() -> None:
    def durable(seed: int, torn: float) -> bytes | None:
        disk = new_disk(seed)
        file = new_file(disk)
        file.append([b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES])
        disk.stop_at(disk.steps + 1, torn=torn)
        with pytest.raises(PowerCut):
            file.sync()
        assert content(disk.after_kill()) == content(disk.after_power_loss(keep="everything"))
        return content(disk.after_power_loss(keep="nothing"))

    everything = b"a" * SECTOR_BYTES + b"b" * SECTOR_BYTES
    assert durable(0, 0.0) == b""
    assert durable(0, 1.0) == everything
    in_part = {durable(seed, 0.5) for seed in SEEDS}
    assert {b"", everything, bytes(SECTOR_BYTES) + b"b" * SECTOR_BYTES} <= in_part


def test_a_directory_sync_that_is_cut_off_made_some_names_durable() -> None:
    def durable(seed: int) -> tuple[str, ...]:
        disk = new_disk(seed)
        disk.create(DATA / "1")
        disk.create(DATA / "2")
        disk.stop_at(disk.steps + 1, torn=0.5)
        with pytest.raises(PowerCut):
            disk.sync_directory(DATA)
        return tuple(disk.after_power_loss(keep="nothing").names(DATA))

    assert {durable(seed) for seed in SEEDS} == {(), ("1",), ("2",), ("1", "2")}


def test_bytes_that_survived_a_kill_are_still_not_durable() -> None:
    disk = new_disk()
    new_file(disk, b"durable").append([b"+seen"])
    restarted = disk.after_kill()
    assert content(restarted) == b"durable+seen"
    assert content(restarted.after_power_loss(keep="nothing")) == b"durable"
    restarted.open(LOG).sync()
    assert content(restarted.after_power_loss(keep="nothing")) == b"durable+seen"
    assert content(disk.after_power_loss(keep="nothing")) == b"durable", "the two share no state"


def test_files_made_after_a_restart_are_none_of_those_made_before() -> None:
    disk = new_disk()
    new_file(disk)
    for restarted in (disk.after_kill(), disk.after_power_loss()):
        assert restarted.identity(LOG) == disk.identity(LOG)
        restarted.create(DATA / "b")
        restarted.create(DATA / "c")
        paths = (DATA, LOG, DATA / "b", DATA / "c")
        assert len({restarted.identity(path) for path in paths}) == 4


def test_a_restart_ends_the_locks() -> None:
    disk = new_disk()
    disk.lock(DATA / "LOCK")
    with pytest.raises(DirectoryLocked):
        disk.lock(DATA / "LOCK")
    disk.after_kill().lock(DATA / "LOCK").release()
    disk.after_power_loss().lock(DATA / "LOCK").release()


def test_the_same_seed_gives_the_same_steps_and_the_same_end() -> None:
    def run(seed: int) -> tuple[list[str], bytes | None]:
        disk = new_disk(seed)
        file = new_file(disk)
        for _ in range(5):
            file.append([b"x" * 700])
        disk.stop_at(disk.steps + 1)
        with pytest.raises(PowerCut):
            file.append([b"y" * 700])
        return [str(step) for step in disk.history], content(disk.after_power_loss(seed))

    assert run(7) == run(7)
    assert len({run(seed)[1] for seed in range(20)}) > 10


# Faults on demand


def test_retrying_a_failed_sync_succeeds_and_loses_the_bytes() -> None:
    disk = new_disk()
    file = new_file(disk, b"safe")
    file.append([b"+gone"])
    disk.fail_sync("*.log")
    with pytest.raises(FsyncFailed) as failure:
        file.sync()
    assert failure.value.path == LOG
    file.sync()
    file.append([b"+later"])
    file.sync()
    assert content(disk) == b"safe+gone+later", "the page cache still shows it"
    assert outcomes(disk) == {b"safe\0\0\0\0\0+later"}
    assert outcomes(disk.after_kill()) == {b"safe\0\0\0\0\0+later"}, "and reopening is no cure"


def test_writing_the_bytes_of_a_failed_sync_again_does_help() -> None:
    disk = new_disk()
    file = new_file(disk, b"safe")
    file.append([b"+gone"])
    disk.fail_sync()
    with pytest.raises(FsyncFailed):
        file.sync()
    file.truncate(4)
    file.append([b"+gone"])
    file.sync()
    assert outcomes(disk) == {b"safe+gone"}


def test_rewriting_the_bytes_of_a_failed_sync_helps_as_well_once_it_is_synced() -> None:
    disk = new_disk()
    file = new_file(disk, b"safe")
    file.append([b"+gone"])
    disk.fail_sync()
    with pytest.raises(FsyncFailed):
        file.sync()
    restarted = disk.after_kill()
    file = restarted.open(LOG, writable=True)
    file.rewrite(2, b"fe+gone")
    assert {b"safe", b"safe\0\0\0\0\0", b"safe+gone"} <= outcomes(restarted)
    file.sync()
    assert outcomes(restarted) == {b"safe+gone"}
    with pytest.raises(AssertionError, match="holds something else"):
        file.rewrite(0, b"SAFE")


def test_a_failed_sync_may_have_kept_everything_all_the_same() -> None:
    disk = new_disk()
    file = new_file(disk)
    file.append([b"kept"])
    disk.fail_sync(at=disk.steps + 1, keep="everything")
    with pytest.raises(FsyncFailed):
        file.sync()
    assert content(disk.after_power_loss(keep="nothing")) == b"kept"


def test_a_sync_fails_where_it_was_told_to_and_only_once() -> None:
    disk = new_disk()
    log, index = new_file(disk), new_file(disk, path=DATA / "a.idx")
    disk.fail_sync("*.idx")
    log.sync()
    with pytest.raises(FsyncFailed):
        index.sync()
    index.sync()
    disk.fail_sync(at=disk.steps + 2)
    log.sync()
    with pytest.raises(FsyncFailed):
        log.sync()


def test_names_of_a_failed_directory_sync_are_lost_until_they_are_written_again() -> None:
    disk = new_disk()
    disk.create(LOG)
    disk.fail_sync(str(DATA))
    with pytest.raises(FsyncFailed):
        disk.sync_directory(DATA)
    disk.sync_directory(DATA)
    assert disk.names(DATA) == ["a.log"]
    assert outcomes(disk) == {None}
    disk.rename(LOG, DATA / "b.log")
    disk.sync_directory(DATA)
    assert disk.after_power_loss(keep="nothing").names(DATA) == ["b.log"]


def test_a_full_disk_takes_a_part_and_says_so() -> None:
    disk = new_disk()
    file = new_file(disk, b"ab")
    disk.fill_after(3)
    with pytest.raises(DiskFull) as refused:
        file.append([b"cd", b"efg"])
    assert (refused.value.path, refused.value.needed_bytes) == (LOG, 5)
    assert content(disk) == b"abcde"
    with pytest.raises(DiskFull):
        disk.create(DATA / "b")
    with pytest.raises(DiskFull):
        disk.make_directory(DATA / "d")
    with pytest.raises(DiskFull):
        disk.lock(DATA / "LOCK")
    file.truncate(2)
    file.append([b"xyz"])
    assert content(disk) == b"abxyz", "what was cut off makes room"
    disk.fill_after(None)
    assert file.append([b"12345"]) == 5


def test_a_full_disk_is_full_after_a_restart_until_files_go() -> None:
    disk = new_disk()
    new_file(disk, b"abc")
    disk.fill_after(0)
    restarted = disk.after_kill()
    with pytest.raises(DiskFull):
        restarted.create(DATA / "b")
    restarted.remove(LOG)
    assert restarted.create(DATA / "b").append([b"abc"]) == 3


def test_a_bad_sector_fails_every_read_that_touches_it_also_after_a_restart() -> None:
    disk = new_disk()
    new_file(disk, b"0123456789")
    disk.fail_read(LOG, 5)
    for each in (disk, disk.after_kill(), disk.after_power_loss()):
        file = each.open(LOG)
        assert file.read(0, 5) == b"01234"
        assert file.read(6, 4) == b"6789"
        for position, length in ((5, 1), (0, 6), (0, 100)):
            with pytest.raises(StorageFailed):
                file.read(position, length)


def test_bit_rot_is_silent_and_stays() -> None:
    disk = new_disk()
    file = new_file(disk, b"aa")
    file.append([b"aa"])
    disk.flip(LOG, 1)
    disk.flip(LOG, 2, 0b11)
    file.sync()
    assert content(disk) == b"a`ba"
    assert outcomes(disk) == {b"a`ba"}


def test_a_chopped_end_stays_away() -> None:
    disk = new_disk()
    file = new_file(disk, b"abc")
    view = file.map(3)
    file.append([b"def"])
    disk.chop(LOG, 2)
    assert outcomes(disk) == {b"ab"}
    file = disk.open(LOG, writable=True)
    file.append([b"x"])
    file.sync()
    assert content(disk) == b"abx"
    assert outcomes(disk) == {b"abx"}
    assert bytes(view) == b"abc"
    assert disk.mapped_then_cut == [], "the damage was done by the test, not by the code under test"


def test_a_mapping_that_is_cut_while_in_use_is_noted() -> None:
    disk = new_disk()
    file = new_file(disk, b"abcdef")
    view = file.map(4)
    part = view[3:]
    file.truncate(4)
    assert disk.mapped_then_cut == []
    del view
    file.truncate(3)
    assert disk.mapped_then_cut == [(LOG, 4, 3)], "a slice keeps the mapping alive"
    assert disk.after_kill().mapped_then_cut == [(LOG, 4, 3)]
    assert bytes(part) == b"d"


def test_a_mapping_that_nobody_holds_any_more_may_be_cut() -> None:
    disk = new_disk()
    file = new_file(disk, b"abc")
    view = file.map(3)
    del view
    file.truncate(0)
    assert disk.mapped_then_cut == []


def test_creating_or_renaming_over_a_mapped_file_leaves_it_whole() -> None:
    disk = new_disk()
    view = new_file(disk, b"abc").map(3)
    new_file(disk, b"", DATA / "b")
    disk.rename(DATA / "b", LOG)
    other = new_file(disk, b"xyz", DATA / "c").map(3)
    disk.create(DATA / "c")
    assert disk.mapped_then_cut == []
    assert (bytes(view), bytes(other)) == (b"abc", b"xyz")


# The real file system


def test_a_disk_goes_to_a_real_directory_and_back(tmp_path: Path) -> None:
    disk = new_disk()
    new_file(disk, b"synced").append([b"+unsynced"])
    disk.make_directory(DATA / "empty")
    disk.write_to(tmp_path)
    assert (tmp_path / "data/a.log").read_bytes() == b"synced+unsynced"
    loaded = FaultyDisk.from_directory(tmp_path).after_power_loss(keep="nothing")
    assert loaded.names(DATA) == ["a.log", "empty"]
    assert loaded.files() == disk.files() == {LOG: b"synced+unsynced"}


# Threads


def test_appends_of_many_threads_are_whole() -> None:
    disk = new_disk()
    file = new_file(disk)

    def append(letter: bytes) -> None:
        for _ in range(100):
            file.append([letter * 5, letter * 5])
            file.sync()

    threads = [threading.Thread(target=append, args=(bytes([65 + n]),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = content(disk.after_power_loss(keep="nothing"))
    assert everything is not None
    records = [everything[at : at + 10] for at in range(0, len(everything), 10)]
    assert sorted(records) == sorted(bytes([65 + n]) * 10 for n in range(4) for _ in range(100))


@pytest.mark.filterwarnings("error")
def test_a_thread_that_dies_of_a_power_cut_ends_in_silence() -> None:
    disk = new_disk()
    disk.stop()
    thread = threading.Thread(target=disk.names, args=(DATA,))
    thread.start()
    thread.join()


# Every crash


def careful(disk: FaultyDisk, acknowledged: list[bytes]) -> None:
    disk.make_directory(DATA)
    file = disk.create(LOG)
    disk.sync_directory(DATA)
    for record in (b"first.", b"second.", b"third."):
        file.append([record])
        file.sync()
        acknowledged.append(record)


def careless(disk: FaultyDisk, acknowledged: list[bytes]) -> None:
    disk.make_directory(DATA)
    file = disk.create(LOG)
    disk.sync_directory(DATA)
    file.append([b"record"])
    acknowledged.append(b"record")
    file.sync()


def test_every_crash_of_careful_code_keeps_what_was_acknowledged() -> None:
    stories = []
    for disk, acknowledged in every_crash(careful, model="power", seeds=range(9)):
        found = content(disk) or b""
        assert found.startswith(b"".join(acknowledged)), disk.description
        stories.append(disk.description)
    assert len(stories) == len(set(stories)) == (10 + 1) * 9
    assert "; step 5, " in stories[4 * 9]
    assert "append /data/a.log was the last; crash 5 of 11, seed 0" in stories[4 * 9]


def test_every_crash_finds_an_acknowledgement_that_came_too_early() -> None:
    def losses(model: str) -> int:
        crashes = every_crash(careless, model="power" if model == "power" else "kill")
        return sum(acknowledged != [] and content(disk) != b"record" for disk, acknowledged in crashes)

    assert losses("power") > 0
    assert losses("kill") == 0


def test_every_crash_starts_from_a_prepared_disk_and_leaves_it_alone() -> None:
    start = new_disk()
    new_file(start, b"old.")

    def scenario(disk: FaultyDisk, acknowledged: list[str]) -> None:
        disk.open(LOG, writable=True).append([b"new."])

    found = {content(disk) for disk, _ in every_crash(scenario, model="power", seeds=range(9), start=start)}
    assert {b"old.", b"old.new."} <= found
    assert content(start) == b"old."


def test_an_error_of_the_scenario_is_raised_but_not_one_of_a_dead_process() -> None:
    def fails_at_the_end(disk: FaultyDisk, acknowledged: list[str]) -> None:
        disk.make_directory(DATA)
        if disk.seed == 2:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError) as raised:
        list(every_crash(fails_at_the_end, model="kill"))
    assert raised.value.__notes__ == ["raised by the scenario after 2 steps, seed 2"]

    def fails_in_its_clean_up(disk: FaultyDisk, acknowledged: list[str]) -> None:
        try:
            disk.make_directory(DATA)
        finally:
            if disk.dead:
                raise RuntimeError("of no interest")

    assert len(list(every_crash(fails_in_its_clean_up, model="kill"))) == 9


def test_what_is_refused_has_no_effect_and_can_be_done_later() -> None:
    disk = new_disk()
    file = new_file(disk, b"a")
    disk.refuse("append", "create", "open")
    for attempt in (lambda: file.append([b"b"]), lambda: disk.create(DATA / "b"), lambda: disk.open(LOG)):
        with pytest.raises(DiskRefused):
            attempt()
    file.sync()
    assert disk.files() == {LOG: b"a"}
    disk.refuse("append", at=range(disk.steps + 2, disk.steps + 3))
    file.append([b"b"])
    with pytest.raises(DiskRefused):
        file.append([b"c"])
    file.append([b"d"])
    assert disk.files()[LOG] == b"abd"


@pytest.mark.parametrize("seed", range(5))
def test_a_step_that_fails_is_done_in_part_at_most(seed: int) -> None:
    disk = new_disk(seed)
    file = new_file(disk, b"a")
    disk.fail_at(disk.steps + 1)
    with pytest.raises(StorageFailed, match="Input/output error"):
        file.append([b"bcdef"])
    assert b"abcdef".startswith(disk.files()[LOG])
    disk.fail_at(disk.steps + 1)
    with pytest.raises(FsyncFailed):
        disk.sync_directory(DATA)
    disk.sync_directory(DATA)


def test_names_may_fare_otherwise_than_bytes() -> None:
    disk = new_disk()
    file = disk.create(LOG)
    file.append([b"a"])
    assert LOG in disk.after_power_loss(keep="everything").files()
    assert LOG not in disk.after_power_loss(keep="everything", names="nothing").files()
