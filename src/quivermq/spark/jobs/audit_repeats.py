"""Finding what is there twice in a whole store, without holding more than a share of it in memory.

Each task makes marks: the hash of what must not repeat, when it came in and where it lies. Marks are dealt
out by their hash, so that those that may be the same come to the same task.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quivermq.topic.partition import LANES

MARK = np.dtype(
    [("hash", "<u8"), ("time_us", "<i8"), ("offset", "<i8"), ("partition", "<i4"), ("lane", "<i4")]
)
SHARES = 16

Marks = npt.NDArray[np.void]


class Repeat(NamedTuple):
    """Two places with the same mark, the earlier one first."""

    first: tuple[int, str, int]
    second: tuple[int, str, int]


def marks_of(
    hashes: npt.NDArray[np.uint64], times_us: object, offsets: object, partition: int, lane: int
) -> Marks:
    """Marks of messages of one lane."""
    marks = np.zeros(len(hashes), MARK)
    marks["hash"], marks["time_us"], marks["offset"] = hashes, times_us, offsets
    marks["partition"], marks["lane"] = partition, lane
    return marks


def hashed(values: Sequence[object]) -> npt.NDArray[np.uint64]:
    """64 bits of each value, the same in every process."""
    from pandas.util import hash_array

    array = np.empty(len(values), object)
    array[:] = values
    hashes: npt.NDArray[np.uint64] = hash_array(array, categorize=False)
    return hashes


def dealt(marks: Marks) -> Iterator[tuple[int, bytes]]:
    """Marks by the share that their hash belongs to."""
    share = (marks["hash"] % SHARES).astype(np.intp)
    for number in np.unique(share):
        yield int(number), marks[share == number].tobytes()


def repeats(blobs: Iterable[bytes], window_us: int | None) -> list[Repeat]:
    """Which marks are there twice, no further apart than the window; None is for ever."""
    marks = np.frombuffer(b"".join(blobs), MARK)
    marks = marks[np.lexsort((marks["offset"], marks["time_us"], marks["hash"]))]
    is_same = marks["hash"][1:] == marks["hash"][:-1]
    if window_us is not None:
        is_same &= marks["time_us"][1:] - marks["time_us"][:-1] < window_us
    at = np.flatnonzero(is_same)
    return [Repeat(_place(marks[i]), _place(marks[i + 1])) for i in at]


def _place(mark: np.void) -> tuple[int, str, int]:
    return int(mark["partition"]), LANES[mark["lane"]], int(mark["offset"])
