"""How far the groups of a FluxMQ queue have come: snapshots, and the log of operations replayed over them.

A group is done with every offset below its cursor, but for those that are pending. Snapshots and log are
`consumers/<group>/state.json`, `pel_<shard>.json` and `ops.log` of a queue. What the broker knows of a
group, `groups/<queue>/<group>.json`, counts for groups in stream mode, and where there is nothing else.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quivermq.importers.files import SourceFiles, Unreadable, as_number, as_object
from quivermq.importers.model import MESSAGE_BYTES_MAX, Position, SourceGroup
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings.setting import settings_of

_STATE, _LOG = "state.json", "ops.log"
_SHARD = re.compile(r"pel_[0-9]+\.json")
_OFFSET_MAX = 2**64 - 1
_COUNT_MAX = 2**16 - 1
# More than anybody has in flight.
_DOUBT_MAX = 10_000_000
# Names have few slashes; somebody may have nested directories, or linked them in a circle, all the same.
_DEPTH_MAX = 16

_DELIVER, _ACK, _ACK_BATCH, _NACK, _CLAIM, _CLAIM_BATCH, _ADVANCE_FLOOR, _SET_CURSOR = range(1, 9)

_LOST = "how far a group has come is"


def read_groups(files: SourceFiles, queue: Path, name: str, described: Path) -> list[SourceGroup]:
    """The groups of the queue in a directory, sorted by name; in `described` the broker has all groups."""
    kept = dict(_directories(files, queue / "consumers", "", _DEPTH_MAX))
    known = {group.name: group for group in _described(files, described) if group.queue == name}
    groups = []
    for group in sorted({*kept, *known}):
        position = None
        if group in kept:
            position = _KeptGroup(files, kept[group]).position()
        if group in known:
            if known[group].pattern:
                problem = (
                    f"the group reads only {known[group].pattern!r:.200} of its queue;"
                    " here it will get everything"
                )
                files.report(known[group].path, None, problem, is_damage=False)
            if position is None or known[group].is_stream:
                position = known[group].position()
        assert position is not None, "it is kept or known"
        groups.append(SourceGroup(group, {0: position}))
    return groups


def _described(files: SourceFiles, directory: Path) -> "Iterator[_DescribedGroup]":
    for path in _documents(files, directory, _DEPTH_MAX):
        document = files.json_object(path, _LOST)
        if document is not None:
            try:
                yield _DescribedGroup(path, document)
            except ValueError as error:
                files.report(path, None, str(error))


def _directories(files: SourceFiles, parent: Path, prefix: str, depth: int) -> Iterator[tuple[str, Path]]:
    """Directories with a group's files. They nest, because a group may be named after a topic: a@eu/#."""
    for path in files.subdirectories(parent) if depth else ():
        inside = files.names(path)
        if _STATE in inside or _LOG in inside or any(map(_SHARD.fullmatch, inside)):
            yield prefix + path.name, path
        yield from _directories(files, path, f"{prefix}{path.name}/", depth - 1)


def _documents(files: SourceFiles, parent: Path, depth: int) -> Iterator[Path]:
    for name in files.names(parent) if depth else ():
        path = parent / name
        if files.is_directory(path):
            yield from _documents(files, path, depth - 1)
        elif name.endswith(".json"):
            yield path


class _DescribedGroup:
    """A group as the broker describes it."""

    def __init__(self, path: Path, document: Mapping[str, Any]) -> None:
        state = _object(document.get("state", 0), "the state of the group")
        self.path = path
        # A file that does not say is named after its group, in a directory named after its queue.
        self.name = str(state.get("ID") or path.stem)
        self.queue = str(state.get("QueueName") or path.parent.name)
        cursor = _object(state.get("Cursor"), "the cursor")
        self.is_stream = state.get("Mode") == "stream"
        self.pattern = state.get("Pattern") or ""
        # Without automatic commits, only what was committed is known to be done.
        is_committed = self.is_stream and state.get("AutoCommit") is False
        self._next = _offset(cursor.get("Committed" if is_committed else "Cursor", 0))
        self._pending: dict[int, int] = {}
        for entries in _object(state.get("PEL"), "the pending entries").values():
            for given in entries if isinstance(entries, list) else ():
                entry = _object(given, "a pending entry")
                self._pending[_offset(entry.get("Offset", 0))] = _count(entry.get("DeliveryCount", 0))

    def position(self) -> Position:
        return _unfinished(self._next, {} if self.is_stream else self._pending)


