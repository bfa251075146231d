"""The directory of a GoQueue broker, of one of its topics, or of one partition.

A partition is `logs/<topic>/<number>/<base offset>.log`. The dead letters of a topic are in the topic
`<topic>.dlq`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, StorageFailed
from quivermq.importers.files import SourceFiles, Unreadable
from quivermq.importers.goqueue_records import (
    COMMIT,
    LAYOUT,
    LOOKED_AT,
    Cipher,
    GoRecord,
    item_of,
    look_encrypted,
    open_letter,
    read_key,
    record_of,
)
from quivermq.importers.goqueue_state import (
    NO_DELAYS,
    Delays,
    PartitionOffset,
    TopicState,
    left_behind,
    read_delays,
    read_states,
)
from quivermq.importers.model import Death, ImportSource, Item, Position, SourceGroup, text_identity
from quivermq.importers.segments import SegmentedTopic, StoredRecord, whole_records
from quivermq.model.topic_settings import PARTITIONS_MAX

_MAGIC = b"GQ"
_DEAD_SUFFIX = ".dlq"
# What is understood; everything else is reported as left out.
_PARTS = {"logs", "offsets", "delay", "transactions"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
# While a partition is compacted, the old one is moved aside before the new one takes its place.
_ASIDE = ".old"

Partitions = Mapping[int, Path]


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory may be one of GoQueue."""
    files = SourceFiles(disk).quiet()
    try:
        topics = [path, *files.subdirectories(path / "logs")]
        partitions = [path, *(part for topic in topics for part in files.subdirectories(topic))]
        return any(_is_partition(files, each) for each in partitions)
    except StorageFailed:
        return False


def open_encrypted(path: Path, disk: Disk, key: str) -> ImportSource:
    """The same for values that are encrypted. Raises InvalidRequest, also for a key that opens none."""
    cipher = Cipher(read_key(key, disk))
    source = open_source(path, disk, cipher)
    topics = (topic for topic in source.topics if isinstance(topic, GoTopic))
    opened = [cipher.opens(value) for topic in topics for value in topic.first_values(LOOKED_AT)]
    if opened and not any(opened):
        raise InvalidRequest(
            f"the key opens none of the first values in {path}: it is the key of another queue"
        )
    return source


def open_source(path: Path, disk: Disk, cipher: Cipher | None = None) -> ImportSource:
    """The topics in a directory. Raises InvalidRequest when it is not one of GoQueue."""
    files = SourceFiles(disk)
    if disk.is_directory(path / "logs"):
        topics = {topic.name: _partitions(files, topic) for topic in files.subdirectories(path / "logs")}
        if not any(topics.values()) and any(files.quiet().names(path / "logs" / name) for name in topics):
            raise InvalidRequest(
                f"{path} is no directory of GoQueue: logs/ has no partition such as logs/x/0/"
            )
        states = read_states(files, path, {name: _origin(name) for name in topics})
        found = _topics(files, topics, states, cipher)
        for name in disk.names(path):
            if name not in _PARTS:
                files.report(path / name, None, left_behind(files.quiet(), path / name), is_damage=False)
        return ImportSource("goqueue", path, found, files.findings, has_names=True)
    partitions = _partitions_below(files, path)
    if not partitions:
        raise InvalidRequest(
            f"{path} is no directory of GoQueue: it has no logs/, no partitions such as 0/ and no files"
            " such as 00000000000000000000.log"
        )
    found = _topics(files, {path.name: partitions}, {}, cipher)
    return ImportSource("goqueue", path, found, files.findings, has_names=False)


def _partitions_below(files: SourceFiles, path: Path) -> Partitions:
    """Those of a topic, or a directory that is one itself. Raises InvalidRequest when it is one of many."""
    quiet = files.quiet()
    if quiet.segments(path, LAYOUT.suffix):
        return {0: path}
    below = quiet.subdirectories(path)
    if any(_is_partition(quiet, each) for each in below) and (found := _partitions(files, path)):
        return found
    inside = (each for topic in below for each in quiet.subdirectories(topic))
    if any(_NUMBER.fullmatch(each.name) and _is_partition(quiet, each) for each in inside):
        raise InvalidRequest(f"{path} has the topics of a GoQueue broker: give the directory above it")
    return {}


def _is_partition(files: SourceFiles, path: Path) -> bool:
    """Whether a segment begins as those of GoQueue do: other queues have files of the same names."""
    segments = files.segments(path, LAYOUT.suffix)
    begins = [files.first_bytes(segment.path, len(_MAGIC)) for segment in segments]
    if not any(begins):
        # Nothing was put there yet; no other queue has an index of that name.
        return bool(begins) and any(name.endswith(LAYOUT.beside) for name in files.names(path))
    return _MAGIC in begins


def _partitions(files: SourceFiles, topic: Path) -> Partitions:
    found: dict[int, Path] = {}
    aside: dict[int, Path] = {}
    for path in files.subdirectories(topic):
        digits = path.name.removesuffix(_ASIDE)
        if _NUMBER.fullmatch(digits) and int(digits) < PARTITIONS_MAX:
            (found if digits == path.name else aside)[int(digits)] = path
        else:
            files.report(path, None, "it is not imported: it is no partition", is_damage=False)
    for number, path in aside.items():
        if number not in found:
            problem = "the partition was being compacted; what it was before is imported"
            files.report(path, None, problem, is_damage=False)
            found[number] = path
    return dict(sorted(found.items()))


