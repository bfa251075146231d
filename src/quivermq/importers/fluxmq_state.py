"""How far the groups of a FluxMQ queue have come: snapshots, and the log of operations replayed over them.

A group is done with every offset below its cursor, but for those that are pending. Snapshots and log are
`consumers/<group>/state.json`, `pel_<shard>.json` and `ops.log` of a queue. What the broker knows of a
group, `groups/<queue>/<group>.json`, counts for groups in stream mode, and where there is nothing else.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quivermq.disk import Disk, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.files import is_directory, json_object, names_in, parse_json, subdirectories
from quivermq.importers.model import MESSAGE_BYTES_MAX, Findings, Position, SourceGroup
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings.setting import settings_of

_LOG_BYTES_MAX = 256 * 1024 * 1024
_STATE = "state.json"
_SHARD = re.compile(r"pel_[0-9]+\.json")
_OFFSET_MAX = 2**64 - 1
_COUNT_MAX = 2**16 - 1
# More than anybody has in flight.
_DOUBT_MAX = 10_000_000
# Names have few slashes; somebody may have nested directories, or linked them in a circle, all the same.
_DEPTH_MAX = 16

_DELIVER, _ACK, _ACK_BATCH, _NACK, _CLAIM, _CLAIM_BATCH, _ADVANCE_FLOOR, _SET_CURSOR = range(1, 9)


_LOST = "how far a group has come is"


class _Malformed(Exception):
    """What a file says makes no sense."""


def read_groups(disk: Disk, queue: Path, name: str, told: Path, findings: Findings) -> list[SourceGroup]:
    """The groups of the queue in a directory, sorted by name; in `told` the broker tells of all groups."""
    kept = dict(_directories(disk, queue / "consumers", findings, "", _DEPTH_MAX))
    known = {group.name: group for group in _told(disk, told, findings) if group.queue == name}
    groups = []
    for group in sorted({*kept, *known}):
        position = None
        if group in kept:
            state = _State()
            state.load(disk, kept[group], findings)
            position = state.position()
        if group in known:
            _tell_pattern(known[group], findings)
            if position is None or known[group].is_stream:
                position = known[group].position()
        assert position is not None, "it is kept or known"
        groups.append(SourceGroup(group, {0: position}))
    return groups


def _told(disk: Disk, directory: Path, findings: Findings) -> "Iterator[_Told]":
    for path in _documents(disk, directory, findings, _DEPTH_MAX):
        document = json_object(disk, path, findings, _LOST)
        if document is not None:
            try:
                yield _Told(path, document)
            except _Malformed as error:
                findings.add(path, None, str(error))


def _tell_pattern(told: "_Told", findings: Findings) -> None:
    if told.pattern:
        problem = f"the group reads only {told.pattern!r:.200} of its queue; here it will get everything"
        findings.add(told.path, None, problem, is_damage=False)


def _directories(
    disk: Disk, parent: Path, findings: Findings, prefix: str, depth: int
) -> Iterator[tuple[str, Path]]:
    """Directories with a group's files. They nest, because a group may be named after a topic: a@eu/#."""
    for path in subdirectories(disk, parent, findings) if depth else ():
        inside = names_in(disk, path, findings)
        if _STATE in inside or "ops.log" in inside or any(map(_SHARD.fullmatch, inside)):
            yield prefix + path.name, path
        yield from _directories(disk, path, findings, f"{prefix}{path.name}/", depth - 1)


def _documents(disk: Disk, parent: Path, findings: Findings, depth: int) -> Iterator[Path]:
    for name in names_in(disk, parent, findings) if depth else ():
        path = parent / name
        if is_directory(disk, path):
            yield from _documents(disk, path, findings, depth - 1)
        elif name.endswith(".json"):
            yield path


class _Told:
    """A group as the broker describes it."""

    def __init__(self, path: Path, document: Mapping[str, Any]) -> None:
        state = _mapping("the state of the group", document.get("state", 0))
        self.path = path
        # A file that does not say is named after its group, in a directory named after its queue.
        self.name = str(state.get("ID") or path.stem)
        self.queue = str(state.get("QueueName") or path.parent.name)
        cursor = _mapping("the cursor", state.get("Cursor", {}))
        self.is_stream = state.get("Mode") == "stream"
        self.pattern = state.get("Pattern") or ""
        # Without automatic commits, only what was committed is known to be done.
        is_committed = self.is_stream and state.get("AutoCommit") is False
        self._next = _offset(cursor.get("Committed" if is_committed else "Cursor", 0))
        self._pending: dict[int, int] = {}
        for entries in _mapping("the pending entries", state.get("PEL", {})).values():
            for given in entries if isinstance(entries, list) else ():
                entry = _mapping("a pending entry", given)
                self._pending[_offset(entry.get("Offset", 0))] = _count(entry.get("DeliveryCount", 0))

    def position(self) -> Position:
        return _unfinished(self._next, {} if self.is_stream else self._pending)


