"""All records of a FluxMQ queue, out of the batches of its segments."""

from collections.abc import Iterator
from pathlib import Path

from quivermq.disk import Disk
from quivermq.importers.fluxmq_batches import LAYOUT, FluxRecord, batch_of, records_of
from quivermq.importers.model import Findings
from quivermq.importers.segment_files import told_segment_files
from quivermq.importers.segments import StoredRecord, Unreadable, lost_offsets, whole_records

SUFFIX = ".seg"
# What tells nothing that the segments do not tell.
_BESIDE = (".idx", ".tix")


def segments_of(disk: Disk, queue: Path) -> Path:
    """Where the segments of a queue are: in a directory of its own, or all there is of it."""
    inside = queue / "segments"
    return inside if disk.is_directory(inside) else queue


def records_in(disk: Disk, queue: Path, findings: Findings) -> Iterator[tuple[StoredRecord, FluxRecord]]:
    """The whole records of a queue in the order of their offsets, each with the batch it is in."""
    files = told_segment_files(disk, segments_of(disk, queue), SUFFIX, _BESIDE, findings)
    for stored, first in whole_records(disk, files, LAYOUT, findings):
        following = first
        try:
            for record in records_of(stored, batch_of(stored)):
                if record.offset < first:
                    continue  # It was there before.
                if not following <= record.offset < stored.head.end:
                    raise Unreadable(f"it has a record of offset {record.offset}, which is out of order")
                following = record.offset + 1
                yield stored, record
        except Unreadable as error:
            problem = (
                f"a batch cannot be read, but its checksum is right: {error}"
                f"{lost_offsets(following, stored.head.end)}"
            )
            findings.add(stored.path, stored.position, problem, length=len(stored.data))
