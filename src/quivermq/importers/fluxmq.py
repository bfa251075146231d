"""The directory of a FluxMQ broker, of one of its queues, or of the segments of one.

A queue is `queues/<name>/segments/<base offset>.seg`; a name may have slashes. The dead letters of a queue
are in another one, `$dlq/<name>` unless `config/queues.json` names it, and each says where it came from.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, StorageFailed
from quivermq.importers.files import SourceFiles, moment_or_none
from quivermq.importers.fluxmq_batches import LAYOUT, FluxRecord, records_in, segments_of
from quivermq.importers.fluxmq_state import read_groups, read_settings
from quivermq.importers.model import Death, ImportSource, Item, SourceGroup, text_identity
from quivermq.importers.segments import SegmentedTopic, StoredRecord

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

_PARTS = {"queues", "groups", "config"}
_DEAD_PREFIX = "$dlq/"
_DEPTH_MAX = 16


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory may be one of FluxMQ."""
    files = SourceFiles(disk).quiet()
    try:
        queues = dict(_queue_directories(files, path / "queues"))
    except StorageFailed:
        return False
    return bool(queues) or any(files.segments(each, LAYOUT.suffix) for each in (path, path / "segments"))


def open_source(path: Path, disk: Disk) -> ImportSource:
    """The queues in a directory. Raises InvalidRequest when it is not one of FluxMQ."""
    files = SourceFiles(disk)
    if disk.is_directory(path / "queues"):
        queues = dict(_queue_directories(files, path / "queues"))
        if not queues and not files.findings.count and files.subdirectories(path / "queues"):
            raise InvalidRequest(
                f"{path} is no directory of FluxMQ: queues/ has no queue such as queues/x/segments/"
            )
        topics = _topics(files, path, queues)
        for name in sorted({*disk.names(path)} - _PARTS):
            files.report(path / name, None, "it is not imported", is_damage=False)
        return ImportSource("fluxmq", path, topics, files.findings, has_names=True)
    if disk.is_directory(path / "segments") or files.segments(path, LAYOUT.suffix):
        topics = _topics(files, path, {path.name: path})
        return ImportSource("fluxmq", path, topics, files.findings, has_names=False)
    if any(_queue_directories(files, path, depth=1)):
        raise InvalidRequest(f"{path} has the queues of a FluxMQ broker: give the directory above it")
    raise InvalidRequest(
        f"{path} is no directory of FluxMQ: it has no queues/, no segments/ and no files such as"
        " 00000000000000000000.seg"
    )


def _queue_directories(
    files: SourceFiles, parent: Path, prefix: str = "", depth: int = _DEPTH_MAX
) -> Iterator[tuple[str, Path]]:
    """The queues below a directory. They nest where their names have slashes, as those of dead letters."""
    for path in files.subdirectories(parent) if depth else ():
        name = path.name
        if files.is_directory(path / "segments"):
            yield prefix + name, path
        # The parts of a queue are not queues.
        if name not in ("segments", "consumers"):
            yield from _queue_directories(files, path, f"{prefix}{name}/", depth - 1)


def _topics(files: SourceFiles, path: Path, queues: Mapping[str, Path]) -> "list[FluxTopic]":
    configured = read_settings(files, path)
    named = {name: each.dead_letter_queue for name, each in configured.items() if each.dead_letter_queue}
    dead = _dead_letter_queues(files, queues, named)
    own = {name: queue for name, queue in queues.items() if name not in dead or dead[name].is_shared}
    names = set(own).union(*(queue.owners for queue in dead.values()))
    settings = {name: each.settings for name, each in configured.items()}
    return [
        FluxTopic(files, name, own.get(name), dead.values(), settings.get(name, {}), path / "groups")
        for name in sorted(names)
    ]


class _DeadLetterQueue(NamedTuple):
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


def _dead_letter_queues(
    files: SourceFiles, queues: Mapping[str, Path], named: Mapping[str, str]
) -> dict[str, _DeadLetterQueue]:
    owners: dict[str, list[str]] = {
        name: [name.removeprefix(_DEAD_PREFIX)] for name in queues if name.startswith(_DEAD_PREFIX)
    }
    for owner, name in sorted(named.items()):
        if name in queues and owner not in owners.setdefault(name, []):
            owners[name].append(owner)
    found = {}
    for name in sorted(owners):
        is_shared = not name.startswith(_DEAD_PREFIX) and not _begins_dead(files.quiet(), queues[name])
        found[name] = _DeadLetterQueue(name, queues[name], owners[name], is_shared)
    return found


