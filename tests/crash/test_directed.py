"""Single accidents, one by one: those that crashes at every step meet only by chance, or not at all."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.crash import (
    DATA,
    LOG,
    SMALL,
    Ledger,
    Model,
    Witness,
    judge,
    judge_interrupted_recovery,
    seeds,
    told,
)
from support.faulty_disk import FaultyDisk, PowerCut, every_crash

from quivermq.errors import Corruption, DiskFull
from quivermq.log import LogFollower, repair, verify
from quivermq.segment import load_index

# Segments of three messages, each of them a frame of its own that shares no sector with the next.
THREES = replace(SMALL, segment_messages=3, segment_bytes=100_000, index_interval_bytes=2000)
SIZE = 1500


def log_of(base_offset: int) -> Path:
    return LOG / f"{base_offset:020d}.log"


def index_of(base_offset: int) -> Path:
    return LOG / f"{base_offset:020d}.idx"


def new_log(*, synced: int, unsynced: int) -> tuple[FaultyDisk, Ledger, list[tuple[int, int]]]:
    """A log whose process dies, and where each message's frame begins and ends in its segment."""
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger, THREES)
    for _ in range(synced):
        witness.append("os", SIZE)
    witness.sync()
    for _ in range(unsynced):
        witness.append("os", SIZE)
    places = [
        (position, position + frame.header.frame_bytes)
        for segment in witness.log.segments
        for position, frame in segment.frames(segment.base_offset)
    ]
    disk.stop()
    return disk, ledger, places


def lose(disk: FaultyDisk, path: Path, position: int, end: int) -> None:
    """Put zeros where bytes were, as when a write never reached the disk and a later one did."""
    for place, byte in enumerate(disk.files()[path][position:end], position):
        if byte:
            disk.flip(path, place, byte)


def quarantine(disk: FaultyDisk) -> list[bytes]:
    return [data for path, data in disk.files().items() if path.parent.name == "@quarantine"]


def values(disk: FaultyDisk) -> list[int]:
    """The numbers of the messages that the log on the disk holds, once it is recovered."""
    records = Witness(disk, Ledger(), THREES).log.records()
    return [int(record.value[1 : record.value.index(b">")]) for record in records]


# Writes that reach the disk in another order


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
                assert any(whole in data for data in left.files().values()), left.story
                values(left)
                assert any(whole in data for data in quarantine(left)), left.story
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


# Indexes and names that are lost


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


def die_before_the_directory_is_synced(disk: FaultyDisk, *, after: str) -> None:
    """Let the process die between a change of names and the sync that makes it durable."""
    seen: list[str] = []

    def watch(operation: str, path: Path) -> None:
        seen.append(operation)
        if after in seen and operation == "sync_directory":
            disk.stop()

    disk.before_step = watch


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


# What happens while the log is synced


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


# Recovery without room


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


# What is no crash must not be taken for one


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


# Readers in other processes


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