class _KeptGroup:
    """A group as its own files have it: a cursor, and how often what is pending was delivered.

    The snapshots are read, and what came behind them is replayed.
    """

    def __init__(self, files: SourceFiles, directory: Path) -> None:
        self._cursor = 0
        # Everything up to here is done; 0 also means that nothing is.
        self._floor = 0
        self._pending: dict[int, int] = {}
        shards = [name for name in files.disk.names(directory) if _SHARD.fullmatch(name)]
        _restored(files, directory / _STATE, self._restore)
        lost = [n for n in shards if not _restored(files, directory / n, self._restore_pending)]
        if lost:
            self._doubt({int(name[4:-5]) for name in lost}, len(shards))
        files.replay(directory / _LOG, self._apply, _LOST, "an operation was not replayed")

    def position(self) -> Position:
        return _unfinished(self._cursor, self._pending)

    def _doubt(self, lost: set[int], shards: int) -> None:
        """Take everything for pending that snapshots which are lost may have had, so that none is lost."""
        first = self._floor + 1 if self._floor else 0
        if self._cursor - first <= _DOUBT_MAX:
            doubtful = [offset for offset in range(first, self._cursor) if offset % shards in lost]
            self._pending = dict.fromkeys(doubtful, 1) | self._pending

    def _restore(self, document: Mapping[str, Any]) -> None:
        # A snapshot without a state is the one of a group that has done nothing.
        state = _object(document.get("state"), "the state")
        self._cursor = _offset(state.get("Cursor", 0))
        self._floor = _offset(state.get("AckFloor", 0))

    def _restore_pending(self, document: Mapping[str, Any]) -> None:
        found = {}
        for text, entry in _object(document.get("entries"), "the pending entries").items():
            if not (text.isascii() and text.isdigit()):
                raise Unreadable(f"{text!r:.80} is no offset")
            found[_offset(int(text))] = _count(_object(entry, "a pending entry").get("n", 0))
        self._pending.update(found)

    def _apply(self, given: Any) -> None:
        operation = _object(given, "it")
        kind = operation.get("t")
        offset = _offset(operation.get("o", 0))
        batch = operation.get("os") or []
        if not isinstance(batch, list):
            raise Unreadable("its offsets are no list")
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
            raise Unreadable(f"there is no operation {kind!r:.80}")


def _restored(files: SourceFiles, path: Path, restore: Callable[[Mapping[str, Any]], None]) -> bool:
    """Whether a snapshot was understood; one that is not there has nothing to say."""
    if not files.disk.exists(path):
        return True
    document = files.json_object(path, _LOST)
    try:
        if document is not None:
            restore(document)
    except ValueError as error:
        files.report(path, None, str(error))
        return False
    return document is not None


def _object(given: Any, what: str) -> dict[str, Any]:
    """A JSON object; one that was never made is written as null."""
    return {} if given is None else as_object(given, what)


def _offset(given: Any) -> int:
    return as_number(given, _OFFSET_MAX, "offset")


def _count(given: Any) -> int:
    return as_number(given, _COUNT_MAX, "number of deliveries")


def _unfinished(following: int, pending: Mapping[int, int]) -> Position:
    # What lies at the cursor or behind it will be delivered anyway.
    return Position(following, {offset: n for offset, n in sorted(pending.items()) if offset < following})


_NS_PER_MS = 1_000_000
_DURABILITY = {"fsync": "fsync", "buffered": "os"}
# Of no use without the queue's own broker, or known from its files already.
_OWN = frozenset(("Name", "Type", "LastConsumerDisconnect", "DLQConfig.Topic"))


class QueueSettings(NamedTuple):
    """What the settings of one queue come to."""

    settings: Mapping[str, object]
    """As those of a topic are called."""
    dead_letter_queue: str | None


