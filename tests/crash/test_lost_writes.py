"""Writes that reach the disk in another order than they were made in, or while it is synced."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.crash import LOG, SMALL, Ledger, Witness, judge, judge_interrupted_recovery, seeds
from support.crash.accidents import SIZE, THREES, index_of, log_of, lose, new_log, quarantine, values
from support.faulty_disk import FaultyDisk, PowerCut

from quivermq.log import LogFollower
from quivermq.segment import load_index

pytestmark = pytest.mark.fault("power", "engine")


@pytest.mark.parametrize("lost", [4, 5])
def test_whole_frames_behind_a_lost_one_go_to_quarantine(lost: int) -> None:
    disk, ledger, places = new_log(synced=4, unsynced=2)
    disk = disk.after_power_loss(keep="everything")
    path, (position, end) = log_of(3), places[lost]
    lose(disk, path, position, end)
    tail = disk.files()[path][position:]
    judge(disk, ledger, "power", THREES)
    judge_interrupted_recovery(disk, ledger, "power", THREES, seed=0)
    judge_interrupted_recovery(disk, ledger, "power", THREES, seed=1)
    assert values(disk) == list(range(lost))
    # The last one is just torn: nobody misses it.
    assert quarantine(disk) == ([tail] if lost == 4 else [])


def test_no_whole_frame_is_thrown_away_when_recovery_dies() -> None:
    disk, _, places = new_log(synced=4, unsynced=2)
    disk = disk.after_power_loss(keep="everything")
    path = log_of(3)
    whole = disk.files()[path][slice(*places[5])]
    lose(disk, path, *places[4])
    steps = _steps_of_recovery(disk)
    assert steps > 10
    for step in range(1, steps + 1):
        for seed in seeds(6):
            dying = disk.after_kill()
            dying.seed = seed
            dying.stop_at(step)
            with pytest.raises(PowerCut):
                Witness(dying, Ledger(), THREES)
            for left in (dying.after_kill(), dying.after_power_loss(seed)):
                assert any(whole in data for data in left.files().values()), left.description
                values(left)
                assert any(whole in data for data in quarantine(left)), left.description
            killed = dying.after_kill()
            values(killed)
            assert len(quarantine(killed)) == 1, (
                "a copy that was begun is not begun again under another name"
            )


def test_two_accidents_at_one_place_leave_two_files_in_quarantine() -> None:
    disk, _, places = new_log(synced=4, unsynced=2)
    tails = []
    for letter in (b"a", b"b"):
        disk = disk.after_kill()
        log = Witness(disk, Ledger(), THREES).log
        log.truncate(4)
        for _ in range(2):
            log.append(letter * SIZE, durability="os")
        disk = disk.after_power_loss(keep="everything")
        # The header of the first one is lost, and the second is whole.
        lose(disk, log_of(3), places[4][0], places[4][0] + 80)
        tails.append(disk.files()[log_of(3)][places[4][0] :])
        assert values(disk) == list(range(4))
    assert len(tails[0]) == len(tails[1])
    assert sorted(quarantine(disk)) == sorted(tails)


def _steps_of_recovery(disk: FaultyDisk) -> int:
    rehearsal = disk.after_kill()
    Witness(rehearsal, Ledger(), THREES)
    return rehearsal.steps


@pytest.mark.parametrize("how", ["torn", "cleanly"])
def test_segments_behind_one_that_lost_its_end_go_to_quarantine(how: str) -> None:
    disk, ledger, places = new_log(synced=4, unsynced=5)
    disk = disk.after_power_loss(keep="everything")
    behind = [disk.files()[log_of(6)]]
    assert len(disk.files()[log_of(6)]) == places[8][1]
    disk.chop(log_of(3), places[5][0] if how == "cleanly" else places[5][1] - 10)
    judge(disk, ledger, "power", THREES)
    judge_interrupted_recovery(disk, ledger, "power", THREES, seed=0)
    judge_interrupted_recovery(disk, ledger, "power", THREES, seed=1)
    assert values(disk) == list(range(5))
    assert quarantine(disk) == behind


def test_an_empty_segment_behind_a_hole_just_goes() -> None:
    disk, ledger, places = new_log(synced=4, unsynced=3)
    disk = disk.after_power_loss(keep="everything")
    disk.chop(log_of(6), 0)
    disk.chop(log_of(3), places[5][0])
    judge(disk, ledger, "power", THREES)
    assert values(disk) == list(range(5))
    assert quarantine(disk) == []


def test_what_is_appended_during_a_sync_waits_for_the_next_one() -> None:
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger, replace(THREES, index_interval_bytes=100))
    witness.append("os", SIZE)

    def append_meanwhile(operation: str, path: Path) -> None:
        if (operation, path) == ("sync", log_of(0)):
            disk.before_step = None
            witness.append("os", SIZE)

    disk.before_step = append_meanwhile
    witness.log.sync()
    index = load_index(disk, LOG, 0)
    assert index is not None
    # The second message begins where the sync ended, and nothing behind that may be marked.
    assert (witness.log.synced_end, index.mark[0]) == (1, 1)
    judge(disk.after_power_loss(keep="nothing"), ledger, "power", THREES)
    witness.sync()
    judge(disk.after_power_loss(keep="nothing"), ledger, "power", THREES)


def test_an_index_that_could_not_grow_is_left_alone() -> None:
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger, replace(SMALL, segment_bytes=100_000))

    def fill(operation: str, path: Path) -> None:
        if operation == "append" and path == index_of(0):
            disk.fill_after(10)

    disk.before_step = fill
    for _ in range(3):
        witness.append("os", SIZE)
    witness.sync()
    disk.before_step = None
    disk.fill_after(None)
    torn = disk.files()[index_of(0)]
    assert len(torn) % 32 == 10
    for _ in range(3):
        witness.append("fsync", SIZE)
    assert disk.files()[index_of(0)] == torn
    judge(disk.after_kill(), ledger, "kill")
    judge(disk.after_power_loss(), ledger, "power")


def test_a_roll_that_was_interrupted_from_the_keyboard_leaves_no_segment_behind() -> None:
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger)
    witness.append("fsync", SIZE)

    def interrupt(operation: str, path: Path) -> None:
        if operation == "sync_directory":
            raise KeyboardInterrupt

    disk.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        witness.log.append(bytes(SIZE), durability="os")
    disk.before_step = None
    # Small enough to fit into the segment that was full.
    witness.append("fsync", 10)
    witness.append("os", 10)
    judge(disk.after_kill(), ledger, "kill")


def test_what_a_follower_has_mapped_is_never_cut() -> None:
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger, THREES)
    for _ in range(5):
        witness.append("os", SIZE)
    follower = LogFollower(LOG, THREES, disk=disk)
    held = list(follower.frames(mapped=True))
    witness.truncate(4)
    witness.append("os", SIZE)
    held += follower.frames(mapped=True)
    # The writer dies in the middle of a write, and the reader does not.
    torn = disk.open(log_of(3), writable=True)
    torn.append([b"QVF1 torn"])
    held += follower.frames(mapped=True)
    witness.data.close()
    Witness(disk, Ledger(), THREES)
    assert disk.mapped_then_cut == []
    assert len(held) == 15
