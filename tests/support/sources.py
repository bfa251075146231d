"""What a reader of another queue gives, in a form that is easy to compare."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from quivermq.disk import SystemDisk
from quivermq.importers.model import Finding, Findings, Item, SourceTopic

DISK = SystemDisk()

Topic = TypeVar("Topic", bound=SourceTopic)


def offsets(items: list[Item]) -> list[int]:
    return [item.identity for item in items]


def damage(findings: Findings) -> list[tuple[str, int | None, int | None]]:
    """Where something is damaged: the name of the file, the byte, and how many bytes."""
    return [(each.path.name, each.position, each.length) for each in findings.kept if each.is_damage]


def problems(findings: Findings, *, is_damage: bool = True) -> list[str]:
    return [each.problem for each in findings.kept if each.is_damage is is_damage]


def only(findings: Findings) -> Finding:
    """The one finding there is."""
    [finding] = findings.kept
    return finding


def topic_named(topics: Sequence[Topic], name: str) -> Topic:
    [found] = [topic for topic in topics if topic.name == name]
    return found


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


class Change(NamedTuple):
    """Something that happens to the bytes of a file; places are shares of its length."""

    kind: str
    place: float
    data: bytes

    def apply(self, whole: bytes) -> bytes:
        start = int(self.place * len(whole))
        if self.kind == "cut":
            return whole[:start]
        if self.kind == "insert":
            return whole[:start] + self.data + whole[start:]
        if self.kind == "remove":
            return whole[:start] + whole[start + len(self.data) :]
        return whole[:start] + self.data + whole[start + len(self.data) :]


def changes() -> st.SearchStrategy[Change]:
    kinds = st.sampled_from(["cut", "insert", "remove", "overwrite", "overwrite"])
    return st.builds(Change, kinds, st.floats(0, 1), st.binary(min_size=1, max_size=60))


def damaged(whole: bytes, damage: Sequence[Change]) -> bytes:
    for change in damage:
        whole = change.apply(whole)
    return whole
