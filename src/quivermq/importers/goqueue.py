"""The directory of a GoQueue broker, of one of its topics, or of one partition.

A partition is `logs/<topic>/<number>/<base offset>.log`. The dead letters of a topic are in the topic
`<topic>.dlq`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, StorageFailed
from quivermq.importers.files import (
    first_bytes,
    names_in,
    segment_files,
    subdirectories,
    told_segment_files,
    total_bytes,
    witnesses_of,
)
from quivermq.importers.goqueue_records import (
    COMMIT,
    LAYOUT,
    LOOKED_AT,
    Cipher,
    GoRecord,
    GoTranslator,
    look_encrypted,
    open_letter,
    read_key,
    record_of,
)
from quivermq.importers.goqueue_state import (
    NO_DELAYS,
    NO_TRANSACTIONS,
    Committed,
    Delays,
    PartitionOffset,
    left_behind,
    read_committed,
    read_delays,
    read_transactions,
)
from quivermq.importers.model import Death, Findings, Item, Position, SeenId, SourceGroup, text_identity
from quivermq.importers.segments import StoredRecord, Unreadable, whole_records
from quivermq.model.topic_settings import PARTITIONS_MAX

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


KIND = "goqueue"

_MAGIC = b"GQ"
# What is understood; of everything else it is told that it is left out.
_PARTS = {"logs", "offsets", "delay", "transactions"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
# While a partition is compacted, the old one is moved aside before the new one takes its place.
_ASIDE = ".old"


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory may be one of GoQueue."""
    try:
        topics = [path, *subdirectories(disk, path / "logs")]
        partitions = [path, *(part for topic in topics for part in subdirectories(disk, topic))]
        return any(_is_partition(disk, each) for each in partitions)
    except StorageFailed:
        return False


def open_encrypted(path: Path, disk: Disk, key: str) -> "GoSource":
    """The same for values that are encrypted. Raises InvalidRequest, also for a key that opens none."""
    cipher = Cipher(read_key(key, disk))
    source = open_source(path, disk, cipher)
    opened = [each for topic in source.topics for each in topic.opened_values(cipher, LOOKED_AT)]
    if opened and not any(opened):
        raise InvalidRequest(
            f"the key opens none of the first values in {path}: it is the key of another queue"
        )
    return source


def open_source(path: Path, disk: Disk, cipher: Cipher | None = None) -> "GoSource":
    """The topics in a directory. Raises InvalidRequest when it is not one of GoQueue."""
    findings = Findings()
    if disk.is_directory(path / "logs"):
        topics = {
            topic.name: _partitions(disk, topic, findings)
            for topic in subdirectories(disk, path / "logs", findings)
        }
        if not any(topics.values()) and any(names_in(disk, path / "logs" / name) for name in topics):
            raise InvalidRequest(
                f"{path} is no directory of GoQueue: logs/ has no partition such as logs/x/0/"
            )
        return GoSource(path, disk, findings, topics, has_names=True, cipher=cipher)
    if segment_files(disk, path, SUFFIX):
        return GoSource(path, disk, findings, {path.name: {0: path}}, has_names=False, cipher=cipher)
    below = subdirectories(disk, path)
    if any(_is_partition(disk, each) for each in below) and (
        partitions := _partitions(disk, path, findings)
    ):
        return GoSource(path, disk, findings, {path.name: partitions}, has_names=False, cipher=cipher)
    inside = [
        part for topic in below for part in subdirectories(disk, topic) if _NUMBER.fullmatch(part.name)
    ]
    if any(_is_partition(disk, each) for each in inside):
        raise InvalidRequest(f"{path} has the topics of a GoQueue broker: give the directory above it")
    raise InvalidRequest(
        f"{path} is no directory of GoQueue: it has no logs/, no partitions such as 0/ and no files such as"
        " 00000000000000000000.log"
    )


def _is_partition(disk: Disk, path: Path) -> bool:
    """Whether a segment begins as those of GoQueue do: other queues have files of the same names."""
    begins = [first_bytes(disk, segment.path, len(_MAGIC)) for segment in segment_files(disk, path, SUFFIX)]
    if not any(begins):
        # Nothing was put there yet; no other queue has an index of that name.
        return bool(begins) and any(name.endswith(BESIDE) for name in names_in(disk, path))
    return _MAGIC in begins


def _partitions(disk: Disk, topic: Path, findings: Findings) -> Partitions:
    found: dict[int, Path] = {}
    aside: dict[int, Path] = {}
    for path in subdirectories(disk, topic, findings):
        digits = path.name.removesuffix(_ASIDE)
        if _NUMBER.fullmatch(digits) and int(digits) < PARTITIONS_MAX:
            (found if digits == path.name else aside)[int(digits)] = path
        else:
            findings.add(path, None, "it is not imported: it is no partition", is_damage=False)
    for number, path in aside.items():
        if number not in found:
            problem = "the partition was being compacted; what it was before is imported"
            findings.add(path, None, problem, is_damage=False)
            found[number] = path
    return dict(sorted(found.items()))


class GoSource:
    """The topics of one directory."""

    kind = KIND

    def __init__(
        self,
        path: Path,
        disk: Disk,
        findings: Findings,
        topics: Mapping[str, Partitions],
        *,
        has_names: bool,
        cipher: Cipher | None = None,
    ) -> None:
        self.path = path
        self.has_names = has_names
        self.findings = findings
        self._disk = disk
        letters = {name for name in topics if _origin(name) != name}
        names = sorted({_origin(name) for name in topics})
        states = self._states(names, topics) if has_names else {}
        self.topics = [
            GoTopic(
                name,
                disk,
                findings,
                topics.get(name, {}),
                {each: topics[each] for each in sorted(letters) if _origin(each) == name},
                states.get(name) or TopicState(),
                cipher,
            )
            for name in names
        ]
        for name in disk.names(path) if has_names else ():
            if name not in _PARTS:
                findings.add(path / name, None, left_behind(disk, path / name), is_damage=False)

    def close(self) -> None:
        """Nothing is kept open between two calls."""

    def _states(self, names: list[str], topics: Mapping[str, Partitions]) -> dict[str, TopicState]:
        directory = self.path / "transactions"
        is_known = self._disk.is_directory(directory)
        transactions = (
            read_transactions(self._disk, directory, self.findings) if is_known else NO_TRANSACTIONS
        )
        offsets = self.path / "offsets"
        committed = read_committed(self._disk, offsets, self.findings)
        self._tell_positions(offsets, committed, topics)
        return {
            name: TopicState(
                delays=self.path / "delay" / "delays" / name / "delay.index",
                positions=committed.get(name, {}),
                aborted=transactions.aborted.get(name, ()),
                unended=transactions.unended.get(name, ()),
                is_known=is_known,
            )
            for name in names
        }

    def _tell_positions(self, path: Path, committed: Committed, topics: Mapping[str, Partitions]) -> None:
        for topic, groups in sorted(committed.items()):
            if topic in topics and _origin(topic) == topic:
                continue
            why = "holds dead letters" if topic in topics else "is not there"
            problem = f"positions of {', '.join(sorted(groups))} in {topic} are not imported: it {why}"
            self.findings.add(path, None, problem, is_damage=False)


def _origin(topic: str) -> str:
    """Of which topic a topic holds dead letters; itself for any other."""
    while topic.endswith(LETTERS_SUFFIX) and topic != LETTERS_SUFFIX:
        topic = topic.removesuffix(LETTERS_SUFFIX)
    return topic
