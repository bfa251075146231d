"""How far the groups of a FluxMQ queue have come: snapshots, and the log of operations replayed over them.

A group is done with every offset below its cursor, but for those that are pending. Snapshots and log are
`consumers/<group>/state.json`, `pel_<shard>.json` and `ops.log` of a queue. What the broker knows of a
group, `groups/<queue>/<group>.json`, counts for groups in stream mode, and where there is nothing else.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from quivermq.disk import Disk, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.files import is_directory, json_object, names_in, parse_json, subdirectories
from quivermq.importers.model import Findings, Position, SourceGroup

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
