"""Which messages of a GoQueue broker belong to transactions that were aborted, or never ended.

Messages do not say. Aborted ones are listed in `transactions/aborted_offsets.json`; `transactions.log`,
which begins anew with every snapshot, has those that were put since, and how transactions ended.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quivermq.disk import Disk, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.files import json_object, parse_json
from quivermq.importers.goqueue_delays import PartitionOffset
from quivermq.importers.model import Findings

_LOG_BYTES_MAX = 256 * 1024 * 1024
_OFFSET_MAX = 2**63 - 1
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
