"""The delayed messages of a GoQueue topic: `delay/delays/<topic>/delay.index`, which has no checksums."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from quivermq.disk import Disk, File, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.files import is_directory, json_object, names_in, parse_json, subdirectories
from quivermq.importers.model import Findings

# Partition and offset, inside of a topic.
PartitionOffset = tuple[int, int]

# "GQDL", version, zero, number of entries.
_HEADER = Struct(">4sHHQ")
# Offset, due time in nanoseconds, partition, state, eight zero bytes.
_ENTRY = Struct(">qqii8s")
_MAGIC, _VERSION = b"GQDL", 1
_PENDING, _DELIVERED, _CANCELLED, _EXPIRED = range(4)

_ENTRIES_AT_ONCE = 4096


class Delays(NamedTuple):
    """The messages of a topic that were given a delay and were not delivered."""

    due_us: Mapping[PartitionOffset, int]
    """Those that wait, and until when."""
    done: frozenset[PartitionOffset]
    """Those that were cancelled, or expired while they waited."""


NO_DELAYS = Delays({}, frozenset())


def read_delays(disk: Disk, path: Path, findings: Findings) -> Delays:
    """What a delay index says. What makes no sense in it is told."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return NO_DELAYS
    except StorageFailed as error:
        findings.add(path, None, f"it cannot be read, so no message waits: {error}")
        return NO_DELAYS
    due_us: dict[PartitionOffset, int] = {}
    done: set[PartitionOffset] = set()
    try:
        for place, due_ns, state in _entries(file, findings):
            # A message is there once; if not, what was written last counts.
            due_us.pop(place, None)
            done.discard(place)
            if state == _PENDING:
                # Rounded up: never too early.
                due_us[place] = -(-due_ns // 1000)
            elif state != _DELIVERED:
                done.add(place)
    except StorageFailed as error:
        findings.add(path, None, f"the rest of it cannot be read: {error}")
    finally:
        file.close()
    return Delays(due_us, frozenset(done))


def _entries(file: File, findings: Findings) -> Iterator[tuple[PartitionOffset, int, int]]:
    """Place, due time and state of each entry."""
    for position, data in _parts(file, findings):
        for index, (offset, due_ns, partition, state, zeros) in enumerate(_ENTRY.iter_unpack(data)):
            if offset < 0 or partition < 0 or not _PENDING <= state <= _EXPIRED or any(zeros):
                where = position + index * _ENTRY.size
                findings.add(file.path, where, "an entry makes no sense", length=_ENTRY.size)
            else:
                yield (partition, offset), due_ns, state


def _parts(file: File, findings: Findings) -> Iterator[tuple[int, bytes]]:
    """Whole entries, many at a time, and where they stand."""
    size = file.size()
    if size == 0:
        return  # It was made, and then the broker ended.
    header = file.read(0, _HEADER.size)
    if len(header) < _HEADER.size or header[:4] != _MAGIC:
        findings.add(file.path, 0, "it is no delay index, so no message waits", length=size)
        return
    _, version, _, count = _HEADER.unpack(header)
    if version != _VERSION:
        problem = f"it has the version {version}, known is {_VERSION}; so no message waits"
        findings.add(file.path, 4, problem, length=size)
        return
    held, rest = divmod(size - _HEADER.size, _ENTRY.size)
    if count > held or rest:
        problem = f"it says that it has {count} entries, and has {held} whole ones"
        findings.add(file.path, size - rest, problem, length=rest)
    elif count < held:
        # An entry is written before it is counted.
        problem = f"it says that it has {count} entries, and has {held}, all of which count"
        findings.add(file.path, 8, problem, is_damage=False)
    end = _HEADER.size + held * _ENTRY.size
    for position in range(_HEADER.size, end, _ENTRIES_AT_ONCE * _ENTRY.size):
        data = file.read(position, min(_ENTRIES_AT_ONCE * _ENTRY.size, end - position))
        # Fewer than there were, where somebody cuts the file meanwhile.
        yield position, data[: len(data) - len(data) % _ENTRY.size]


_OFFSET_MAX = 2**63 - 1
_PARTITION = re.compile(r"[0-9]{1,10}")

# By topic, by group and by partition, the next offset that a group reads.
Committed = dict[str, dict[str, dict[int, int]]]


def read_committed(disk: Disk, directory: Path, findings: Findings) -> Committed:
    """The positions of all groups. What cannot be understood is told, and the rest counts."""
    committed: Committed = {}
    for group_directory in subdirectories(disk, directory, findings):
        path = group_directory / "offsets.json"
        document = json_object(disk, path, findings, "how far the group has come is")
        if document is None:
            continue
        group = document.get("group_id")
        group = group if isinstance(group, str) and group else group_directory.name
        told = document.get("topics")
        for topic in told if isinstance(told, dict) else ():
            # One that has committed nothing there yet has finished nothing there.
            committed.setdefault(topic, {}).setdefault(group, {})
        for topic, partition, offset in _offsets(path, document, findings):
            committed.setdefault(topic, {}).setdefault(group, {})[partition] = offset
    return committed


def _offsets(path: Path, document: Mapping[str, Any], findings: Findings) -> Iterator[tuple[str, int, int]]:
    topics = document.get("topics")
    for topic, told in topics.items() if isinstance(topics, dict) else ():
        partitions = told.get("partitions") if isinstance(told, dict) else None
        for name, entry in partitions.items() if isinstance(partitions, dict) else ():
            offset = entry.get("offset") if isinstance(entry, dict) else None
            if type(offset) is int and 0 <= offset <= _OFFSET_MAX and _PARTITION.fullmatch(name):
                yield topic, int(name), offset
            else:
                problem = f"the position in partition {name!r:.80} of {topic!r:.80} is {offset!r:.80}"
                findings.add(path, None, problem)


_LOG_BYTES_MAX = 256 * 1024 * 1024

_PARTITION_MAX = 2**31 - 1


class Transactions(NamedTuple):
    """Places by topic that hold what nobody is to see."""

    aborted: Mapping[str, set[PartitionOffset]]
    unended: Mapping[str, set[PartitionOffset]]


NO_TRANSACTIONS = Transactions({}, {})


def read_transactions(disk: Disk, directory: Path, findings: Findings) -> Transactions:
    """What the `transactions` of a broker say. What cannot be understood is told."""
    aborted = _listed(disk, directory / "aborted_offsets.json", findings)
    log = _Log(_open_at_snapshot(disk, directory / "producer_state.json", findings))
    log.replay(disk, directory / "transactions.log", findings)
    for topic, places in log.places(is_aborted=True).items():
        aborted.setdefault(topic, set()).update(places)
    return Transactions(aborted, log.places(is_aborted=None))


def _listed(disk: Disk, path: Path, findings: Findings) -> dict[str, set[PartitionOffset]]:
    document = json_object(disk, path, findings, "which transactions were aborted is") or {}
    found: dict[str, set[PartitionOffset]] = {}
    try:
        for topic, partitions in _mapping(document.get("aborted") or {}).items():
            for partition, offsets in _mapping(partitions or {}).items():
                number = _number(int(partition), _PARTITION_MAX)
                places = found.setdefault(topic, set())
                places.update((number, _number(offset, _OFFSET_MAX)) for offset in offsets or ())
    except (TypeError, ValueError) as error:
        findings.add(path, None, f"not all that was aborted is known: {error}")
    return found


def _open_at_snapshot(disk: Disk, path: Path, findings: Findings) -> dict[str, str]:
    """By producer, the transaction that was open when the log of transactions began anew."""
    document = json_object(disk, path, findings, "which transactions were open is") or {}
    producers = document.get("transactionalIds")
    found = {}
    for name, state in producers.items() if isinstance(producers, dict) else ():
        current = state.get("currentTransactionId") if isinstance(state, dict) else None
        if isinstance(current, str) and current:
            found[name] = current
    return found


class _Log:
    """The log of transactions, replayed: JSON lines of a type and data."""

    def __init__(self, current: dict[str, str]) -> None:
        # By producer.
        self._current = current
        # By transaction: what it put, and, once it has ended, whether it was committed.
        self._put: dict[str, list[tuple[str, PartitionOffset]]] = {}
        self._committed: dict[str, bool] = {}

    def places(self, *, is_aborted: bool | None) -> dict[str, set[PartitionOffset]]:
        """By topic, what aborted transactions put; with None, what those put that did not end."""
        wanted = None if is_aborted is None else not is_aborted
        found: dict[str, set[PartitionOffset]] = {}
        for transaction, puts in self._put.items():
            if self._committed.get(transaction) is wanted:
                for topic, place in puts:
                    found.setdefault(topic, set()).add(place)
        return found

    def replay(self, disk: Disk, path: Path, findings: Findings) -> None:
        try:
            data = read_file(disk, path, bytes_max=_LOG_BYTES_MAX)
        except FileNotFoundError:
            return
        except StorageFailed as error:
            findings.add(path, None, f"it cannot be read, so how transactions ended is not known: {error}")
            return
        position = 0
        for line in data.splitlines(keepends=True):
            try:
                if line.strip():
                    self._apply(_mapping(parse_json(line)))
            except ValueError as error:
                findings.add(path, position, f"a line was passed over: {error}", length=len(line))
            position += len(line)

    def _apply(self, record: Mapping[str, Any]) -> None:
        kind, data = record.get("type"), record.get("data")
        if kind not in ("begin_txn", "txn_publish", "complete_commit", "complete_abort"):
            return  # It says nothing about any message.
        data = _mapping(data)
        producer = str(data.get("transactionalID"))
        if kind in ("begin_txn", "txn_publish"):
            self._current[producer] = str(data.get("transactionId"))
        if kind == "txn_publish":
            place = _number(data.get("partition"), _PARTITION_MAX), _number(data.get("offset"), _OFFSET_MAX)
            self._put.setdefault(self._current[producer], []).append((str(data.get("topic")), place))
        elif kind != "begin_txn" and producer in self._current:
            self._committed[self._current.pop(producer)] = kind == "complete_commit"


def _mapping(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{given!r:.80} is no JSON object")
    return given


def _number(given: Any, highest: int) -> int:
    if type(given) is not int or not 0 <= given <= highest:
        raise ValueError(f"{given!r:.80} is no partition or offset")
    return given


_DEPTH_MAX = 4
_SHOWN = 5

_REASONS = {
    "schemas": "topics have no schemas here, so producers and consumers go on with their own",
    "traces": "they tell what happened there, to no message that comes",
    "inflight": "what was with a consumer is delivered again, because no group has finished it",
    "tenants": "there are keys with scopes and limits instead",
    "internal": "positions are taken from offsets/",
    "snapshots": "positions are taken from offsets/",
}


def left_behind(disk: Disk, path: Path) -> str:
    """What to tell of a part of the directory that is not imported."""
    reason = _REASONS.get(path.name)
    if reason is None or not is_directory(disk, path):
        return "it is not imported"
    names = names_in(disk, path)
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    count = _files(disk, path, _DEPTH_MAX)
    of = f" of {shown}" if path.name == "schemas" and names else ""
    return f"it is not imported, files: {count}{of}; {reason}"


def _files(disk: Disk, path: Path, depth: int) -> int:
    below = [path / name for name in names_in(disk, path)]
    return sum(
        (_files(disk, each, depth - 1) if depth else 0) if is_directory(disk, each) else 1 for each in below
    )
