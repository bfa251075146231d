"""The names in directories: what processes see, what the platter holds, and the changes in between.

Changes of different names are forgotten or kept independently of each other. A change is never kept
without the earlier ones of the same name: then no file has two names, and a rename loses neither.
"""

from dataclasses import dataclass, field
from random import Random

from quivermq.chaos.faulty_disk.inode import Inode, Keep


@dataclass(slots=True, eq=False)
class Directory:
    """Names and what they stand for."""

    number: int
    live: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)

    def copy(self, twins: "dict[Node, Node]") -> "Directory":
        """The same names on a disk of its own. `twins` are the copies that were made already."""
        twin = Directory(self.number)
        twins[self] = twin
        for names, copied in ((self.live, twin.live), (self.durable, twin.durable)):
            copied.update((name, _twin(node, twins)) for name, node in names.items())
        return twin


Node = Inode | Directory
Entry = tuple[Directory, str, Node | None]  # None: the name is gone


@dataclass(slots=True, eq=False)
class NameChange:
    """Entries that change together or not at all: one to create or remove, two to rename."""

    entries: tuple[Entry, ...]
    # A sync of it failed. No later sync tries again, but a new change of the same name writes the
    # place anew and takes this one with it.
    lost: bool = False

    def copy(self, twins: dict[Node, Node]) -> "NameChange":
        """The same change on a disk of its own."""
        entries = (
            (_twin_directory(directory, twins), name, None if node is None else _twin(node, twins))
            for directory, name, node in self.entries
        )
        return NameChange(tuple(entries), self.lost)

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

    def copy(self, twins: dict[Node, Node]) -> "NameHistory":
        """The same history on a disk of its own."""
        twin = NameHistory()
        twin._unsynced = [change.copy(twins) for change in self._unsynced]
        return twin

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


def _twin(node: Node, twins: dict[Node, Node]) -> Node:
    """The one copy of a node, whichever names and changes speak of it."""
    if node not in twins:
        twins[node] = node.copy() if isinstance(node, Inode) else node.copy(twins)
    return twins[node]


def _twin_directory(directory: Directory, twins: dict[Node, Node]) -> Directory:
    twin = _twin(directory, twins)
    assert isinstance(twin, Directory)
    return twin


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
