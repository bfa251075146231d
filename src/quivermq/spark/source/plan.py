"""From the ranges of lanes to tasks."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from quivermq.reading.rows import Range

# About as much as a core reads in a second: many tasks for a large lane, and not too many.
TASK_BYTES = 64 * 1024 * 1024
# Ranges this small share a task, which costs as much as reading thousands of messages.
_SMALL_BYTES = 1024 * 1024
# Where only offsets are known, and not what they take.
_TASK_ROWS = 500_000
_SMALL_ROWS = 10_000


def tasks_by_size(ranges: Iterable[Range], tasks_min: int | None = None) -> list[list[Range]]:
    """Ranges cut and put together so that each task has about the same to read."""
    ranges = [part for part in ranges if part.start < part.end]
    if not tasks_min:
        return _tasks(ranges, [part.size_bytes for part in ranges], TASK_BYTES, _SMALL_BYTES)
    sizes = [max(1, part.size_bytes) for part in ranges]
    return _tasks(ranges, sizes, _share(sum(sizes), tasks_min, TASK_BYTES), 0)


def tasks_by_rows(ranges: Iterable[Range], tasks_min: int | None = None) -> list[list[Range]]:
    """The same by offsets alone: nothing else than the ranges decides, so a second time gives the same."""
    ranges = [part for part in ranges if part.start < part.end]
    rows = [part.end - part.start for part in ranges]
    if not tasks_min:
        return _tasks(ranges, rows, _TASK_ROWS, _SMALL_ROWS)
    return _tasks(ranges, rows, _share(sum(rows), tasks_min, _TASK_ROWS), 0)


def _share(total: int, tasks_min: int, largest: int) -> int:
    return max(1, min(total // tasks_min, largest))


def _tasks(ranges: list[Range], sizes: list[int], largest: int, small: int) -> list[list[Range]]:
    """Cut what is larger than `largest`; let about ten that are smaller than `small` share a task."""
    tasks: list[list[Range]] = []
    shared: list[Range] = []
    shared_size = 0
    for part, size in zip(ranges, sizes, strict=True):
        if size >= small:
            tasks += [[piece] for piece in cut_range(part, -(-size // largest))]
            continue
        if shared_size + size > 10 * small:
            tasks.append(shared)
            shared, shared_size = [], 0
        shared.append(part)
        shared_size += size
    return [*tasks, shared] if shared else tasks


def cut_range(part: Range, pieces: int) -> Iterator[Range]:
    """A range as so many pieces of about the same length, each with at least one offset."""
    rows = part.end - part.start
    pieces = max(1, min(pieces, rows))
    edges = [part.start + rows * place // pieces for place in range(pieces + 1)]
    for start, end in pairwise(edges):
        size = part.size_bytes * (end - start) // rows
        yield part._replace(start=start, end=end, size_bytes=size)