class _State:
    """A group as its own files have it: a cursor, and how often what is pending was delivered."""

    def __init__(self) -> None:
        self._cursor = 0
        # Everything up to here is done; 0 also means that nothing is.
        self._floor = 0
        self._pending: dict[int, int] = {}

    def position(self) -> Position:
        return _unfinished(self._cursor, self._pending)

    def load(self, disk: Disk, directory: Path, findings: Findings) -> None:
        """Read the snapshots, then replay what came behind them. What cannot be understood is told."""
        names = disk.names(directory)
        shards = [name for name in names if _SHARD.fullmatch(name)]
        self._load(disk, directory / _STATE, findings, self._restore)
        lost = [n for n in shards if not self._load(disk, directory / n, findings, self._restore_pending)]
        if lost:
            self._doubt({int(name[4:-5]) for name in lost}, len(shards))
        if "ops.log" in names:
            self._replay(disk, directory / "ops.log", findings)

    def _load(
        self,
        disk: Disk,
        path: Path,
        findings: Findings,
        restore: Callable[[Mapping[str, Any]], None],
    ) -> bool:
        """Whether a snapshot was understood; one that is not there has nothing to say."""
        if not disk.exists(path):
            return True
        document = json_object(disk, path, findings, _LOST)
        try:
            if document is not None:
                restore(document)
        except _Malformed as error:
            findings.add(path, None, str(error))
            return False
        return document is not None

    def _doubt(self, lost: set[int], shards: int) -> None:
        """Take everything for pending that snapshots which are lost may have had, so that none is lost."""
        first = self._floor + 1 if self._floor else 0
        if self._cursor - first <= _DOUBT_MAX:
            doubtful = [offset for offset in range(first, self._cursor) if offset % shards in lost]
            self._pending = dict.fromkeys(doubtful, 1) | self._pending

    def _restore(self, document: Mapping[str, Any]) -> None:
        # A snapshot without a state is the one of a group that has done nothing.
        state = _mapping("the state", document.get("state"))
        self._cursor = _offset(state.get("Cursor", 0))
        self._floor = _offset(state.get("AckFloor", 0))

    def _restore_pending(self, document: Mapping[str, Any]) -> None:
        found = {}
        for text, entry in _mapping("the pending entries", document.get("entries", {})).items():
            if not (text.isascii() and text.isdigit()):
                raise _Malformed(f"{text!r:.80} is no offset")
            found[_offset(int(text))] = _count(_mapping("a pending entry", entry).get("n", 0))
        self._pending.update(found)

    def _replay(self, disk: Disk, path: Path, findings: Findings) -> None:
        try:
            data = read_file(disk, path, bytes_max=_LOG_BYTES_MAX)
        except (FileNotFoundError, StorageFailed) as error:
            findings.add(path, None, f"it cannot be read, so {_LOST} not known: {error}")
            return
        position = 0
        for line in data.splitlines(keepends=True):
            try:
                if line.strip():
                    self._apply(parse_json(line))
            except (ValueError, _Malformed) as error:
                findings.add(path, position, f"an operation was not replayed: {error}", length=len(line))
            position += len(line)

    def _apply(self, operation: Any) -> None:
        operation = _mapping("it", operation)
        kind = operation.get("t")
        offset = _offset(operation.get("o", 0))
        batch = operation.get("os") or []
        if not isinstance(batch, list):
            raise _Malformed("its offsets are no list")
        many = [_offset(each) for each in batch]
        if kind == _DELIVER:
            self._cursor = max(self._cursor, offset + 1)
            self._pending[offset] = 1
        elif kind in (_ACK, _ACK_BATCH):
            for each in [offset] if kind == _ACK else many:
                self._pending.pop(each, None)
        elif kind in (_NACK, _CLAIM, _CLAIM_BATCH):
            for each in many if kind == _CLAIM_BATCH else [offset]:
                if each in self._pending:
                    self._pending[each] += 1
        elif kind == _SET_CURSOR:
            self._cursor = offset
        elif kind != _ADVANCE_FLOOR:
            # The floor says no more than the cursor and what is pending do.
            raise _Malformed(f"there is no operation {kind!r:.80}")


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    """A JSON object; one that was never made is written as null."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _Malformed(f"{what} is no JSON object")
    return given


def _offset(given: Any) -> int:
    if type(given) is not int or not 0 <= given <= _OFFSET_MAX:
        raise _Malformed(f"{given!r:.80} is no offset")
    return given


def _count(given: Any) -> int:
    if type(given) is not int or not 0 <= given <= _COUNT_MAX:
        raise _Malformed(f"{given!r:.80} is no number of deliveries")
    return given


def _unfinished(following: int, pending: Mapping[int, int]) -> Position:
    # What lies at the cursor or behind it will be delivered anyway.
    return Position(following, {offset: n for offset, n in sorted(pending.items()) if offset < following})


_NS_PER_MS = 1_000_000
_DURABILITY = {"fsync": "fsync", "buffered": "os"}
# Of no use without the queue's own broker, or told by its files already.
_OWN = frozenset(("Name", "Type", "LastConsumerDisconnect", "DLQConfig.Topic"))


@dataclass(slots=True)
class QueueSettings:
    """What the settings of one queue come to."""

    settings: dict[str, object] = field(default_factory=dict)
    """As those of a topic are called."""
    letters: str | None = None
    """The queue that is named for its dead letters."""


def read_settings(disk: Disk, directory: Path, findings: Findings) -> dict[str, QueueSettings]:
    """By queue, what the file says of it. What has no counterpart is told."""
    path = directory / "config" / "queues.json"
    if not disk.exists(path):
        return {}
    document = json_object(disk, path, findings, "the settings of the queues are")
    if document is None:
        return {}
    configs = document.get("configs")
    found: dict[str, QueueSettings] = {}
    for config in configs if isinstance(configs, list) else [configs]:
        if not isinstance(config, dict) or not isinstance(config.get("Name"), str):
            findings.add(path, None, f"an entry of it makes no sense: {config!r:.80}", is_damage=False)
            continue
        name = config["Name"]
        found[name] = QueueSettings(dict(_counterparts(config)), _letters(config))
        if left := list(_left(config)):
            problem = f"of the queue {name!r:.80} has no counterpart and is not imported: {', '.join(left)}"
            findings.add(path, None, problem, is_damage=False)
    return found


def _letters(config: Mapping[str, Any]) -> str | None:
    topic = _part(config, "DLQConfig").get("Topic")
    return topic if isinstance(topic, str) and topic and topic != config["Name"] else None


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _counterparts(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The settings of a topic, each with a value that it may have."""
    declared = settings_of(TopicSettings)
    for name, value in _translated(config):
        try:
            if value is not None and name in declared:
                declared[name].check(value)
                yield name, value
        except ValueError:
            # Whoever wrote it meant something else; what is left out is among what is told.
            continue


