"""The delayed messages of a GoQueue topic: `delay/delays/<topic>/delay.index`, which has no checksums."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from quivermq.disk import Disk, File
from quivermq.errors import StorageFailed
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
