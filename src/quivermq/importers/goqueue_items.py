"""A record of GoQueue as an item, with a look at whether its flags say what the record says."""

from typing import NamedTuple

from quivermq.importers.goqueue_records import (
    COMMIT,
    COMPRESSED,
    CONTROL,
    HEADERS,
    KNOWN_FLAGS,
    TOMBSTONE,
    GoRecord,
    decompressed,
    headers_of,
)
from quivermq.importers.model import Findings, Item, Level
from quivermq.importers.segments import StoredRecord, Unreadable


class _Priority(NamedTuple):
    level: Level
    own: str | None = None


_NORMAL = _Priority("normal")
_PRIORITIES = {
    0: _Priority("high", "critical"),
    1: _Priority("high"),
    2: _NORMAL,
    3: _Priority("low"),
    4: _Priority("low", "background"),
}


class GoTranslator:
    """Makes items of the records of a partition, and tells what is odd about them."""

    def __init__(self, partition: int, findings: Findings) -> None:
        self._partition = partition
        self._findings = findings
        self._told: set[str] = set()

    def item(self, stored: StoredRecord, record: GoRecord) -> Item | None:
        """The message, None where it cannot be made out."""
        self._check(stored, record)
        try:
            headers = self._headers(stored, record)
        except Unreadable as error:
            problem = f"offset {record.offset} cannot be read, but its checksum is right: {error}"
            self._findings.add(stored.path, stored.position, problem, length=len(stored.data))
            return None
        priority = _PRIORITIES.get(record.priority, _NORMAL)
        return Item(
            identity=record.offset,
            id=str(record.offset),
            value=self._value(stored, record),
            key=record.key,
            headers=headers,
            timestamp_us=record.timestamp_ns // 1000,
            partition=self._partition,
            level=priority.level,
            priority=priority.own,
        )

    def _check(self, stored: StoredRecord, record: GoRecord) -> None:
        """Tell where flags, which no checksum covers, do not go with the rest."""
        flags = record.flags
        if bool(flags & HEADERS) != bool(record.headers):
            self._tell_damage(
                stored, record, "whether it has headers, its flags and its lengths tell differently"
            )
        if flags & (CONTROL | COMMIT):
            self._tell_damage(
                stored, record, "its flags say that it ends a transaction, and its value does not"
            )
        if flags & TOMBSTONE and record.value:
            self._tell_damage(stored, record, "its flags say that it is a tombstone, and it has a value")
        if unknown := flags & ~KNOWN_FLAGS:
            self._tell_once(stored, f"a record has the flags 0x{unknown:02x}, which are not known")
        if record.priority not in _PRIORITIES:
            self._tell_once(stored, f"a record has the priority {record.priority}; it is taken as normal")

    def _headers(self, stored: StoredRecord, record: GoRecord) -> dict[str, bytes]:
        pairs = headers_of(record)
        try:
            return {name.decode(): content for name, content in pairs}
        except UnicodeDecodeError:
            self._tell_once(stored, "a name of a header is not UTF-8; what is not is written as \\x…")
            return {name.decode(errors="backslashreplace"): content for name, content in pairs}

    def _value(self, stored: StoredRecord, record: GoRecord) -> bytes:
        if not record.flags & COMPRESSED:
            return record.value
        try:
            return decompressed(record.value)
        except Unreadable as error:
            # Its bytes are those that were written: better these than none.
            self._tell_damage(stored, record, f"its flags say that it is compressed, and {error}")
            return record.value

    def _tell_damage(self, stored: StoredRecord, record: GoRecord, problem: str) -> None:
        problem = f"offset {record.offset} is imported, but {problem}"
        self._findings.add(stored.path, stored.position, problem, length=len(stored.data))

    def _tell_once(self, stored: StoredRecord, problem: str) -> None:
        """Of what is likely to be in every record."""
        if problem not in self._told:
            self._told.add(problem)
            self._findings.add(stored.path, stored.position, problem, is_damage=False)
