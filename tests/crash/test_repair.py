"""A repair dies at every step: nothing is thrown away, and the next repair brings back what can be."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from support.crash import DATA, LOG, SMALL, Ledger, Model, Witness, seeds, told
from support.faulty_disk import FaultyDisk, PowerCut, every_crash
from support.manual_clock import ManualClock

from quivermq.errors import Corruption
from quivermq.frame import Frame
from quivermq.log import LogFollower, Repair, repair, verify
from quivermq.segment import Segment

pytestmark = pytest.mark.fault("damage", "engine")

both_models = pytest.mark.parametrize("model", ["kill", "power"])


class Place(NamedTuple):
    """Where a frame lies, and the offsets it holds."""

    path: Path
    position: int
    end: int
    offsets: range

    @classmethod
    def of(cls, segment: Segment, found: tuple[int, Frame]) -> Self:
        position, frame = found
        header = frame.header
        offsets = range(header.base_offset, header.end_offset)
        return cls(segment.path, position, position + header.frame_bytes, offsets)


class Damaged(NamedTuple):
    """A disk with a damaged log on it."""

    disk: FaultyDisk
    ledger: Ledger
    lost: set[int]
    """The offsets of the messages that were damaged."""
    pieces: list[bytes]
    """The damaged bytes, one frame each."""


def damaged_log() -> Damaged:
    """A log of four segments, in each of which something is rotten, and behind the last one torn."""
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger, replace(SMALL, segment_messages=6, segment_bytes=10_000))
    for size in (600, 300, 500, 900, 400, 500, 400, 800, 700, 100, 200, 300):
        witness.append_many("os", size, 20)
    segments = [list(map(Place.of, repeat(each), each.frames(0))) for each in witness.log.segments]
    witness.close()
    assert list(map(len, segments)) == [3, 3, 3, 3]
    # A body in the middle, a header at the beginning, a body at the end, and a body before the mark.
    hit = [(segments[0][1], 100), (segments[1][0], 2), (segments[2][-1], 90), (segments[3][1], 120)]
    for place, byte in hit:
        disk.flip(place.path, place.position + byte)
    torn = disk.open(segments[3][-1].path, writable=True)
    torn.append([b"QVF1 torn"])
    torn.sync()
    files = disk.files()
    pieces = [files[place.path][place.position : place.end] for place, _ in hit]
    lost = {offset for place, _ in hit for offset in place.offsets}
    return Damaged(disk.after_power_loss(), ledger, lost, [*pieces, b"QVF1 torn"])


def mend(disk: FaultyDisk) -> Repair:
    return repair(DATA, SMALL, disk=disk, clock=ManualClock())


def crashes(damaged: Damaged, model: Model, seeds: range) -> Iterator[FaultyDisk]:
    """What every crash of a repair leaves."""

    def run(disk: FaultyDisk, _: list[None]) -> None:
        mend(disk)

    for disk, _ in every_crash(run, model=model, seeds=seeds, start=damaged.disk):
        yield disk


def check_nothing_thrown_away(disk: FaultyDisk, damaged: Damaged) -> None:
    files = disk.files()
    for piece in damaged.pieces:
        assert any(piece in data for data in files.values()), "damaged bytes are gone"


def check_repaired(disk: FaultyDisk, damaged: Damaged) -> None:
    """Everything that was not damaged is there, and what was is in quarantine."""
    assert not [name for name in disk.names(LOG) if name.endswith(".tmp")]
    report = verify(DATA, SMALL, disk=disk)
    assert {finding.kind for finding in report.findings} == {"gap"}
    gaps = [finding.offsets for finding in report.findings]
    assert {offset for start, end in gaps for offset in range(start, end or start)} == damaged.lost
    quarantine = [data for path, data in disk.files().items() if path.parent.name == "@quarantine"]
    assert set(damaged.pieces) <= set(quarantine)
    ledger = damaged.ledger.copy()
    witness = Witness(disk, ledger)
    records = list(witness.log.records())
    assert [record.offset for record in records] == [
        offset for offset in range(ledger.end) if offset not in damaged.lost
    ]
    assert all(ledger.messages[record.offset].is_in(record) for record in records)
    witness.append("fsync")
    last = disk.after_power_loss(keep="nothing")
    [record] = Witness(last, ledger).log.records(ledger.end - 1)
    assert ledger.messages[record.offset].is_in(record)
    witness.close()
    assert not disk.mapped_then_cut


def test_a_repair_mends_every_kind_of_damage() -> None:
    damaged = damaged_log()
    disk = damaged.disk
    log = Witness(disk.after_kill(), Ledger()).log
    with pytest.raises(Corruption):
        list(log.records())
    reader = LogFollower(LOG, SMALL, disk=disk)
    held: list[Frame] = []
    with suppress(Corruption):
        held.extend(reader.frames(mapped=True))
    assert len(mend(disk).mended) == 5
    assert held
    check_repaired(disk, damaged)
    assert mend(disk).mended == [], "a second repair finds nothing to do"


@both_models
def test_a_repair_that_dies_is_repeated(model: Model) -> None:
    damaged = damaged_log()
    for disk in crashes(damaged, model, seeds(2)):
        with told(disk):
            check_nothing_thrown_away(disk, damaged)
            mend(disk)
            check_repaired(disk, damaged)


@both_models
def test_a_log_opens_between_two_repairs(model: Model) -> None:
    damaged = damaged_log()
    # Opening cuts what is torn, as always.
    rotten = damaged._replace(pieces=damaged.pieces[:-1])
    for disk in crashes(damaged, model, seeds(1)):
        with told(disk):
            ledger = damaged.ledger.copy()
            witness = Witness(disk, ledger)
            assert witness.log.end == ledger.end
            with suppress(Corruption):
                for record in witness.log.records():
                    assert ledger.messages[record.offset].is_in(record)
            witness.data.close()
            check_nothing_thrown_away(disk, rotten)
            mend(disk)
            check_repaired(disk, rotten)


@both_models
def test_a_repair_that_dies_twice_is_repeated(model: Model) -> None:
    damaged = damaged_log()
    for number, first in enumerate(crashes(damaged, model, range(1, 2))):
        # Every step of every second repair would be too many: each dies at another one.
        first.stop_at(1 + number * 7 % 40)
        with suppress(PowerCut):
            mend(first)
        disk = first.after_power_loss(number)
        with told(disk):
            check_nothing_thrown_away(disk, damaged)
            mend(disk)
            check_repaired(disk, damaged)
