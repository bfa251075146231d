"""A topic of GoQueue: its partitions, what waits in it, how far its groups are, and its dead letters."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from quivermq.disk import Disk
from quivermq.importers.goqueue_cipher import LOOKED_AT, Cipher, look_encrypted
from quivermq.importers.goqueue_delays import NO_DELAYS, Delays, PartitionOffset, read_delays
from quivermq.importers.goqueue_items import GoTranslator
from quivermq.importers.goqueue_letters import open_letter
from quivermq.importers.goqueue_records import COMMIT, LAYOUT, GoRecord, record_of
from quivermq.importers.model import Death, Findings, Item, Position, SeenId, SourceGroup, text_identity
from quivermq.importers.segment_files import segment_files, told_segment_files, total_bytes, witnesses_of
from quivermq.importers.segments import StoredRecord, Unreadable, whole_records

SUFFIX = ".log"
# What tells nothing that the segments do not tell.
BESIDE = (".index", ".timeindex")
LETTERS_SUFFIX = ".dlq"

Partitions = Mapping[int, Path]


@dataclass(slots=True, kw_only=True)
class TopicState:
    """What a broker knows of a topic beside its messages."""

    delays: Path | None = None
    """Where its delays are kept."""
    positions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By group and partition, the next offset."""
    aborted: Collection[PartitionOffset] = ()
    unended: Collection[PartitionOffset] = ()
    is_known: bool = False
    """Whether it is known which messages are aborted."""


class GoTopic:
    """Its partitions by number, and those of the topics that hold its dead letters, by name."""

    seen_ids: Sequence[SeenId] = ()
    settings: Mapping[str, object] = MappingProxyType({})
    passed_over = 0

    def __init__(
        self,
        name: str,
        disk: Disk,
        findings: Findings,
        partitions: Partitions,
        letters: Mapping[str, Partitions],
        state: TopicState,
        cipher: Cipher | None = None,
    ) -> None:
        self.name = name
        self._disk = disk
        self._findings = findings
        self._partitions = partitions
        self._letters = letters
        self._state = state
        self._cipher = cipher
        self._delays: Delays | None = None

    @property
    def partitions(self) -> int:
        return max((number for _, number in self._paths()), default=0) + 1

    @property
    def size_bytes(self) -> int:
        paths = self._paths().values()
        return sum(total_bytes(self._disk, segment_files(self._disk, path, SUFFIX)) for path in paths)

    @property
    def witnesses(self) -> Sequence[str]:
        found: list[str] = []
        for place, path in self._paths().items():
            files = segment_files(self._disk, path, SUFFIX)
            found += witnesses_of(self._disk, files, LAYOUT.header_bytes, *place)
        return found

    @property
    def groups(self) -> Sequence[SourceGroup]:
        if self._delays is None:
            self._delays = self._read_delays()
        groups = []
        for name, told in sorted(self._state.positions.items()):
            positions = {
                number: Position(offset, self._waiting(number, offset))
                for number, offset in sorted(told.items())
                if number in self._partitions
            }
            groups.append(SourceGroup(name, positions))
        return groups

    def items(self) -> Iterator[Item]:
        self._delays = self._read_delays()
        missing = set(self._delays.due_us)
        hidden = 0
        for number, path in self._partitions.items():
            translator = GoTranslator(number, self._findings)
            looked_at: list[bytes] = []
            for stored, record in self._messages(path):
                if len(looked_at) < LOOKED_AT:
                    looked_at.append(record.value)
                place = (number, record.offset)
                missing.discard(place)
                if place in self._state.aborted or place in self._state.unended:
                    hidden += place in self._state.unended
                    continue
                item = translator.item(stored, record)
                if item is not None:
                    item.deliver_at_us = self._delays.due_us.get(place)
                    item.is_consumed = place in self._delays.done
                    yield item
            if self._cipher is None and look_encrypted(looked_at):
                problem = (
                    "its values look encrypted: if they are, import with the key they were encrypted with"
                )
                self._findings.add(path, None, problem, is_damage=False)
        self._tell_hidden(hidden, missing)

    def dead_letters(self) -> Iterator[Item]:
        for name, partitions in self._letters.items():
            for number, path in partitions.items():
                translator = GoTranslator(number, self._findings)
                for stored, record in self._messages(path):
                    item = translator.item(stored, record)
                    if item is None:
                        continue
                    self._open(item, stored)
                    if name != self.name + LETTERS_SUFFIX:
                        # Others lie in another topic, and have the same offsets.
                        item.identity = text_identity(f"{name}\n{record.offset}")
                    yield item

    def _paths(self) -> dict[tuple[str, int], Path]:
        """All directories. The topic itself is under no name, because a copy may be called otherwise."""
        named = {"": self._partitions, **self._letters}
        return {(name, number): path for name, paths in named.items() for number, path in paths.items()}

    def _messages(self, directory: Path) -> Iterator[tuple[StoredRecord, GoRecord]]:
        files = told_segment_files(self._disk, directory, SUFFIX, BESIDE, self._findings)
        for stored, _ in whole_records(self._disk, files, LAYOUT, self._findings):
            record = record_of(stored)
            if self._cipher is not None and record.value:
                try:
                    record = record._replace(value=self._cipher.decrypted(record.value))
                except Unreadable as error:
                    problem = f"offset {record.offset} cannot be decrypted: {error}"
                    self._findings.add(stored.path, stored.position, problem, length=len(stored.data))
                    continue
            if record.is_control:
                self._tell_abort(stored, record)
            else:
                yield stored, record

    def opened_values(self, cipher: Cipher, limit: int) -> Iterator[bool]:
        """Whether the key opens them, for the first values of each partition."""
        for path in self._paths().values():
            files = segment_files(self._disk, path, SUFFIX)
            records = (record_of(each) for each, _ in whole_records(self._disk, files, LAYOUT, Findings(0)))
            for record in islice((each for each in records if each.value), limit):
                try:
                    cipher.decrypted(record.value)
                except Unreadable:
                    yield False
                else:
                    yield True

    def _open(self, item: Item, stored: StoredRecord) -> None:
        try:
            open_letter(item)
        except ValueError as error:
            problem = f"offset {item.identity} is kept as it is: it is no dead letter of GoQueue, {error}"
            self._findings.add(stored.path, stored.position, problem, is_damage=False)
            item.dead = Death()

    def _read_delays(self) -> Delays:
        path = self._state.delays
        return NO_DELAYS if path is None else read_delays(self._disk, path, self._findings)

    def _waiting(self, partition: int, end: int) -> dict[int, int]:
        """What waits before an offset: a group passed over it, and has not had it."""
        assert self._delays is not None
        places = sorted(self._delays.due_us)
        return {offset: 0 for number, offset in places if number == partition and offset < end}

    def _tell_abort(self, stored: StoredRecord, record: GoRecord) -> None:
        if record.flags & COMMIT or self._state.is_known:
            return
        problem = (
            f"the transaction {record.transaction!r:.80} was aborted; which messages are its own is not"
            " known here, and they are imported"
        )
        self._findings.add(stored.path, stored.position, problem, is_damage=False)

    def _tell_hidden(self, hidden: int, missing: set[PartitionOffset]) -> None:
        paths = list(self._partitions.values())
        if hidden:
            problem = f"of transactions that were not ended, messages are left out: {hidden}"
            self._findings.add(paths[0].parent, None, problem, is_damage=False)
        if missing and self._state.delays is not None:
            partition, offset = min(missing)
            problem = (
                f"messages wait in it that are in no log: {len(missing)}, the first is offset {offset} of"
                f" partition {partition}"
            )
            self._findings.add(self._state.delays, None, problem)