def read_settings(files: SourceFiles, directory: Path) -> dict[str, QueueSettings]:
    """By queue, what the file says of it. What has no counterpart is reported."""
    path = directory / "config" / "queues.json"
    document = files.json_object(path, "the settings of the queues are")
    if document is None:
        return {}
    configs = document.get("configs")
    found: dict[str, QueueSettings] = {}
    for config in configs if isinstance(configs, list) else [configs]:
        if not isinstance(config, dict) or not isinstance(config.get("Name"), str):
            files.report(path, None, f"an entry of it makes no sense: {config!r:.80}", is_damage=False)
            continue
        name, flat = config["Name"], dict(_flat(config))
        settings, dead = _counterparts(flat), flat.get("DLQConfig.Topic")
        found[name] = QueueSettings(settings, dead if isinstance(dead, str) and dead != name else None)
        if left := list(_left(flat, settings)):
            problem = f"of the queue {name!r:.80} has no counterpart and is not imported: {', '.join(left)}"
            files.report(path, None, problem, is_damage=False)
    return found


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def _positive(given: object) -> int | None:
    return given if type(given) is int and given > 0 else None


def _ms(given: object) -> int | None:
    """A Go duration, in nanoseconds; None for none."""
    count = _positive(given)
    return None if count is None else max(1, count // _NS_PER_MS)


def _attempts(retries: object) -> int | None:
    count = _positive(retries)
    return None if count is None else count + 1


def _message_bytes(given: object) -> int | None:
    size = _positive(given)
    return None if size is None else min(size, MESSAGE_BYTES_MAX)


# By the names there, the setting here, and what makes a value of it, or None where there is none.
_SETTINGS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "RetryPolicy.MaxRetries": ("attempts_max", _attempts),
    "RetryPolicy.InitialBackoff": ("backoff_ms", _ms),
    "RetryPolicy.MaxBackoff": ("backoff_ms_max", _ms),
    "RetryPolicy.BackoffMultiplier": (
        "backoff_multiplier",
        lambda given: float(given) if isinstance(given, int | float) else None,
    ),
    "DeliveryTimeout": ("lease_ms", _ms),
    "MessageTTL": ("ttl_ms", _ms),
    "MaxMessageSize": ("message_bytes_max", _message_bytes),
    "AckDurability": ("durability", lambda given: _DURABILITY.get(str(given))),
    "Retention.RetentionTime": ("retention_ms", _ms),
    "Retention.RetentionBytes": ("retention_bytes", _positive),
    "Retention.RetentionMessages": ("retention_messages", _positive),
    "Retention.CompactionEnabled": ("cleanup", lambda given: "compact" if given is True else None),
    "DLQConfig.Enabled": ("dead_letters", lambda given: False if given is False else None),
}


def _counterparts(flat: Mapping[str, Any]) -> dict[str, object]:
    """The settings of a topic, each with a value that it may have."""
    declared = settings_of(TopicSettings)
    found: dict[str, Any] = {}
    for name, (setting, convert) in _SETTINGS.items():
        value = convert(flat.get(name))
        try:
            if value is not None and setting in declared:
                declared[setting].check(value)
                found[setting] = value
        except ValueError:
            # Whoever wrote it meant something else; what is left out is among what is reported.
            continue
    # Neither counts alone: the first must not be larger than the second.
    backoff_ms = [found.pop(name) for name in ("backoff_ms", "backoff_ms_max") if name in found]
    if len(backoff_ms) == 2 and backoff_ms[0] <= backoff_ms[1]:
        found["backoff_ms"], found["backoff_ms_max"] = backoff_ms
    if flat.get("Retention.CompactionKey"):
        found.pop("cleanup", None)
    return found


def _left(flat: Mapping[str, Any], taken: Mapping[str, object]) -> Iterator[str]:
    """What is set and has no counterpart, as it is called there."""
    for name, value in sorted(flat.items()):
        is_default = name in ("DLQConfig.Enabled", "Durable", "RetryPolicy.BackoffMultiplier")
        is_taken = name in _SETTINGS and _SETTINGS[name][0] in taken
        if name in _OWN or is_taken or not value or (is_default and value in (True, 2)):
            continue
        if name.startswith("Replication.") and not flat.get("Replication.Enabled"):
            continue
        yield f"{name} {value!r:.60}"
