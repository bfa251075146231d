"""Files and directories in memory: what processes see, what the platter holds, and the changes in between.

A power cut leaves each sector of a file as it was at some moment since the last sync, each at its own
moment, and the size as it was at yet another. Everything a file system may do to unsynced bytes follows
from that: lost and torn writes, zeros in the middle, an old end with new bytes before it.

Changes of different names are forgotten or kept independently of each other. A change is never kept
without the earlier ones of the same name: then no file has two names, and a rename loses neither.

This module knows no paths, and nothing of processes: those are in `faulty_device` and `faulty_disk`.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Literal

SECTOR_BYTES = 512  # what a drive writes whole or not at all

Keep = Literal["nothing", "random", "everything"]  # which unsynced changes outlive the power


@dataclass(slots=True, frozen=True)
class Write:
    position: int
    data: bytes


@dataclass(slots=True, frozen=True)
class Resize:
    size: int


Change = Write | Resize


class Inode:
    """A file without a name."""

    def __init__(self, number: int, content: bytes | bytearray = b"") -> None:
        self.number = number
        self.live = bytearray(content)
        self.durable = bytearray(content)
        self.unreadable: set[int] = set()
        self._unsynced: list[Change] = []
        self._synced = 0

    def __deepcopy__(self, _: object) -> "Inode":
        # Changes never change, so that the list of them is enough.
        twin = Inode(self.number, self.live)
        twin.durable = bytearray(self.durable)
        twin.unreadable = set(self.unreadable)
        twin._unsynced = list(self._unsynced)
        twin._synced = self._synced
        return twin

    def change(self, change: Change) -> None:
        """Change what processes see, and leave the platter for a later sync."""
        _apply(change, self.live)
        self._unsynced.append(change)

    def moment(self) -> int:
        """How many changes there ever were. A sync that starts now owes its caller only these."""
        return self._synced + len(self._unsynced)

    def sync(self, moment: int) -> None:
        """Bring every change before `moment` to the platter."""
        count = self._count_before(moment)
        for change in self._unsynced[:count]:
            _apply(change, self.durable)
        self._forget(count, [])

    def sync_in_part(self, moment: int, rng: Random) -> None:
        """Bring some of it to the platter, and owe the rest: the process dies in the middle."""
        count = self._count_before(moment)
        whole = _replay(self.durable, self._unsynced[:count])
        self.durable = _arbitrary(self.durable, self._unsynced[:count], rng)
        self._forget(count, [Resize(len(whole)), Write(0, bytes(whole))])

    def fail_sync(self, moment: int, keep: Keep, rng: Random) -> None:
        """Bring to the platter what `keep` says, and never try the rest again.

        The kernel marks the pages clean although they were not written. Processes go on seeing
        the bytes; the file's size is metadata and still gets out, so later syncs leave zeros there.
        """
        count = self._count_before(moment)
        if count:
            size = _sizes(self.durable, self._unsynced[:count])[-1]
            self.durable = _survivor(self.durable, self._unsynced[:count], keep, rng)
            self._forget(count, [Resize(size)])

    def after_power_loss(self, keep: Keep, rng: Random) -> "Inode":
        """The file as the next boot finds it."""
        found = Inode(self.number, _survivor(self.durable, self._unsynced, keep, rng))
        found.unreadable = set(self.unreadable)
        return found

    def flip(self, position: int, mask: int) -> None:
        """Change bits everywhere the byte is held, so that no later sync puts it right."""
        self.live[position] ^= mask
        if position < len(self.durable):
            self.durable[position] ^= mask
        self._unsynced = [_flipped(change, position, mask) for change in self._unsynced]

    def chop(self, size: int) -> None:
        """Lose everything from `size` on, everywhere it is held."""
        del self.live[size:]
        del self.durable[size:]
        self._unsynced = [_chopped(change, size) for change in self._unsynced]

    def _count_before(self, moment: int) -> int:
        return max(0, moment - self._synced)

    def _forget(self, count: int, still_unsynced: list[Change]) -> None:
        self._unsynced[:count] = still_unsynced
        self._synced += count - len(still_unsynced)


def _apply(change: Change, image: bytearray) -> None:
    match change:
        case Resize(size):
            _resize(image, size)
        case Write(position, data):
            _resize(image, max(len(image), position))
            image[position : position + len(data)] = data


def _resize(image: bytearray, size: int) -> None:
    del image[size:]
    image.extend(bytes(size - len(image)))


def _flipped(change: Change, position: int, mask: int) -> Change:
    if not isinstance(change, Write) or not 0 <= position - change.position < len(change.data):
        return change
    data = bytearray(change.data)
    data[position - change.position] ^= mask
    return Write(change.position, bytes(data))


def _chopped(change: Change, size: int) -> Change:
    match change:
        case Resize():
            return Resize(min(change.size, size))
        case Write(position, data):
            return Write(min(position, size), data[: max(0, size - position)])


def _replay(durable: bytearray, changes: list[Change]) -> bytearray:
    image = bytearray(durable)
    for change in changes:
        _apply(change, image)
    return image


def _sizes(durable: bytearray, changes: list[Change]) -> list[int]:
    """The file's size at every moment, from before the first change to after the last."""
    sizes = [len(durable)]
    for change in changes:
        match change:
            case Resize(size):
                sizes.append(size)
            case Write(position, data):
                sizes.append(max(sizes[-1], position + len(data)))
    return sizes


def _survivor(durable: bytearray, changes: list[Change], keep: Keep, rng: Random) -> bytearray:
    match keep:
        case "nothing":
            return bytearray(durable)
        case "everything":
            return _replay(durable, changes)
        case "random":
            return _arbitrary(durable, changes, rng)


