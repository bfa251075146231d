"""Indexes that are lost or cannot be written, and names that were not durable yet."""

from dataclasses import replace

import pytest
from support.crash import DATA, LOG, Ledger, Witness, judge, judge_interrupted_recovery, seeds
from support.crash.accidents import (
    SIZE,
    THREES,
    die_before_the_directory_is_synced,
    index_of,
    log_of,
    lose,
    new_log,
    values,
)
from support.faulty_disk import FaultyDisk, PowerCut

from quivermq.errors import Corruption, DiskFull
from quivermq.log import repair, verify
from quivermq.segment import load_index

pytestmark = pytest.mark.fault("names", "engine")


def test_what_was_recovered_once_is_not_recovered_again() -> None:
    disk, _, _ = new_log(synced=4, unsynced=1)
    disk = disk.after_kill()
    Witness(disk, Ledger(), THREES)
    disk = disk.after_kill()
    Witness(disk, Ledger(), THREES)
    assert [step.operation for step in disk.history] == ["lock", "sync_directory"]


def test_a_tail_that_is_cut_at_the_mark_is_not_marked_twice() -> None:
    disk, _, _ = new_log(synced=4, unsynced=0)
    disk = disk.after_kill()
    Witness(disk, Ledger(), THREES).close()
    before = disk.files()
    disk.open(log_of(3), writable=True).append([b"torn"])
    disk = disk.after_kill()
    Witness(disk, Ledger(), THREES).close()
    assert disk.files() == before


def test_a_torn_index_is_mended_before_it_grows() -> None:
    disk, ledger, _ = new_log(synced=4, unsynced=0)
    disk = disk.after_kill()
    Witness(disk, Ledger(), THREES)
    disk = disk.after_kill()
    disk.open(index_of(3), writable=True).append([b"torn"])
    witness = Witness(disk, ledger, replace(THREES, index_interval_bytes=100))
    witness.append("fsync", SIZE)
    witness.append("fsync", SIZE)
    index = load_index(disk, LOG, 3)
    assert index is not None
    # Nothing behind the torn entry would be found, and every opening would take longer than the last.
    assert index.mark[0] == 5


@pytest.mark.parametrize("base_offset", [0, 3, 6])
def test_an_index_that_is_lost_after_a_kill_is_made_anew(base_offset: int) -> None:
    disk, ledger, _ = new_log(synced=7, unsynced=1)
    disk = disk.after_kill()
    disk.remove(index_of(base_offset))
    judge(disk, ledger, "kill", THREES)
    judge_interrupted_recovery(disk, ledger, "kill", THREES, seed=0)
    assert values(disk) == list(range(8))


def test_without_an_index_a_torn_tail_is_cut_all_the_same() -> None:
    disk, ledger, places = new_log(synced=4, unsynced=2)
    disk = disk.after_power_loss(keep="everything")
    disk.remove(index_of(3))
    disk.chop(log_of(3), places[5][1] - 10)
    judge(disk, ledger, "power", THREES)
    assert values(disk) == list(range(5))


def test_without_an_index_nothing_in_front_of_whole_frames_is_cut() -> None:
    disk, _, places = new_log(synced=4, unsynced=2)
    disk = disk.after_power_loss(keep="everything")
    disk.remove(index_of(3))
    lose(disk, log_of(3), *places[4])
    for _ in range(2):
        with pytest.raises(Corruption) as damage:
            values(disk.after_kill())
        assert damage.value.offsets == (4, 5)
        Witness(disk, Ledger(), THREES).close()
        assert [finding.kind for finding in verify(DATA, THREES, disk=disk).findings] == ["damage"]
    repair(DATA, THREES, disk=disk)
    assert values(disk) == [0, 1, 2, 3, 5]


def test_a_renamed_index_is_durable_before_anything_relies_on_it() -> None:
    disk, ledger, _ = new_log(synced=4, unsynced=1)
    disk = disk.after_kill()
    disk.remove(index_of(3))
    die_before_the_directory_is_synced(disk, after="rename")
    with pytest.raises(PowerCut):
        Witness(disk, Ledger(), THREES)

    # The next process finds the new index, and does not look at what lies before its mark.
    again = disk.after_kill()
    witness = Witness(again, ledger, THREES)
    ledger.adopt(witness.log)
    witness.append("os", SIZE)
    witness.append("os", SIZE)
    for seed in seeds(40):
        judge(again.after_power_loss(seed), ledger, "power", THREES)


@pytest.mark.parametrize("closed", [True, False])
def test_the_name_of_a_new_segment_is_durable_before_anything_relies_on_it(closed: bool) -> None:
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger, THREES)
    for _ in range(3):
        witness.append("os", SIZE)
    if closed:
        witness.close()
        witness = Witness(disk, ledger, THREES)
    die_before_the_directory_is_synced(disk, after="create")
    with pytest.raises(PowerCut):
        witness.append("os", SIZE)

    again = disk.after_kill()
    assert again.exists(log_of(3))
    judge(again, ledger, "kill", THREES)


def test_a_segment_that_was_gone_stays_gone_when_the_next_one_goes() -> None:
    disk, ledger, _ = new_log(synced=10, unsynced=0)
    disk = disk.after_kill()
    kept = replace(THREES, segments_max=2)
    witness = Witness(disk, ledger, kept)
    die_before_the_directory_is_synced(disk, after="remove")
    with pytest.raises(PowerCut):
        witness.retain(floor=3)

    # The first segment is gone, but not for good, when the next process removes the second.
    disk = disk.after_kill()
    witness = Witness(disk, ledger, kept)
    assert witness.log.start == 3
    die_before_the_directory_is_synced(disk, after="remove")
    with pytest.raises(PowerCut):
        witness.retain(floor=6)
    for seed in seeds(20):
        judge(disk.after_power_loss(seed), ledger, "power", kept)


def test_an_index_that_could_not_be_replaced_is_left_alone() -> None:
    disk, ledger, _ = new_log(synced=4, unsynced=1)
    disk = disk.after_kill()
    before = disk.files()[index_of(3)]
    # Room for the name of the new index and for a part of it.
    disk.fill_after(40)
    witness = Witness(disk, ledger, replace(THREES, index_interval_bytes=100))
    assert not [name for name in disk.names(LOG) if name.endswith(".tmp")]
    disk.fill_after(None)
    ledger.adopt(witness.log)
    witness.append("fsync", SIZE)
    assert disk.files()[index_of(3)] == before
    judge(disk.after_kill(), ledger, "kill", THREES)
    witness.append("os", SIZE)
    for seed in seeds(10):
        judge(disk.after_power_loss(seed), ledger, "power", THREES)
    witness.close()
    judge(disk.after_kill(), ledger, "kill", THREES)


@pytest.mark.parametrize("fault", ["no index", "a log that is shorter than its index says"])
def test_without_a_mark_to_go_by_a_full_disk_is_refused(fault: str) -> None:
    disk, _, places = new_log(synced=6, unsynced=0)
    disk = disk.after_kill()
    if fault == "no index":
        disk.remove(index_of(3))
    else:
        disk.chop(log_of(3), places[4][0])
    disk.fill_after(0)
    for _ in range(2):
        with pytest.raises(DiskFull):
            Witness(disk, Ledger(), THREES)
        disk = disk.after_kill()
    disk.fill_after(None)
    assert values(disk) == list(range(6 if fault == "no index" else 4))