def _translated(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    retry, retention = _part(config, "RetryPolicy"), _part(config, "Retention")
    retries = _positive(retry.get("MaxRetries"))
    yield "attempts_max", None if retries is None else retries + 1
    # Neither is checked alone: the first must not be larger than the second.
    first_ms, last_ms = _ms(retry.get("InitialBackoff")), _ms(retry.get("MaxBackoff"))
    if first_ms is not None and last_ms is not None and first_ms <= last_ms:
        yield "backoff_ms", first_ms
        yield "backoff_ms_max", last_ms
    multiplier = retry.get("BackoffMultiplier")
    yield "backoff_multiplier", float(multiplier) if isinstance(multiplier, int | float) else None
    yield "lease_ms", _ms(config.get("DeliveryTimeout"))
    yield "ttl_ms", _ms(config.get("MessageTTL"))
    size = _positive(config.get("MaxMessageSize"))
    yield "message_bytes_max", None if size is None else min(size, MESSAGE_BYTES_MAX)
    yield "durability", _DURABILITY.get(str(config.get("AckDurability")))
    yield "retention_ms", _ms(retention.get("RetentionTime"))
    yield "retention_bytes", _positive(retention.get("RetentionBytes"))
    yield "retention_messages", _positive(retention.get("RetentionMessages"))
    if retention.get("CompactionEnabled") is True and not retention.get("CompactionKey"):
        yield "cleanup", "compact"
    if _part(config, "DLQConfig").get("Enabled") is False:
        yield "dead_letters", False


# By the names there, the setting here.
_NAMES = {
    "RetryPolicy.MaxRetries": "attempts_max",
    "RetryPolicy.InitialBackoff": "backoff_ms",
    "RetryPolicy.MaxBackoff": "backoff_ms_max",
    "RetryPolicy.BackoffMultiplier": "backoff_multiplier",
    "DeliveryTimeout": "lease_ms",
    "MessageTTL": "ttl_ms",
    "MaxMessageSize": "message_bytes_max",
    "AckDurability": "durability",
    "Retention.RetentionTime": "retention_ms",
    "Retention.RetentionBytes": "retention_bytes",
    "Retention.RetentionMessages": "retention_messages",
    "Retention.CompactionEnabled": "cleanup",
    "DLQConfig.Enabled": "dead_letters",
}


def _left(config: Mapping[str, Any]) -> Iterator[str]:
    """What is set and has no counterpart, as it is called there."""
    taken = dict(_counterparts(config))
    for name, value in sorted(_flat(config)):
        is_default = name in ("DLQConfig.Enabled", "Durable", "RetryPolicy.BackoffMultiplier")
        if name in _OWN or _NAMES.get(name) in taken or not value or (is_default and value in (True, 2)):
            continue
        if name.startswith("Replication.") and not _part(config, "Replication").get("Enabled"):
            continue
        yield f"{name} {value!r:.60}"


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield str(name), value


def _positive(told: object) -> int | None:
    return told if type(told) is int and told > 0 else None


def _ms(told: object) -> int | None:
    """A Go duration, in nanoseconds; None for none."""
    count = _positive(told)
    return None if count is None else max(1, count // _NS_PER_MS)
