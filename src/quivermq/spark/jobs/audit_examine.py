"""The part of an audit that runs in executors: one task, all that it finds, and marks for the next step."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quivermq.archive import Archive
from quivermq.disk import Disk
from quivermq.errors import Corruption, InvalidFrame, OffsetOutOfRange, QuiverError, StorageFailed
from quivermq.frame import Column, Frame, Header, arrow_batch
from quivermq.log.verify import SegmentCheck, check_segment, open_segment
from quivermq.model.lanes import PRIORITIES, Lane, Priority, lane_number
from quivermq.reading.files import ANY_FRAME, read_journal
from quivermq.reading.reader import MessageReader, QueueReader
from quivermq.segment import Damage, index_path, log_path
from quivermq.spark.jobs.audit_tasks import AuditFinding, LaneTask, SegmentTask
from quivermq.topic.transfer import TRANSFER_EPOCH

MARK = np.dtype(
    [("hash", "<u8"), ("time_us", "<i8"), ("offset", "<i8"), ("partition", "<i4"), ("lane", "<i4")]
)
SHARES = 16

Marks = npt.NDArray[np.void]


class Repeat(NamedTuple):
    """Two places with the same mark, the earlier one first."""

    first: tuple[int, Priority, int]
    second: tuple[int, Priority, int]


def marks_of(
    hashes: npt.NDArray[np.uint64], times_us: object, offsets: object, partition: int, lane: int
) -> Marks:
    """Marks of messages of one lane."""
    marks = np.zeros(len(hashes), MARK)
    marks["hash"], marks["time_us"], marks["offset"] = hashes, times_us, offsets
    marks["partition"], marks["lane"] = partition, lane
    return marks


def hashed(values: Sequence[object]) -> npt.NDArray[np.uint64]:
    """64 bits of each value, the same in every process."""
    from pandas.util import hash_array

    array = np.empty(len(values), object)
    array[:] = values
    hashes: npt.NDArray[np.uint64] = hash_array(array, categorize=False)
    return hashes


def dealt(marks: Marks) -> Iterator[tuple[int, bytes]]:
    """Marks by the share that their hash belongs to."""
    share = (marks["hash"] % SHARES).astype(np.intp)
    for number in np.unique(share):
        yield int(number), marks[share == number].tobytes()


def repeats(blobs: Iterable[bytes], window_us: int | None) -> list[Repeat]:
    """Which marks are there twice, no further apart than the window; None is for ever."""
    marks = np.frombuffer(b"".join(blobs), MARK)
    marks = marks[np.lexsort((marks["offset"], marks["time_us"], marks["hash"]))]
    is_same = marks["hash"][1:] == marks["hash"][:-1]
    if window_us is not None:
        is_same &= marks["time_us"][1:] - marks["time_us"][:-1] < window_us
    at = np.flatnonzero(is_same)
    return [Repeat(_place(marks[i]), _place(marks[i + 1])) for i in at]


def _place(mark: np.void) -> tuple[int, Priority, int]:
    return int(mark["partition"]), PRIORITIES[mark["lane"]], int(mark["offset"])


# Sequences are counted in 32 bits; what is less than half a round behind is a repetition, not a leap.
_ROUND = 2**32
_HALF = 2**31


class SequenceRun(NamedTuple):
    """Batches of a producer that follow each other without a gap, from an offset on."""

    producer_id: int
    epoch: int
    sequence: int
    messages: int
    base_offset: int


class Sequences:
    """Takes batches in the order of their offsets and tells which were there before."""

    def __init__(self) -> None:
        # By producer and epoch: where its last run began, how long it is, and where it lies.
        self._last: dict[tuple[int, int], SequenceRun] = {}
        self.runs: list[SequenceRun] = []

    def add(self, run: SequenceRun) -> bool:
        """Take in a batch, or a run of them. False when some of its sequences were there before."""
        key = run.producer_id, run.epoch
        last = self._last.get(key)
        if last is None:
            self._last[key] = run
            return True
        ahead = (run.sequence - last.sequence - last.messages) % _ROUND
        if ahead == 0:
            self._last[key] = last._replace(messages=last.messages + run.messages)
            return True
        if ahead >= _HALF:
            return False
        # Something is missing in between, which a power loss or a repair may have taken.
        self.runs.append(last)
        self._last[key] = run
        return True

    def all_runs(self) -> list[SequenceRun]:
        """Everything that was taken in, by offset."""
        return sorted([*self.runs, *self._last.values()], key=lambda run: run.base_offset)


# Of a frame with fewer messages, ids are cheaper to take one by one than to make a column of.
_ROWS_FEW = 32
# So many ids are hashed at once.
_IDS_MAX = 65_536
# A lane that somebody has scrambled has no more to say after so many.
_FINDINGS_MAX = 100


class Look:
    """Looks at the frames of a lane, one after the other: at their headers, and at ids if it is told to."""

    def __init__(self, lane: Lane, where: str, *, takes_ids: bool = False) -> None:
        self.lane = lane
        self.findings: list[AuditFinding] = []
        self.sequences = Sequences()
        self.first_append_us: int | None = None
        self.last_append_us = 0
        self.late_frames = 0
        """How many frames hold a timestamp that is older than one of an earlier frame."""
        self.messages_with_ids = 0
        """How many messages are in frames that have deduplication ids."""
        self._where = where
        self._takes_ids = takes_ids
        self._timestamp_max = -(2**63)
        self._ids: list[Any] = []
        self._id_count = 0
        self._times: list[Any] = []
        self._offsets: list[Any] = []
        self._marks: list[Marks] = []

    def __call__(self, frame: Frame) -> None:
        header = frame.header
        append_us = header.append_time
        if self.first_append_us is None:
            self.first_append_us = append_us
        elif append_us < self.last_append_us:
            seconds = (self.last_append_us - append_us) / 1e6
            self._note("append_time", header, f"came in {seconds:.3f} s before the frame in front of it")
        self.last_append_us = append_us
        if header.timestamp_min < self._timestamp_max:
            self.late_frames += 1
        if header.timestamp_max > self._timestamp_max:
            self._timestamp_max = header.timestamp_max
        if header.producer_id:
            self._note_batch(header)
        if header.columns & Column.DEDUP_ID:
            self.messages_with_ids += header.message_count
            if self._takes_ids:
                self._take_ids(frame)

    def marks(self) -> Marks:
        """The marks of all deduplication ids, if it took them."""
        self._hash_ids()
        return np.concatenate(self._marks) if self._marks else marks_of(hashed([]), [], [], 0, 0)

    def _note(self, kind: str, header: Header, reason: str) -> None:
        if len(self.findings) < _FINDINGS_MAX:
            offsets = (header.base_offset, header.end_offset)
            self.findings.append(AuditFinding(kind, self._where, offsets, reason))

    def _note_batch(self, header: Header) -> None:
        run = SequenceRun(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.message_count,
            header.base_offset,
        )
        if not self.sequences.add(run):
            self._note("sequence", header, repeated(run))

    def _take_ids(self, frame: Frame) -> None:
        header = frame.header
        try:
            if header.message_count >= _ROWS_FEW:
                ids = arrow_batch(frame, ("dedup_id",)).column(0).to_numpy(zero_copy_only=False)
            else:
                ids = np.array([*frame.dedup_ids()], object)
        except InvalidFrame as error:
            self._note("damage", header, error.reason)
            return
        is_there = ids != None  # noqa: E711  (Element by element, which `is not` does not do.)
        times = np.full(len(ids), header.append_time)
        if header.producer_epoch == TRANSFER_EPOCH:
            # A delayed message was seen when it was put, long before it came here.
            times = np.minimum(times, np.fromiter(frame.timestamps(), np.int64, len(ids)))
        self._id_count += len(ids)
        self._ids.append(ids[is_there])
        self._times.append(times[is_there])
        self._offsets.append(np.arange(header.base_offset, header.end_offset)[is_there])
        if self._id_count >= _IDS_MAX:
            self._hash_ids()

    def _hash_ids(self) -> None:
        if not self._ids:
            return
        place = self.lane.partition, lane_number(self.lane.priority)
        hashes = hashed(np.concatenate(self._ids).tolist())
        self._marks.append(
            marks_of(hashes, np.concatenate(self._times), np.concatenate(self._offsets), *place)
        )
        self._ids, self._times, self._offsets, self._id_count = [], [], [], 0


def repeated(run: SequenceRun) -> str:
    """What to say of a batch that is there twice."""
    if run.epoch == TRANSFER_EPOCH:
        return f"the move {run.producer_id:x} between two topics has arrived a second time"
    end = (run.sequence + run.messages) % 2**32
    return (
        f"sequences [{run.sequence}, {end}) of producer {run.producer_id}, epoch {run.epoch}, came before"
    )


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


def examine_segment(reader: QueueReader, task: SegmentTask, deep: bool) -> Examined:
    """Look at every byte of a file. What is damaged is told, and the rest is looked at all the same."""
    examined = Examined(task.lane, task.base_offset)
    path = log_path(Path(task.directory), task.base_offset)
    try:
        seen, look = _survey(reader.disk, task, str(path), deep)
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
        examined.findings += _journal_findings(reader.disk, Path(task.directory))
    if look is not None:
        examined.take(look)
    return examined


def _survey(disk: Disk, task: SegmentTask, where: str, deep: bool) -> tuple[SegmentCheck, Look | None]:
    """One that seems damaged is looked at again: compaction may just replace it."""
    opened = partial(open_segment, disk, Path(task.directory), task.base_offset, task.next_base, ANY_FRAME)
    before: SegmentCheck | None = None
    for _ in range(_LOOKS_MAX):
        look = None if task.lane is None else Look(task.lane, where)
        seen = check_segment(*opened(), lambda _: None, look=look or (lambda _: None), deep=deep)
        is_same = before is not None and (before.segment.end, before.damages) == (
            seen.segment.end,
            seen.damages,
        )
        if seen.segment.is_active or is_same or not (seen.damages or seen.index_fault):
            break
        before = seen
    return seen, look


def _journal_findings(disk: Disk, path: Path) -> Iterator[AuditFinding]:
    try:
        read_journal(disk, path)
    except Corruption:
        pass  # Its bytes are told of already.
    except StorageFailed as error:
        yield AuditFinding("state", str(path), (0, None), str(error))


def _findings_of(seen: SegmentCheck) -> Iterator[AuditFinding]:
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


def examine_lane(reader: MessageReader, task: LaneTask, _: bool) -> Examined:
    """Look at the frames that a queue sends. One that cannot be had ends this part, and only this part."""
    examined, where = Examined(task.lane, task.start), str(task.lane)
    look = Look(task.lane, where)
    examined.end_offset = task.end
    reached = task.start
    try:
        for frame in reader.frames(task.lane, task.start, task.end):
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


def id_marks(reader: MessageReader, lane: Lane, start: int, end: int) -> Marks:
    """Marks of the deduplication ids of a lane, as far as it can be read: what cannot was told before."""
    look = Look(lane, "", takes_ids=True)
    with suppress(QuiverError):
        for frame in reader.frames(lane, start, end):
            # One that begins before this part belongs to the part before.
            if frame.header.base_offset >= start and not frame.is_control:
                look(frame)
    return look.marks()


def dead_letter_marks(reader: MessageReader, lane: Lane, start: int, end: int) -> Marks:
    """Marks of where dead letters came from, as far as they can be read: what cannot was told before."""
    from pandas.util import hash_pandas_object

    from quivermq.spark.tables import dead_letter_batches

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
        for batch in dead_letter_batches(reader, lane, start, end):
            frame = batch.select([*columns, "offset"]).to_pandas()
            # Nobody gave up what was put there by hand.
            frame = frame[frame["group"] != ""]
            hashes = hash_pandas_object(frame[columns], index=False, categorize=False).to_numpy()
            number = lane_number(lane.priority)
            found.append(marks_of(hashes, 0, frame["offset"].to_numpy(), lane.partition, number))
    return np.concatenate(found)


# With the values, so that every part of a file whose sum would not be right is read.
_COLUMNS = ("offset", "key", "value", "headers", "timestamp")


class ArchiveTask(NamedTuple):
    """One file of an archive: its messages, of offsets [start, end)."""

    archive: str
    lane: Lane
    created_us: int
    name: str
    start: int
    end: int
    rows: int
    size_bytes: int

    @property
    def log(self) -> str:
        return str(self.lane)


def archived(reader: QueueReader, topics: Iterable[str]) -> tuple[list[ArchiveTask], list[AuditFinding]]:
    """The files of the archive of a directory, and what can be told of it at once."""
    tasks, findings = list[ArchiveTask](), list[AuditFinding]()
    try:
        directory = reader.archive_directory()
    except StorageFailed as error:
        return [], [AuditFinding("archive", str(error.path), (0, None), str(error))]
    if directory is None:
        return [], []
    for topic in topics:
        try:
            created_us = reader.created_us(topic)
            found = Archive(directory).topic(topic, created_us)
        except QuiverError as error:
            findings.append(AuditFinding("archive", str(directory), (0, None), str(error)))
            continue
        for own, lane in found.manifest.lanes.items() if found is not None else ():
            tasks += [
                ArchiveTask(str(directory), own, created_us, f.name, f.start, f.end, f.rows, f.bytes)
                for f in lane.files
            ]
            reason = "was lost before anybody archived it"
            findings += [AuditFinding("gap", f"the archive of {own}", gap, reason) for gap in lane.gaps]
    return tasks, findings


def examine_archived(_: MessageReader, task: ArchiveTask, __: bool) -> Examined:
    """In an executor: read a file and compare it with what the manifest says."""
    path, examined = Path(task.archive) / task.name, Examined(None, task.start)
    rows, last = 0, task.start - 1
    reason = None
    try:
        topic = Archive(Path(task.archive)).topic(task.lane.topic, task.created_us)
        if topic is None:
            return examined  # Somebody has just made the topic anew.
        for batch in topic.batches(task.lane, task.start, task.end, _COLUMNS):
            offsets = batch.column("offset").to_numpy()
            rows += len(offsets)
            if len(offsets) and (
                offsets[0] <= last or np.any(np.diff(offsets) <= 0) or offsets[-1] >= task.end
            ):
                reason = "has offsets that do not run upwards inside of its range"
            last = int(offsets[-1]) if len(offsets) else last
    except QuiverError as error:
        reason = str(error)
    if reason is None and rows != task.rows:
        reason = f"has {rows} messages, the manifest says {task.rows}"
    if reason is not None:
        examined.findings.append(AuditFinding("archive", str(path), (task.start, task.end), reason))
    return examined
