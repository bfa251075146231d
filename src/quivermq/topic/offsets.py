"""Sets of offsets, which mostly are one run from the beginning on."""

from collections.abc import Iterable, Iterator

from quivermq.errors import InvalidFrame

# More than is ever changed at once: whatever wrote this was not this program.
_RANGE_MAX = 2**28


def runs(offsets: Iterable[int]) -> list[int]:
    """Offsets as a flat list of half-open ranges: start, end, start, end …"""
    ordered = sorted(offsets)
    if not ordered:
        return []
    first, last = ordered[0], ordered[-1]
    if last - first + 1 == len(ordered):
        return [first, last + 1]
    flat = [first]
    previous = first
    for offset in ordered[1:]:
        if offset != previous + 1:
            flat += (previous + 1, offset)
        previous = offset
    flat.append(last + 1)
    return flat


def merged(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Ranges that come in order as a flat list, in which those that touch are one."""
    flat: list[int] = []
    for start, end in ranges:
        if flat and flat[-1] == start:
            flat[-1] = end
        else:
            flat += (start, end)
    return flat


def offsets_of(flat: Iterable[int]) -> Iterator[int]:
    """The offsets that a flat list of ranges stands for."""
    ends = iter(flat)
    for start in ends:
        end = next(ends, -1)
        if not 0 <= start <= end <= start + _RANGE_MAX:
            raise InvalidFrame(f"[{start}, {end}) is no range of offsets", position=0)
        yield from range(start, end)


class OffsetSet:
    """Everything before `floor`, and some offsets behind it."""

    __slots__ = ("_above", "floor")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self._above: set[int] = set()

    def __contains__(self, offset: int) -> bool:
        return offset < self.floor or offset in self._above

    def __bool__(self) -> bool:
        return self.floor > 0 or bool(self._above)

    def __len__(self) -> int:
        return self.floor + len(self._above)

    def add(self, offsets: Iterable[int]) -> None:
        self._above.update(offset for offset in offsets if offset >= self.floor)
        self._close_up()

    def raise_floor(self, floor: int) -> None:
        """Take in everything before `floor`."""
        if floor > self.floor:
            self.floor = floor
            self._above = {offset for offset in self._above if offset >= floor}
            self._close_up()

    def cut(self, end: int) -> None:
        """Forget everything from `end` on: those offsets will be other messages."""
        self.floor = min(self.floor, end)
        self._above = {offset for offset in self._above if offset < end}

    def missing_between(self, start: int, end: int) -> int:
        """How many offsets of a range are not in the set."""
        start = max(start, self.floor)
        return max(0, end - start) - sum(start <= offset < end for offset in self._above)

    def runs(self) -> list[int]:
        """What lies behind the floor, as a flat list of ranges."""
        return runs(self._above)

    def _close_up(self) -> None:
        """Let the floor stand before the first offset that is not in the set."""
        while self.floor in self._above:
            self._above.discard(self.floor)
            self.floor += 1