def _origin(topic: str) -> str:
    """Of which topic a topic holds dead letters; itself for any other."""
    while topic.endswith(_DEAD_SUFFIX) and topic != _DEAD_SUFFIX:
        topic = topic.removesuffix(_DEAD_SUFFIX)
    return topic


def _topics(
    files: SourceFiles,
    topics: Mapping[str, Partitions],
    states: Mapping[str, TopicState],
    cipher: Cipher | None,
) -> "list[GoTopic]":
    found = []
    for name in sorted(set(map(_origin, topics))):
        dead = {each: topics[each] for each in sorted(topics) if _origin(each) == name != each}
        state = states.get(name) or TopicState()
        found.append(GoTopic(files, name, topics.get(name, {}), dead, state, cipher))
    return found


class GoTopic(SegmentedTopic):
    """Its partitions by number, and those of the topics that hold its dead letters, by name."""

    def __init__(
        self,
        files: SourceFiles,
        name: str,
        partitions: Partitions,
        dead: Mapping[str, Partitions],
        state: TopicState,
        cipher: Cipher | None,
    ) -> None:
        super().__init__(files, name, LAYOUT)
        self._partitions = partitions
        self._dead = dead
        self._state = state
        self._cipher = cipher
        self._delays: Delays | None = None

    def _directories(self) -> dict[tuple[object, ...], Path]:
        """The topic itself is under no name, because a copy may be called otherwise."""
        named = {"": self._partitions, **self._dead}
        return {(name, number): path for name, paths in named.items() for number, path in paths.items()}

    @property
    def partitions(self) -> int:
        every = (self._partitions, *self._dead.values())
        return max((number for partitions in every for number in partitions), default=0) + 1

    @property
    def groups(self) -> Sequence[SourceGroup]:
        delays = self._read_delays() if self._delays is None else self._delays
        return [
            SourceGroup(
                name,
                {
                    number: Position(offset, delays.waiting(number, offset))
                    for number, offset in sorted(positions.items())
                    if number in self._partitions
                },
            )
            for name, positions in sorted(self._state.positions.items())
        ]

    def _read_delays(self) -> Delays:
        path = self._state.delays
        self._delays = NO_DELAYS if path is None else read_delays(self._files, path)
        return self._delays

    def items(self) -> Iterator[Item]:
        delays, state = self._read_delays(), self._state
        missing = set(delays.due_us)
        hidden = 0
        for number, path in self._partitions.items():
            looked_at: list[bytes] = []
            for stored, record in self._messages(path):
                if len(looked_at) < LOOKED_AT:
                    looked_at.append(record.value)
                place = (number, record.offset)
                missing.discard(place)
                if place in state.aborted or place in state.unended:
                    hidden += place in state.unended
                    continue
                item = item_of(self._files, stored, record, number)
                if item is not None:
                    item.deliver_at_us = delays.due_us.get(place)
                    item.is_consumed = place in delays.done
                    yield item
            if self._cipher is None and look_encrypted(looked_at):
                problem = (
                    "its values look encrypted: if they are, import with the key they were encrypted with"
                )
                self._files.report(path, None, problem, is_damage=False)
        self._report_left_out(hidden, missing)

    def _report_left_out(self, hidden: int, missing: set[PartitionOffset]) -> None:
        if hidden:
            problem = f"of transactions that were not ended, messages are left out: {hidden}"
            directory = next(iter(self._partitions.values())).parent
            self._files.report(directory, None, problem, is_damage=False)
        if missing and self._state.delays is not None:
            partition, offset = min(missing)
            problem = (
                f"messages wait in it that are in no log: {len(missing)}, the first is offset {offset} of"
                f" partition {partition}"
            )
            self._files.report(self._state.delays, None, problem)

    def dead_letters(self) -> Iterator[Item]:
        for name, partitions in self._dead.items():
            for number, path in partitions.items():
                for stored, record in self._messages(path):
                    item = item_of(self._files, stored, record, number)
                    if item is None:
                        continue
                    try:
                        open_letter(item)
                    except ValueError as error:
                        problem = (
                            f"offset {record.offset} is kept as it is: it is no dead letter of GoQueue,"
                            f" {error}"
                        )
                        self._files.report(stored.path, stored.position, problem, is_damage=False)
                        item.dead = Death()
                    if name != self.name + _DEAD_SUFFIX:
                        # Others lie in another topic, and have the same offsets.
                        item.identity = text_identity(f"{name}\n{record.offset}")
                    yield item

    def _messages(self, directory: Path) -> Iterator[tuple[StoredRecord, GoRecord]]:
        for stored, _ in whole_records(self._files, directory, LAYOUT):
            record = record_of(stored)
            if self._cipher is not None and record.value:
                try:
                    record = record._replace(value=self._cipher.decrypted(record.value))
                except Unreadable as error:
                    problem = f"offset {record.offset} cannot be decrypted: {error}"
                    self._files.report(stored.path, stored.position, problem, length=len(stored.data))
                    continue
            if not record.is_control:
                yield stored, record
            elif not record.flags & COMMIT and not self._state.is_known:
                problem = (
                    f"the transaction {record.transaction!r:.80} was aborted; which messages are its own is"
                    " not known here, and they are imported"
                )
                self._files.report(stored.path, stored.position, problem, is_damage=False)

    def first_values(self, limit: int) -> Iterator[bytes]:
        """The first values of each partition, as they are stored."""
        for path in self._directories().values():
            records = whole_records(self._files.quiet(), path, LAYOUT)
            values = (record_of(stored).value for stored, _ in records)
            yield from islice(filter(None, values), limit)
