"""The directory of a FluxMQ broker, of one of its queues, or of the segments of one.

A queue is `queues/<name>/segments/<base offset>.seg`; a name may have slashes. The dead letters of a queue
are in another one, `$dlq/<name>` unless `config/queues.json` names it, and each says where it came from.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, StorageFailed
from quivermq.importers.files import (
    SegmentFile,
    is_directory,
    rfc3339_us,
    segment_files,
    subdirectories,
    total_bytes,
    witnesses_of,
)
from quivermq.importers.fluxmq_batches import LAYOUT, SUFFIX, FluxRecord, records_in, segments_of
from quivermq.importers.fluxmq_state import read_groups, read_settings
from quivermq.importers.model import Death, Findings, Item, SeenId, SourceGroup, text_identity

_TOPIC, _ID, _STATE, _EXPIRES_AT = "_topic", "_id", "_state", "_expires_at"
# What a dead letter has besides.
_QUEUE = "_dlq_original_queue"
_ORIGINAL_TOPIC = "_dlq_original_topic"
_ORIGINAL_ID = "_dlq_original_id"
_GROUP = "_dlq_group"
_COUNT = "_dlq_delivery_count"
_MOVED_AT = "_dlq_moved_at"

_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_TIME_US_MAX = 2**62


class FluxTranslator:
    """Makes items, and tells of each kind of problem once: it is likely to be in every message."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._told: set[str] = set()

    def item(self, record: FluxRecord, path: Path, position: int) -> Item:
        """A message of a queue. `path` and `position` are those of its batch."""
        headers = self._headers(record, path, position)
        # Both, or it is a record of somebody who uses the log without the broker.
        if not (_TOPIC in headers and _ID in headers):
            return self._made(record, headers, path, position)
        number = headers.pop(_ID).decode(errors="backslashreplace")
        state = headers.pop(_STATE, b"")
        expires_at_us = self._expiry(headers, path, position)
        item = self._made(record, headers, path, position)
        item.id = number or item.id
        item.expires_at_us = expires_at_us
        item.is_consumed = state == b"acked"
        return item

    def dead_letter(self, record: FluxRecord, path: Path, position: int) -> tuple[str | None, Item]:
        """The same of a dead letter, and the queue it says it comes from."""
        item = self.item(record, path, position)
        # It was acknowledged where it was; as a dead letter it is not.
        item.is_consumed = False
        headers = dict(item.headers or {})
        queue = _text(headers.pop(_QUEUE, None))
        if _ORIGINAL_TOPIC in headers:
            headers[_TOPIC] = headers.pop(_ORIGINAL_TOPIC)
        item.dead = Death(
            original_id=_text(headers.pop(_ORIGINAL_ID, None)),
            attempts=_number(headers.pop(_COUNT, b"")),
            group=_text(headers.pop(_GROUP, None)),
            time_us=_moment(headers.pop(_MOVED_AT, b"")),
        )
        item.headers = headers
        return queue, item

    def _made(self, record: FluxRecord, headers: dict[str, bytes], path: Path, position: int) -> Item:
        return Item(
            identity=record.offset,
            id=str(record.offset),
            value=record.value or b"",
            key=record.key,
            headers=headers,
            timestamp_us=self._time(record.timestamp_ms, path, position),
        )

    def _headers(self, record: FluxRecord, path: Path, position: int) -> dict[str, bytes]:
        try:
            return {name.decode(): content for name, content in record.headers}
        except UnicodeDecodeError:
            self._tell(path, position, "a name of a header is not UTF-8; what is not is written as \\x…")
            return {name.decode(errors="backslashreplace"): content for name, content in record.headers}

    def _expiry(self, headers: dict[str, bytes], path: Path, position: int) -> int | None:
        if _EXPIRES_AT not in headers:
            return None
        number = _number(headers[_EXPIRES_AT])
        if number is None:
            self._tell(path, position, f"a header {_EXPIRES_AT} is no number of milliseconds")
            return None
        del headers[_EXPIRES_AT]
        return self._time(number, path, position)

    def _time(self, milliseconds: int, path: Path, position: int) -> int:
        microseconds = milliseconds * 1000
        if abs(microseconds) <= _TIME_US_MAX:
            return microseconds
        self._tell(path, position, "a time is so far off that it is brought nearer")
        return _TIME_US_MAX if microseconds > 0 else -_TIME_US_MAX

    def _tell(self, path: Path, position: int, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self._findings.add(path, position, problem, is_damage=False)


def _text(content: bytes | None) -> str | None:
    return content.decode(errors="backslashreplace") if content else None


def _number(content: bytes) -> int | None:
    return int(content) if _NUMBER.fullmatch(content) else None


def _moment(content: bytes) -> int | None:
    try:
        return rfc3339_us(content.decode())
    except ValueError:
        return None


KIND = "fluxmq"

_PARTS = {"queues", "groups", "config"}
_DEAD_PREFIX = "$dlq/"
_DEPTH_MAX = 16


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory may be one of FluxMQ."""
    try:
        queues = dict(_queue_directories(disk, path / "queues", Findings(0)))
        directories = (path, path / "segments", *queues.values())
        return any(segment_files(disk, each, SUFFIX) for each in directories) or len(directories) > 2
    except StorageFailed:
        return False


def open_source(path: Path, disk: Disk) -> "FluxSource":
    """The queues in a directory. Raises InvalidRequest when it is not one of FluxMQ."""
    if disk.is_directory(path / "queues"):
        findings = Findings()
        queues = dict(_queue_directories(disk, path / "queues", findings))
        if not queues and not findings.count and subdirectories(disk, path / "queues"):
            raise InvalidRequest(
                f"{path} is no directory of FluxMQ: queues/ has no queue such as queues/x/segments/"
            )
        return FluxSource(path, disk, queues, findings)
    if disk.is_directory(path / "segments") or segment_files(disk, path, SUFFIX):
        return FluxSource(path, disk, {path.name: path}, Findings(), has_names=False)
    if any(_queue_directories(disk, path, Findings(0), depth=1)):
        raise InvalidRequest(f"{path} has the queues of a FluxMQ broker: give the directory above it")
    raise InvalidRequest(
        f"{path} is no directory of FluxMQ: it has no queues/, no segments/ and no files such as"
        " 00000000000000000000.seg"
    )


def _queue_directories(
    disk: Disk, parent: Path, findings: Findings, prefix: str = "", depth: int = _DEPTH_MAX
) -> Iterator[tuple[str, Path]]:
    """The queues below a directory. They nest where their names have slashes, as those of dead letters."""
    for path in subdirectories(disk, parent, findings) if depth else ():
        name = path.name
        if is_directory(disk, path / "segments"):
            yield prefix + name, path
        # The parts of a queue are not queues.
        if name not in ("segments", "consumers"):
            yield from _queue_directories(disk, path, findings, f"{prefix}{name}/", depth - 1)


class _Letters(NamedTuple):
    """A queue that holds dead letters of others."""

    name: str
    path: Path
    owners: Sequence[str]
    """Those of which it has any. To the first one belongs what does not say."""
    is_shared: bool
    """Whether it has messages of its own as well: then only what says so is a dead letter."""

    def owner(self, origin: str | None) -> str | None:
        """To which queue a record belongs that says it comes from `origin`; None for this one."""
        if origin in self.owners:
            return origin
        return None if self.is_shared else self.owners[0]


class FluxSource:
    """The queues of one directory."""

    kind = KIND

    def __init__(
        self,
        path: Path,
        disk: Disk,
        queues: Mapping[str, Path],
        findings: Findings,
        *,
        has_names: bool = True,
    ) -> None:
        self.path = path
        self.has_names = has_names
        self.findings = findings
        self._disk = disk
        told = read_settings(disk, path, findings)
        named = {name: each.letters for name, each in told.items() if each.letters is not None}
        letters = _letter_queues(disk, queues, named)
        own = {
            name: path for name, path in queues.items() if name not in letters or letters[name].is_shared
        }
        names = set(own).union(*(queue.owners for queue in letters.values()))
        self.topics = [
            FluxTopic(
                self,
                disk,
                name,
                own.get(name),
                letters.values(),
                told[name].settings if name in told else {},
            )
            for name in sorted(names)
        ]
        for name in disk.names(path) if disk.is_directory(path / "queues") else ():
            if name not in _PARTS:
                self.findings.add(path / name, None, "it is not imported", is_damage=False)

    def close(self) -> None:
        """Nothing is kept open between two calls."""


def _letter_queues(disk: Disk, queues: Mapping[str, Path], named: Mapping[str, str]) -> dict[str, _Letters]:
    owners: dict[str, list[str]] = {
        name: [name.removeprefix(_DEAD_PREFIX)] for name in queues if name.startswith(_DEAD_PREFIX)
    }
    for owner, name in sorted(named.items()):
        if name in queues and owner not in owners.setdefault(name, []):
            owners[name].append(owner)
    found = {}
    for name in sorted(owners):
        is_shared = not name.startswith(_DEAD_PREFIX) and not _begins_with_letter(disk, queues[name])
        found[name] = _Letters(name, queues[name], owners[name], is_shared)
    return found


def _begins_with_letter(disk: Disk, queue: Path) -> bool:
    """Whether the first message of a queue is a dead letter: then all are taken for some."""
    translator = FluxTranslator(Findings())
    for stored, record in records_in(disk, queue, Findings()):
        return translator.dead_letter(record, stored.path, stored.position)[0] is not None
    return False


class FluxTopic:
    """A queue with its dead letters. `path` is None for one of which nothing else is left."""

    partitions = 1
    seen_ids: Sequence[SeenId] = ()
    passed_over = 0

    def __init__(
        self,
        source: FluxSource,
        disk: Disk,
        name: str,
        path: Path | None,
        letters: Iterable[_Letters],
        settings: Mapping[str, object],
    ) -> None:
        self.name = name
        self._findings = source.findings
        self._told_groups = source.path / "groups"
        self._disk = disk
        self._path = path
        self._letters = [queue for queue in letters if name in queue.owners]
        self._shared = next((queue for queue in letters if queue.name == name), None)
        self._groups: list[SourceGroup] | None = None
        self.settings: Mapping[str, object] = settings

    @property
    def size_bytes(self) -> int:
        return sum(total_bytes(self._disk, self._files(path)) for path in self._paths().values())

    @property
    def witnesses(self) -> Sequence[str]:
        found: list[str] = []
        for name, path in self._paths().items():
            found += witnesses_of(self._disk, self._files(path), LAYOUT.header_bytes, name)
        return found

    @property
    def groups(self) -> Sequence[SourceGroup]:
        if self._groups is None:
            self._groups = self._read_groups()
        return self._groups

    def items(self) -> Iterator[Item]:
        self._groups = self._read_groups()
        if self._path is None:
            return
        translator = FluxTranslator(self._findings)
        for stored, record in records_in(self._disk, self._path, self._findings):
            if self._shared is not None:
                origin, _ = translator.dead_letter(record, stored.path, stored.position)
                if self._shared.owner(origin) is not None:
                    continue
            yield translator.item(record, stored.path, stored.position)

    def dead_letters(self) -> Iterator[Item]:
        translator = FluxTranslator(self._findings)
        for queue in self._letters:
            for stored, record in records_in(self._disk, queue.path, self._findings):
                origin, item = translator.dead_letter(record, stored.path, stored.position)
                if queue.owner(origin) == self.name:
                    if queue.name != _DEAD_PREFIX + self.name:
                        # Others lie in another queue, and have the same offsets.
                        item.identity = text_identity(f"{queue.name}\n{record.offset}")
                    yield item

    def _read_groups(self) -> list[SourceGroup]:
        if self._path is None:
            return []
        return read_groups(self._disk, self._path, self.name, self._told_groups, self._findings)

    def _paths(self) -> dict[str, Path]:
        """The queue itself, under no name because copies may be called otherwise, and its dead letters."""
        own = {} if self._path is None else {"": self._path}
        return own | {queue.name: queue.path for queue in self._letters}

    def _files(self, queue: Path) -> list[SegmentFile]:
        return segment_files(self._disk, segments_of(self._disk, queue), SUFFIX)
