"""What an audit looks for in each frame beside its checksums: order, and what must not be there twice."""

from typing import Any

import numpy as np

from quivermq.errors import InvalidFrame
from quivermq.frame import Column, Frame, Header, arrow_batch
from quivermq.spark.jobs.audit_findings import AuditFinding
from quivermq.spark.jobs.audit_repeats import Marks, hashed, marks_of
from quivermq.spark.jobs.audit_sequences import SequenceRun, Sequences
from quivermq.spark.place import Lane
from quivermq.topic.partition import LANE_NUMBERS
from quivermq.topic.transfer import TRANSFER_EPOCH

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
            self._note_time(header)
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

    def _note_time(self, header: Header) -> None:
        seconds = (self.last_append_us - header.append_time) / 1e6
        self._note("append_time", header, f"came in {seconds:.3f} s before the frame in front of it")

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
        place = self.lane.partition, LANE_NUMBERS[self.lane.priority]
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