def _begins_dead(files: SourceFiles, queue: Path) -> bool:
    """Whether the first message of a queue is a dead letter: then all are taken for some."""
    first = next(records_in(files, queue), None)
    return first is not None and _dead_letter(files, *first)[0] is not None


class FluxTopic(SegmentedTopic):
    """A queue with its dead letters. `path` is None for one of which nothing else is left."""

    settings: Mapping[str, object] = {}

    def __init__(
        self,
        files: SourceFiles,
        name: str,
        path: Path | None,
        dead: Collection[_DeadLetterQueue],
        settings: Mapping[str, object],
        groups: Path,
    ) -> None:
        super().__init__(files, name, LAYOUT)
        self._path = path
        self._dead = [queue for queue in dead if name in queue.owners]
        self._shared = next((queue for queue in dead if queue.name == name), None)
        self._groups_path = groups
        self._groups: list[SourceGroup] | None = None
        self.settings = settings

    @property
    def groups(self) -> Sequence[SourceGroup]:
        if self._groups is None:
            self._groups = self._read_groups()
        return self._groups

    def items(self) -> Iterator[Item]:
        self._groups = self._read_groups()
        for stored, record in () if self._path is None else records_in(self._files, self._path):
            if self._shared is not None:
                origin, _ = _dead_letter(self._files, stored, record)
                if self._shared.owner(origin) is not None:
                    continue
            yield _item(self._files, stored, record)

    def dead_letters(self) -> Iterator[Item]:
        for queue in self._dead:
            for stored, record in records_in(self._files, queue.path):
                origin, item = _dead_letter(self._files, stored, record)
                if queue.owner(origin) == self.name:
                    if queue.name != _DEAD_PREFIX + self.name:
                        # Others lie in another queue, and have the same offsets.
                        item.identity = text_identity(f"{queue.name}\n{record.offset}")
                    yield item

    def _read_groups(self) -> list[SourceGroup]:
        if self._path is None:
            return []
        return read_groups(self._files, self._path, self.name, self._groups_path)

    def _directories(self) -> dict[tuple[object, ...], Path]:
        """The queue itself, under no name because copies may be called otherwise, and its dead letters."""
        queues = {} if self._path is None else {"": self._path}
        queues |= {queue.name: queue.path for queue in self._dead}
        return {(name,): segments_of(self._files, path) for name, path in queues.items()}


def _item(files: SourceFiles, stored: StoredRecord, record: FluxRecord) -> Item:
    """A message of a queue, out of a record of a batch."""
    headers = files.headers(record.headers, stored.path, stored.position)
    item = Item(
        identity=record.offset,
        id=str(record.offset),
        value=record.value or b"",
        key=record.key,
        headers=headers,
        timestamp_us=_time_us(files, stored, record.timestamp_ms),
    )
    # Both, or it is a record of somebody who uses the log without the broker.
    if _TOPIC in headers and _ID in headers:
        item.id = _text(headers.pop(_ID)) or item.id
        item.is_consumed = headers.pop(_STATE, b"") == b"acked"
        item.expires_at_us = _expiry_us(files, stored, headers)
    return item


def _dead_letter(files: SourceFiles, stored: StoredRecord, record: FluxRecord) -> tuple[str | None, Item]:
    """The same of a dead letter, and the queue it says it comes from."""
    item = _item(files, stored, record)
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
        time_us=moment_or_none(headers.pop(_MOVED_AT, None)),
    )
    item.headers = headers
    return queue, item


def _expiry_us(files: SourceFiles, stored: StoredRecord, headers: dict[str, bytes]) -> int | None:
    if _EXPIRES_AT not in headers:
        return None
    number = _number(headers[_EXPIRES_AT])
    if number is None:
        problem = f"a header {_EXPIRES_AT} is no number of milliseconds"
        files.report_once(stored.path, stored.position, problem)
        return None
    del headers[_EXPIRES_AT]
    return _time_us(files, stored, number)


def _time_us(files: SourceFiles, stored: StoredRecord, time_ms: int) -> int:
    time_us = max(-_TIME_US_MAX, min(time_ms * 1000, _TIME_US_MAX))
    if time_us != time_ms * 1000:
        problem = "a time is so far off that it is brought nearer"
        files.report_once(stored.path, stored.position, problem)
    return time_us


def _text(content: bytes | None) -> str | None:
    return content.decode(errors="backslashreplace") if content else None


def _number(content: bytes) -> int | None:
    return int(content) if _NUMBER.fullmatch(content) else None
