"""What a GoQueue broker knows besides its messages: delays, positions of groups, transactions.

The delays of a topic are in `delay/delays/<topic>/delay.index`, which has no checksums.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from quivermq.disk import File
from quivermq.errors import StorageFailed
from quivermq.importers.files import SourceFiles, as_number, as_object, field_of, items_in

# Partition and offset, inside of a topic.
PartitionOffset = tuple[int, int]
_Places = dict[str, set[PartitionOffset]]

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

    def waiting(self, partition: int, end: int) -> dict[int, int]:
        """What waits before an offset: a group passed over it, and has not had it."""
        return {offset: 0 for number, offset in sorted(self.due_us) if number == partition and offset < end}


NO_DELAYS = Delays({}, frozenset())


def read_delays(files: SourceFiles, path: Path) -> Delays:
    """What a delay index says. What makes no sense in it is reported."""
    due_us: dict[PartitionOffset, int] = {}
    done: set[PartitionOffset] = set()
    if not files.disk.exists(path):
        return NO_DELAYS
    try:
        with files.opened(path) as file:
            for place, due_ns, state in _entries(files, file):
                # A message is there once; if not, what was written last counts.
                due_us.pop(place, None)
                done.discard(place)
                if state == _PENDING:
                    # Rounded up: never too early.
                    due_us[place] = -(-due_ns // 1000)
                elif state != _DELIVERED:
                    done.add(place)
    except StorageFailed as error:
        files.report(path, None, f"it cannot be read, so not all that wait are known: {error}")
    return Delays(due_us, frozenset(done))


def _entries(files: SourceFiles, file: File) -> Iterator[tuple[PartitionOffset, int, int]]:
    """Place, due time and state of each entry."""
    for position, data in _parts(files, file):
        for index, (offset, due_ns, partition, state, zeros) in enumerate(_ENTRY.iter_unpack(data)):
            if offset < 0 or partition < 0 or not _PENDING <= state <= _EXPIRED or any(zeros):
                where = position + index * _ENTRY.size
                files.report(file.path, where, "an entry makes no sense", length=_ENTRY.size)
            else:
                yield (partition, offset), due_ns, state


def _parts(files: SourceFiles, file: File) -> Iterator[tuple[int, bytes]]:
    """Whole entries, many at a time, and where they stand."""
    size = file.size()
    if size == 0:
        return  # It was made, and then the broker ended.
    header = file.read(0, _HEADER.size)
    if len(header) < _HEADER.size or header[:4] != _MAGIC:
        files.report(file.path, 0, "it is no delay index, so no message waits", length=size)
        return
    _, version, _, count = _HEADER.unpack(header)
    if version != _VERSION:
        problem = f"it has the version {version}, known is {_VERSION}; so no message waits"
        files.report(file.path, 4, problem, length=size)
        return
    held, rest = divmod(size - _HEADER.size, _ENTRY.size)
    if count > held or rest:
        problem = f"it says that it has {count} entries, and has {held} whole ones"
        files.report(file.path, size - rest, problem, length=rest)
    elif count < held:
        # An entry is written before it is counted.
        problem = f"it says that it has {count} entries, and has {held}, all of which count"
        files.report(file.path, 8, problem, is_damage=False)
    end = _HEADER.size + held * _ENTRY.size
    for position in range(_HEADER.size, end, _ENTRIES_AT_ONCE * _ENTRY.size):
        data = file.read(position, min(_ENTRIES_AT_ONCE * _ENTRY.size, end - position))
        # Fewer than there were, where somebody cuts the file meanwhile.
        yield position, data[: len(data) - len(data) % _ENTRY.size]


_OFFSET_MAX = 2**63 - 1
_PARTITION = re.compile(r"[0-9]{1,10}")

# By topic, by group and by partition, the next offset that a group reads.
_Committed = dict[str, dict[str, dict[int, int]]]


def _read_committed(files: SourceFiles, directory: Path) -> _Committed:
    """The positions of all groups. What cannot be understood is reported, and the rest counts."""
    committed: _Committed = {}
    for group_directory in files.subdirectories(directory):
        path = group_directory / "offsets.json"
        document = files.json_object(path, "how far the group has come is") or {}
        group = document.get("group_id")
        group = group if isinstance(group, str) and group else group_directory.name
        for topic, given in items_in(document.get("topics")):
            # One that has committed nothing there yet has finished nothing there.
            positions = committed.setdefault(topic, {}).setdefault(group, {})
            for name, entry in items_in(field_of(given, "partitions")):
                offset = field_of(entry, "offset")
                if type(offset) is int and 0 <= offset <= _OFFSET_MAX and _PARTITION.fullmatch(name):
                    positions[int(name)] = offset
                else:
                    problem = f"the position in partition {name!r:.80} of {topic!r:.80} is {offset!r:.80}"
                    files.report(path, None, problem)
    return committed


_PARTITION_MAX = 2**31 - 1


def _read_transactions(files: SourceFiles, directory: Path) -> tuple[_Places, _Places]:
    """What aborted transactions put, and those that did not end: nobody is to see it."""
    aborted = _listed(files, directory / "aborted_offsets.json")
    log = _TransactionLog(_open_at_snapshot(files, directory / "producer_state.json"))
    lost, skipped = "how transactions ended is", "a line was passed over"
    files.replay(directory / "transactions.log", log.apply, lost, skipped)
    for topic, places in log.places(is_committed=False).items():
        aborted.setdefault(topic, set()).update(places)
    return aborted, log.places(is_committed=None)


def _listed(files: SourceFiles, path: Path) -> _Places:
    document = files.json_object(path, "which transactions were aborted is") or {}
    found: _Places = {}
    try:
        for topic, partitions in as_object(document.get("aborted") or {}).items():
            for partition, offsets in as_object(partitions or {}).items():
                places = found.setdefault(topic, set())
                places.update(_place(int(partition), offset) for offset in offsets or ())
    except (TypeError, ValueError) as error:
        files.report(path, None, f"not all that was aborted is known: {error}")
    return found


def _open_at_snapshot(files: SourceFiles, path: Path) -> dict[str, str]:
    """By producer, the transaction that was open when the log of transactions began anew."""
    document = files.json_object(path, "which transactions were open is") or {}
    current = {
        producer: field_of(state, "currentTransactionId")
        for producer, state in items_in(document.get("transactionalIds"))
    }
    return {producer: name for producer, name in current.items() if isinstance(name, str) and name}


class _TransactionLog:
    """The log of transactions, replayed: JSON lines of a type and data."""

    def __init__(self, current: dict[str, str]) -> None:
        # By producer.
        self._current = current
        # By transaction: what it put, and, once it has ended, whether it was committed.
        self._put: dict[str, list[tuple[str, PartitionOffset]]] = {}
        self._committed: dict[str, bool] = {}

    def places(self, *, is_committed: bool | None) -> _Places:
        """By topic, what transactions put that ended so; with None, what those put that did not end."""
        found: _Places = {}
        for transaction, puts in self._put.items():
            if self._committed.get(transaction) is is_committed:
                for topic, place in puts:
                    found.setdefault(topic, set()).add(place)
        return found

    def apply(self, record: Any) -> None:
        """Take a line in. Raises Unreadable."""
        kind = as_object(record).get("type")
        if kind not in ("begin_txn", "txn_publish", "complete_commit", "complete_abort"):
            return  # It says nothing about any message.
        data = as_object(record.get("data"))
        producer = str(data.get("transactionalID"))
        if kind in ("begin_txn", "txn_publish"):
            self._current[producer] = str(data.get("transactionId"))
        if kind == "txn_publish":
            place = _place(data.get("partition"), data.get("offset"))
            self._put.setdefault(self._current[producer], []).append((str(data.get("topic")), place))
        elif kind != "begin_txn" and producer in self._current:
            self._committed[self._current.pop(producer)] = kind == "complete_commit"


def _place(partition: Any, offset: Any) -> PartitionOffset:
    what = "partition or offset"
    return as_number(partition, _PARTITION_MAX, what), as_number(offset, _OFFSET_MAX, what)


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


def read_states(files: SourceFiles, path: Path, topics: Mapping[str, str]) -> dict[str, TopicState]:
    """The state of each topic of a broker that holds no dead letters. `topics` says of which topic each is.

    What cannot be understood is reported, and positions in topics that are not there, or in dead letters.
    """
    directory = path / "transactions"
    is_known = files.disk.is_directory(directory)
    aborted, unended = _read_transactions(files, directory) if is_known else ({}, {})
    committed = _read_committed(files, path / "offsets")
    for topic, groups in sorted(committed.items()):
        if topics.get(topic) != topic:
            why = "holds dead letters" if topic in topics else "is not there"
            problem = f"positions of {', '.join(sorted(groups))} in {topic} are not imported: it {why}"
            files.report(path / "offsets", None, problem, is_damage=False)
    return {
        name: TopicState(
            delays=path / "delay" / "delays" / name / "delay.index",
            positions=committed.get(name, {}),
            aborted=aborted.get(name, ()),
            unended=unended.get(name, ()),
            is_known=is_known,
        )
        for name in topics.values()
    }


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


def left_behind(files: SourceFiles, path: Path) -> str:
    """What to report of a part of the directory that is not imported."""
    reason = _REASONS.get(path.name)
    if reason is None or not files.is_directory(path):
        return "it is not imported"
    names = files.names(path)
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    of = f" of {shown}" if path.name == "schemas" and names else ""
    return f"it is not imported, files: {_count_files(files, path, _DEPTH_MAX)}{of}; {reason}"


def _count_files(files: SourceFiles, path: Path, depth: int) -> int:
    below = [path / name for name in files.names(path)]
    return sum(
        (_count_files(files, each, depth - 1) if depth else 0) if files.is_directory(each) else 1
        for each in below
    )
