"""Whatever happens to the files of a log, a repair keeps what is whole and throws nothing away."""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faulty_disk import FaultyDisk
from support.logs import Logs, kinds

from quivermq.disk import Buffer
from quivermq.errors import Corruption
from quivermq.frame import Header, parse_header
from quivermq.log import repair
from quivermq.model.messages import Record
from quivermq.segment import base_offset_of
from quivermq.segment.recovery import QUARANTINE

pytestmark = pytest.mark.fault("damage", "engine")

SETTINGS: dict[str, Any] = {"segment_messages": 4, "index_interval_bytes": 200}


def new_log() -> tuple[FaultyDisk, list[bytes], dict[Path, list[int]]]:
    """A closed log of a few segments: its disk, its values by offset, and where its frames begin."""
    disk = FaultyDisk()
    values: list[bytes] = []
    with Logs(Path("/data"), disk).open(**SETTINGS) as log:
        for number in range(9):
            batch = [b"%d.%d" % (number, n) + bytes(number * 7) for n in range(1 + number % 3)]
            log.append_many(batch)
            values += batch
    starts = {
        segment.path: [*(position for position, _ in segment.frames(segment.base_offset)), segment.end]
        for segment in log.segments
    }
    return disk, values, starts


DISK, VALUES, STARTS = new_log()
LOGS = sorted(STARTS)

Change = Callable[[FaultyDisk], None]


def rewritten(path: Path, change: Callable[[bytes], Buffer]) -> Change:
    """A change of a file's bytes; what is gone already cannot be changed."""

    def apply(disk: FaultyDisk) -> None:
        if disk.exists(path):
            data = disk.files()[path]
            file = disk.create(path)
            file.append([change(data)])
            file.close()

    return apply


def removed(path: Path) -> Change:
    def apply(disk: FaultyDisk) -> None:
        if disk.exists(path):
            disk.remove(path)

    return apply


@st.composite
def flips(draw: st.DrawFn) -> Change:
    path = draw(st.sampled_from(LOGS))
    position = draw(st.integers(0, STARTS[path][-1] - 1))
    mask = draw(st.integers(1, 255))

    def flip(data: bytes) -> Buffer:
        changed = bytearray(data)
        if position < len(changed):
            changed[position] ^= mask
        return changed

    return rewritten(path, flip)


@st.composite
def overwrites(draw: st.DrawFn) -> Change:
    path = draw(st.sampled_from(LOGS))
    start = draw(st.integers(0, STARTS[path][-1]))
    content = draw(st.sampled_from([b"\0", b"\xff", b"QVF1"])) * draw(st.integers(1, 100))
    return rewritten(
        path, lambda data: (data[:start] + content)[: len(data)] + data[start + len(content) :]
    )


@st.composite
def cuts(draw: st.DrawFn) -> Change:
    path = draw(st.sampled_from(LOGS))
    size = draw(st.integers(0, STARTS[path][-1]))
    return rewritten(path, lambda data: data[:size])


@st.composite
def insertions(draw: st.DrawFn) -> Change:
    path = draw(st.sampled_from(LOGS))
    start = draw(st.sampled_from(STARTS[path]))
    garbage = draw(st.sampled_from([b"\0" * 8, b"\xee" * 8, b"QVF1QVF1"])) * draw(st.integers(1, 20))
    return rewritten(path, lambda data: data[:start] + garbage + data[start:])


@st.composite
def moves(draw: st.DrawFn) -> Change:
    """Take frames away, or put a second copy of them somewhere."""
    path, target = draw(st.sampled_from(LOGS)), draw(st.sampled_from(LOGS))
    first = draw(st.integers(0, len(STARTS[path]) - 2))
    start, end = STARTS[path][first], STARTS[path][first + 1]
    if draw(st.booleans()):
        return rewritten(path, lambda data: data[:start] + data[end:])
    to = draw(st.sampled_from(STARTS[target]))
    frame = DISK.files()[path][start:end]
    return rewritten(target, lambda data: data[:to] + frame + data[to:])


removals = st.sampled_from([*LOGS[1:-1], *(path.with_suffix(".idx") for path in LOGS)]).map(removed)
changes = st.lists(
    flips() | overwrites() | cuts() | insertions() | moves() | removals, min_size=1, max_size=4
)


@settings(max_examples=80)
@given(changes)
def test_a_repaired_log_has_what_was_whole_and_nothing_else(happening: list[Change]) -> None:
    disk = DISK.after_kill()
    for change in happening:
        change(disk)
    broken = {path: data for path, data in disk.files().items() if path.suffix == ".log"}
    logs = Logs(Path("/data"), disk)
    done = repair(logs.path, disk=disk, clock=logs.clock)

    report = logs.verify(**SETTINGS)
    assert report.is_sound
    assert set(kinds(report.findings)) <= {"gap"}
    # No offset ever stands for another message than before, and none is skipped in silence.
    follower = logs.follow(**SETTINGS)
    for record in follower.records():
        assert record.value == VALUES[record.offset]
    covered = [offset for frame in follower.frames() for offset in _offsets(frame.header)]
    assert covered == list(range(follower.start, follower.end))
    # What was taken out is in the side files, byte by byte, and the rest is where it was.
    taken = {path: data for path, data in disk.files().items() if path.parent.name == QUARANTINE}
    assert {mended.side_file for mended in done.mended if mended.side_file} == taken.keys()
    for mended in done.mended:
        if mended.side_file:
            assert taken[mended.side_file] == broken[mended.path][mended.position : mended.end]
    again = repair(logs.path, disk=disk, clock=logs.clock)
    assert (again.mended, again.indexes_rebuilt) == ([], 0)
    with logs.open(**SETTINGS) as log:
        assert log.append(b"new") == follower.end


def _offsets(header: Header) -> range:
    return range(header.base_offset, header.end_offset)


@settings(max_examples=80)
@given(flips() | overwrites() | cuts())
def test_one_change_costs_only_the_frames_it_touched(change: Change) -> None:
    disk = DISK.after_kill()
    change(disk)
    before, after = DISK.files(), disk.files()
    logs = Logs(Path("/data"), disk)
    repair(logs.path, disk=disk, clock=logs.clock)
    there = {record.offset for record in logs.follow(**SETTINGS).records()}
    for path, starts in STARTS.items():
        offset = base_offset_of(path.name)
        assert offset is not None
        for start, end in pairwise(starts):
            count = _count(path, start)
            if before[path][start:end] == after[path][start:end]:
                assert set(range(offset, offset + count)) <= there
            offset += count


def _count(path: Path, position: int) -> int:
    return parse_header(DISK.files()[path], position).message_count


@settings(max_examples=80)
@given(changes)
def test_a_damaged_log_is_opened_read_up_to_the_damage_and_written_to(happening: list[Change]) -> None:
    disk = DISK.after_kill()
    for change in happening:
        change(disk)
    logs = Logs(Path("/data"), disk)
    log = logs.open(**SETTINGS)
    end = log.end
    served: list[Record] = []
    with suppress(Corruption):
        served.extend(log.records())
    for record in served:
        assert record.value == VALUES[record.offset]
    assert [record.offset for record in served] == list(range(log.start, log.start + len(served)))
    assert log.append(b"new", durability="fsync") == end
    log.close()
    repair(logs.path, disk=disk, clock=logs.clock)
    assert logs.verify(**SETTINGS).is_sound
    follower = logs.follow(**SETTINGS)
    assert [r.value for r in follower.records(end)][:1] == [b"new"]
