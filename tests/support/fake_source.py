"""A queue to import from that is only in memory: the side that writes cannot tell the difference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from quivermq.importers import importing
from quivermq.importers.model import Death, Findings, ImportSource, Item, SeenId, SourceGroup

MOMENT_US = 1_794_772_570_000_000


def item(number: int, **fields: Any) -> Item:
    """A message whose offset is that number."""
    told = {
        "identity": number,
        "id": str(number),
        "value": b"%d" % number,
        "timestamp_us": MOMENT_US + number,
    }
    return Item(**{**told, **fields})


def letter(number: int, **story: Any) -> Item:
    """A dead letter."""
    return item(number, value=b"dead %d" % number, dead=Death(**story))


@dataclass(slots=True)
class FakeTopic:
    """A topic with whatever it is given."""

    name: str = "orders"
    live: list[Item] = field(default_factory=list)
    dead: list[Item] = field(default_factory=list)
    groups: Sequence[SourceGroup] = ()
    seen_ids: Sequence[SeenId] = ()
    partitions: int = 1
    witnesses: Sequence[str] = ("first segment",)
    settings: Mapping[str, object] = field(default_factory=dict)
    passed_over: int = 0

    @property
    def size_bytes(self) -> int:
        return 100 * len(self.live)

    def items(self) -> Iterator[Item]:
        # Copies, because whoever imports may change what it gets.
        return iter([replace(each) for each in self.live])

    def dead_letters(self) -> Iterator[Item]:
        return iter([replace(each) for each in self.dead])


class Shelf:
    """Where `import_queue` finds sources: whatever stands here is what it opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics: list[FakeTopic] = []
        self.has_names = True
        monkeypatch.setattr(importing, "open_source", self._open)

    def _open(self, *_: object) -> ImportSource:
        return ImportSource("fake", Path("/fake"), self.topics, Findings(), self.has_names)