def _arbitrary(durable: bytearray, changes: list[Change], rng: Random) -> bytearray:
    """The file as any file system may leave it: see the top of this module."""
    sizes = _sizes(durable, changes)
    # Sometimes everything is of one moment: a clean prefix is a case of its own, and files of many
    # sectors would hardly ever get it by chance.
    one_moment = rng.randint(0, len(changes)) if rng.random() < 0.4 else None
    sectors_at = defaultdict(list)
    for sector, moments in sorted(_moments_of_sectors(sizes, changes).items()):
        sectors_at[rng.choice(moments) if one_moment is None else one_moment].append(sector)

    image = bytearray(durable)
    survivor = bytearray(durable)
    _resize(survivor, max(sizes) + SECTOR_BYTES)
    for moment, change in enumerate(changes, start=1):
        _apply(change, image)
        for sector in sectors_at[moment]:
            start, end = sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES
            survivor[start:end] = image[start:end].ljust(SECTOR_BYTES, b"\0")
    _resize(survivor, _arbitrary_size(sizes, one_moment, rng))
    return survivor


def _moments_of_sectors(sizes: list[int], changes: list[Change]) -> dict[int, list[int]]:
    """For each sector that was touched: the moment before, and every one that touched it."""
    moments: dict[int, list[int]] = {}
    spans = zip(changes, pairwise(sizes), strict=True)
    for moment, (change, (before, after)) in enumerate(spans, start=1):
        match change:
            case Resize():
                start, end = after, before
            case Write(position, data):
                start, end = position, position + len(data)
        for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            moments.setdefault(sector, [0]).append(moment)
    return moments


def _arbitrary_size(sizes: list[int], one_moment: int | None, rng: Random) -> int:
    moment = rng.randrange(len(sizes)) if one_moment is None else one_moment
    before, after = sizes[max(0, moment - 1)], sizes[moment]
    # Growing happens page by page and may stop anywhere; shrinking happens at once.
    return rng.randint(before, after) if before < after and rng.random() < 0.4 else after


@dataclass(slots=True, eq=False)
class Directory:
    """Names and what they stand for."""

    number: int
    live: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)


Node = Inode | Directory
Entry = tuple[Directory, str, Node | None]  # None: the name is gone


@dataclass(slots=True, eq=False)
class NameChange:
    """Entries that change together or not at all: one to create or remove, two to rename."""

    entries: tuple[Entry, ...]
    # A sync of it failed. No later sync tries again, but a new change of the same name writes the
    # place anew and takes this one with it.
    lost: bool = False

    def touches(self, directory: Directory) -> bool:
        return any(directory is touched for touched, _, _ in self.entries)

    def shares_a_name_with(self, other: "NameChange") -> bool:
        return any(
            mine is theirs and my_name == their_name
            for mine, my_name, _ in self.entries
            for theirs, their_name, _ in other.entries
        )


class NameHistory:
    """All changes of names, in all directories, that no sync has covered yet."""

    def __init__(self) -> None:
        self._unsynced: list[NameChange] = []

    def change(self, *entries: Entry) -> None:
        """Change what processes see, and leave the platter for a later sync."""
        for directory, name, node in entries:
            _set(directory.live, name, node)
        self._unsynced.append(NameChange(entries))

    def sync(self, directory: Directory) -> None:
        """Make the names in the directory durable."""
        self._make_durable(_kept(self._needed_by(directory), "everything", Random(0)))

    def sync_in_part(self, directory: Directory, rng: Random) -> None:
        """Make some of them durable, and owe the rest: the process dies in the middle."""
        self._make_durable(_kept(self._needed_by(directory), "random", rng))

    def fail_sync(self, directory: Directory, keep: Keep, rng: Random) -> None:
        """Make durable what `keep` says, and never try the rest again."""
        needed = self._needed_by(directory)
        kept = _kept(needed, keep, rng)
        self._make_durable(kept)
        for change in needed:
            change.lost = change.lost or change not in kept

    def after_power_loss(self, keep: Keep, rng: Random) -> dict[Directory, dict[str, Node]]:
        """The names as the next boot finds them, of every directory that has unsynced changes."""
        found: dict[Directory, dict[str, Node]] = {}
        for change in _kept(self._unsynced, keep, rng):
            for directory, name, node in change.entries:
                _set(found.setdefault(directory, dict(directory.durable)), name, node)
        return found

    def _needed_by(self, directory: Directory) -> list[NameChange]:
        """The directory's own changes, and the earlier ones elsewhere that they build on."""
        own = [change for change in self._unsynced if change.touches(directory)]
        return _with_earlier(self._unsynced, own)

    def _make_durable(self, changes: list[NameChange]) -> None:
        for change in changes:
            for directory, name, node in change.entries:
                _set(directory.durable, name, node)
        self._unsynced = [change for change in self._unsynced if change not in changes]


def _kept(changes: list[NameChange], keep: Keep, rng: Random) -> list[NameChange]:
    chance = {"nothing": 0.0, "everything": 1.0, "random": rng.choice((0.25, 0.5, 0.75))}[keep]
    chosen = [change for change in changes if not change.lost and rng.random() < chance]
    return _with_earlier(changes, chosen)


def _with_earlier(changes: list[NameChange], wanted: list[NameChange]) -> list[NameChange]:
    """The wanted changes, in order, and every earlier one that they build on."""
    found: list[NameChange] = []
    for change in reversed(changes):
        if change in wanted or any(map(change.shares_a_name_with, found)):
            found.append(change)
    return found[::-1]


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
