"""What a run of the archiver does: which ranges become files, and which files become one. It only looks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quivermq.archive.manifest import ArchivedFile, ArchivedLane
from quivermq.archive.places import LanePlace

# So many small files of a day may stay as they are.
FEW = 8
# Of the size that files should have, in raw bytes, a small one has at most this part, compressed.
_SMALL_PART = 8
_LARGE_PART = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a lane that becomes a file, or one for each day that it touches."""

    topic: str
    lane: LanePlace
    start: int
    end: int
    now_us: int
    """A range of which no frame is left belongs to this day."""


class Held(NamedTuple):
    """What a lane of the live log holds, up to where it survives power loss."""

    start: int
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Pace:
    """When a lane's messages are archived."""

    now_us: int
    age_us: int
    """Once the oldest that is not archived is so old, however few there are."""
    file_bytes: int
    """Once there are so many bytes, however young they are."""


def todo(archived: ArchivedLane, held: Held) -> tuple[int, int]:
    """The range of a lane that is not archived."""
    start = max(archived.end, held.start)
    return start, max(start, held.end)


def pieces(
    topic: str, place: LanePlace, archived: ArchivedLane, held: Held, oldest_us: int, pace: Pace
) -> list[Piece]:
    """The ranges of one lane that become files now, in order and without a hole.

    `oldest_us` is when the first frame that is not archived came in.
    """
    start, end = todo(archived, held)
    size = held.size_bytes * (end - start) // max(1, held.end - held.start)
    if start == end or (size < pace.file_bytes and oldest_us > pace.now_us - pace.age_us):
        return []
    parts = max(1, round(size / pace.file_bytes))
    step = -(-(end - start) // parts)
    return [
        Piece(topic, place, first, min(first + step, end), pace.now_us) for first in range(start, end, step)
    ]


def mergers(lane: ArchivedLane, file_bytes: int, *, few: int = FEW) -> list[list[ArchivedFile]]:
    """The small files that become one, together: neighbours of one day, where there are more than a few."""
    found = []
    for run in _small_runs(lane.files, file_bytes // _SMALL_PART):
        if len(run) > few:
            found += [group for group in _groups(run, file_bytes // _LARGE_PART) if len(group) > 1]
    return found


def _small_runs(files: Sequence[ArchivedFile], small_bytes: int) -> Iterator[list[ArchivedFile]]:
    run: list[ArchivedFile] = []
    for file in files:
        is_small = file.bytes < small_bytes
        if run and not (is_small and (run[-1].end, run[-1].day) == (file.start, file.day)):
            yield run
            run = []
        if is_small:
            run.append(file)
    yield run


def _groups(run: Sequence[ArchivedFile], large_bytes: int) -> Iterator[list[ArchivedFile]]:
    group: list[ArchivedFile] = []
    for file in run:
        if group and sum(each.bytes for each in group) + file.bytes > large_bytes:
            yield group
            group = []
        group.append(file)
    yield group
