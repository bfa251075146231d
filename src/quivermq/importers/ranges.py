"""Which numbers of many there were: whole runs cost as little as single ones."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """A set of whole numbers that mostly follow each other. What is added in order costs nearly nothing."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        # Sorted, half-open, and never touching each other.
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add_range(start, end)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number < self._ends[place]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The runs, half-open, in order."""
        return zip(self._starts, self._ends, strict=True)

    def add(self, number: int) -> None:
        if self._ends and self._ends[-1] == number:
            self._ends[-1] = number + 1
        else:
            self.add_range(number, number + 1)

    def add_range(self, start: int, end: int) -> None:
        """Take in every number from `start` up to but not including `end`."""
        if start >= end:
            return
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
