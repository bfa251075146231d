"""The part of an audit that runs in executors: one task, all that it finds, and marks for the next step."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from quivermq.disk import SystemDisk
from quivermq.errors import Corruption, InvalidFrame, OffsetOutOfRange, QuiverError, StorageFailed
from quivermq.log.survey import Survey, open_segment, survey
from quivermq.segment import Damage, index_path, log_path
from quivermq.settings import StorageSettings
from quivermq.spark.jobs.audit_findings import AuditFinding
from quivermq.spark.jobs.audit_look import Look
from quivermq.spark.jobs.audit_repeats import Marks, hashed, marks_of
from quivermq.spark.jobs.audit_sequences import SequenceRun
from quivermq.spark.jobs.audit_tasks import LaneTask, SegmentTask
from quivermq.spark.place import Lane, Place
from quivermq.topic.partition import LANE_NUMBERS

# Frames were checked against the limits of their time on the way in; an audit takes whatever got in.
_BYTES_MAX = 1024 * 1024 * 1024
_SETTINGS = StorageSettings(frame_bytes_max=_BYTES_MAX, frame_raw_bytes_max=_BYTES_MAX)
# A segment that is replaced faster than it can be looked at does not exist.
_LOOKS_MAX = 3


@dataclass(slots=True)
class Examined:
    """What a task has seen."""

    lane: Lane | None
    base_offset: int
    segments: int = 0
    frames: int = 0
    messages: int = 0
    end_offset: int = 0
    bytes: int = 0
    messages_with_ids: int = 0
    late_frames: int = 0
    first_append_us: int | None = None
    last_append_us: int = 0
    findings: list[AuditFinding] = field(default_factory=list)
    runs: list[SequenceRun] = field(default_factory=list)

    def take(self, look: Look) -> None:
        """Take in what a look at the frames has found."""
        self.findings += look.findings
        self.runs = look.sequences.all_runs()
        self.late_frames = look.late_frames
        self.messages_with_ids = look.messages_with_ids
        self.first_append_us, self.last_append_us = look.first_append_us, look.last_append_us


def examine_segment(task: SegmentTask, deep: bool) -> Examined:
    """Look at every byte of a file. What is damaged is told, and the rest is looked at all the same."""
    examined = Examined(task.lane, task.base_offset)
    path = log_path(Path(task.directory), task.base_offset)
    try:
        seen, look = _survey(task, str(path), deep)
    except FileNotFoundError:
        return examined  # Retention was faster.
    except (StorageFailed, InvalidFrame) as error:
        offsets = (task.base_offset, task.next_base)
        examined.findings.append(AuditFinding("damage", str(path), offsets, str(error), 0))
        return examined
    examined.segments = 1
    examined.frames, examined.messages, examined.bytes = seen.frames, seen.messages, seen.segment.end
    examined.end_offset = seen.end_offset
    examined.findings += _findings_of(seen)
    if task.ends_journal:
        examined.findings += _journal_findings(Path(task.directory))
    if look is not None:
        examined.take(look)
    return examined


def _survey(task: SegmentTask, where: str, deep: bool) -> tuple[Survey, Look | None]:
    """One that seems damaged is looked at again: compaction may just replace it."""
    opened = partial(
        open_segment, SystemDisk(), Path(task.directory), task.base_offset, task.next_base, _SETTINGS
    )
    before: Survey | None = None
    for _ in range(_LOOKS_MAX):
        look = None if task.lane is None else Look(task.lane, where)
        seen = survey(*opened(), lambda _: None, look=look or (lambda _: None), deep=deep)
        is_same = before is not None and (before.segment.end, before.damages) == (
            seen.segment.end,
            seen.damages,
        )
        if seen.segment.is_active or is_same or not (seen.damages or seen.index_fault):
            break
        before = seen
    return seen, look


def _journal_findings(path: Path) -> Iterator[AuditFinding]:
    from quivermq.spark.journals import read_journal

    try:
        read_journal(path)
    except Corruption:
        pass  # Its bytes are told of already.
    except StorageFailed as error:
        yield AuditFinding("state", str(path), (0, None), str(error))


def _findings_of(seen: Survey) -> Iterator[AuditFinding]:
    segment = seen.segment

    def finding(kind: str, damage: Damage) -> AuditFinding:
        return AuditFinding(kind, str(segment.path), damage.offsets, damage.reason, damage.position)

    yield from (finding("gap", gap) for gap in seen.gaps)
    yield from (finding("damage", damage) for damage in seen.damages)
    if seen.tail is not None:
        yield finding("tail", seen.tail)
    if seen.index_fault is not None:
        path = index_path(segment.directory, segment.base_offset)
        yield AuditFinding("index", str(path), (segment.base_offset, seen.end_offset), seen.index_fault, 0)


def examine_lane(place: Place, task: LaneTask) -> Examined:
    """Look at the frames that a broker sends. One that cannot be had ends this part, and only this part."""
    examined, where = Examined(task.lane, task.start), str(task.lane)
    look = Look(task.lane, where)
    examined.end_offset = task.end
    reached = task.start
    try:
        for frame in place.frames(task.lane, task.start, task.end):
            header = frame.header
            if header.base_offset > reached and not task.may_have_holes:
                reason = "messages are missing between two frames"
                examined.findings.append(
                    AuditFinding("damage", where, (reached, header.base_offset), reason)
                )
            reached = header.end_offset
            # One that begins before this part belongs to the part before.
            if header.base_offset >= task.start:
                look(frame)
                examined.frames += 1
                examined.bytes += header.frame_bytes
                examined.messages += 0 if frame.is_control else header.message_count
    except OffsetOutOfRange as error:
        if reached >= error.start:
            examined.findings.append(AuditFinding("damage", where, (reached, task.end), str(error)))
    except (StorageFailed, InvalidFrame) as error:
        examined.findings.append(AuditFinding("damage", where, (reached, task.end), str(error)))
    examined.take(look)
    return examined


def id_marks(place: Place, lane: Lane, start: int, end: int) -> Marks:
    """Marks of the deduplication ids of a lane, as far as it can be read: what cannot was told before."""
    look = Look(lane, "", takes_ids=True)
    with suppress(QuiverError):
        for frame in place.frames(lane, start, end):
            # One that begins before this part belongs to the part before.
            if frame.header.base_offset >= start and not frame.is_control:
                look(frame)
    return look.marks()


def dead_letter_marks(place: Place, lane: Lane, start: int, end: int) -> Marks:
    """Marks of where dead letters came from, as far as they can be read: what cannot was told before."""
    from pandas.util import hash_pandas_object

    from quivermq.spark.tables.dead_letters import dead_letter_batches

    columns = [
        "origin_topic",
        "origin_partition",
        "origin_priority",
        "origin_offset",
        "origin_timestamp",
        "group",
    ]
    found = [marks_of(hashed([]), [], [], 0, 0)]
    with suppress(QuiverError):
        for batch in dead_letter_batches(place, lane, start, end):
            frame = batch.select([*columns, "offset"]).to_pandas()
            # Nobody gave up what was put there by hand.
            frame = frame[frame["group"] != ""]
            hashes = hash_pandas_object(frame[columns], index=False, categorize=False).to_numpy()
            number = LANE_NUMBERS[lane.priority]
            found.append(marks_of(hashes, 0, frame["offset"].to_numpy(), lane.partition, number))
    return np.concatenate(found)
