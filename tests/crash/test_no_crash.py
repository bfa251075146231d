"""What no crash has done must not be taken for one: it stays as it is until it is repaired."""

import pytest
from support.crash import DATA, Ledger, Model, Witness, seeds, told
from support.crash.accidents import THREES, index_of, log_of, new_log, quarantine, values
from support.faulty_disk import FaultyDisk, every_crash

from quivermq.errors import Corruption
from quivermq.log import repair

pytestmark = pytest.mark.fault("damage", "engine")


def open_and_kill_twice(disk: FaultyDisk) -> FaultyDisk:
    """Let two processes append and die, so that there is always something that was not synced."""
    for number in (8, 9):
        Witness(disk, Ledger(), THREES).log.append(b"<%d>" % number, durability="os")
        disk = disk.after_kill()
    return disk


def test_what_follows_a_sealed_segment_that_got_shorter_stays() -> None:
    disk, _, places = new_log(synced=7, unsynced=1)
    disk = disk.after_kill()
    disk.chop(log_of(3), places[5][0])
    disk = open_and_kill_twice(disk)
    assert quarantine(disk) == []
    repair(DATA, THREES, disk=disk)
    assert values(disk) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("model", ["kill", "power"])
def test_offsets_that_were_synced_and_lost_are_never_given_again(model: Model) -> None:
    disk, _, places = new_log(synced=6, unsynced=0)
    disk = disk.after_kill()
    Witness(disk, Ledger(), THREES).close()
    disk.chop(log_of(3), places[4][0])

    def open_log(dying: FaultyDisk, _: list[None]) -> None:
        Witness(dying, Ledger(), THREES)

    for left, _ in every_crash(open_log, model=model, seeds=seeds(3), start=disk):
        with told(left):
            assert Witness(left, Ledger(), THREES).log.append(b"<6>") == 6


def test_what_follows_a_segment_without_an_index_and_with_a_rotten_end_stays() -> None:
    disk, _, places = new_log(synced=7, unsynced=1)
    disk = disk.after_kill()
    disk.flip(log_of(3), places[5][0] + 100)
    disk.remove(index_of(3))
    disk = open_and_kill_twice(disk)
    assert quarantine(disk) == []
    repair(DATA, THREES, disk=disk)
    assert values(disk) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("how", ["closed", "synced"])
def test_a_rotten_segment_and_what_follows_it_stay_when_that_was_synced(how: str) -> None:
    disk, _, places = new_log(synced=7, unsynced=0)
    disk = disk.after_kill()
    witness = Witness(disk, Ledger(), THREES)
    if how == "closed":
        witness.close()
    else:
        witness.log.append(b"<7>", durability="os")
        disk = disk.after_kill()
    # As when the disk was full while the index was written: nothing is marked but the beginning.
    disk.chop(index_of(3), 32)
    disk.flip(log_of(3), places[5][0] + 100)
    rotten = disk.files()[log_of(3)]
    with pytest.raises(Corruption):
        values(disk)
    assert disk.files()[log_of(3)] == rotten
    assert quarantine(disk) == []
    disk = disk.after_kill()
    repair(DATA, THREES, disk=disk)
    assert quarantine(disk) == [rotten[places[5][0] :]]
    assert values(disk) == [0, 1, 2, 3, 4, 6] + ([] if how == "closed" else [7])
