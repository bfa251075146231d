"""How long messages took from publish to ack, and how often they failed, as the journals of groups tell it.

An ack is a record of a journal, whose frame says when it came; the message's own frame says when that
came in. A journal reaches back to its last snapshot, so busy groups tell of their recent past alone.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quivermq.delivery.journal import DEAD_LETTER, FINISH, RETRY
from quivermq.errors import InvalidFrame, OffsetOutOfRange, UnsupportedFrame
from quivermq.frame import REMOVED, Column, Frame, arrow_batch
from quivermq.frame.layout import layout
from quivermq.model.lanes import LANE_COUNT, PRIORITIES, Lane
from quivermq.model.operations import LaneBounds
from quivermq.reading.reader import MessageReader, QueueReader
from quivermq.reading.rows import TimeRange
from quivermq.spark.jobs.audit_tasks import LaneTask
from quivermq.spark.jobs.report_figures import (
    STEPS,
    DeadLetterFigures,
    DeliveryFigures,
    MessageFigures,
    Moments,
    Numbers,
    steps_of,
)
from quivermq.spark.tables import dead_letter_batches
from quivermq.topic.records import unpack


class Acks:
    """What a journal says about one lane: runs of offsets that were finished, and when."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []
        self._given_up: list[tuple[int, int]] = []

    def finish(self, flat: "list[int]", time_us: int) -> None:
        self._runs += ((start, end, time_us) for start, end in zip(flat[::2], flat[1::2], strict=True))

    def give_up(self, flat: "list[int]") -> None:
        """These end as dead letters, which is no ack."""
        self._given_up += zip(flat[::2], flat[1::2], strict=True)

    def offsets(self) -> tuple[Numbers, Numbers]:
        """Every offset that was acked, and when."""
        runs = np.array(self._runs, np.int64).reshape(-1, 3)
        lengths = runs[:, 1] - runs[:, 0]
        before = np.cumsum(lengths) - lengths
        offsets = np.repeat(runs[:, 0] - before, lengths) + np.arange(lengths.sum())
        times = np.repeat(runs[:, 2], lengths)
        given_up = [offset for start, end in self._given_up for offset in range(start, end)]
        is_ack = ~np.isin(offsets, given_up)
        return offsets[is_ack], times[is_ack]


def count_group(reader: QueueReader, topic: str, group: str, period: TimeRange) -> DeliveryFigures:
    """A group as it is now and, where its journals can be read, what it did within a time."""
    figures = DeliveryFigures(topic, group, list(reader.group_rows(topic, group)))
    if reader.files_root() is None:
        return figures
    latencies, failures = list[Moments](), list[Moments]()
    for partition in range(reader.settings(topic).partitions):
        acks, failed = read_acks(reader.journal_changes(topic, group, partition), period)
        bounds = reader.lanes(topic)
        failures.append(failed)
        for priority, found in zip(PRIORITIES, acks, strict=True):
            lane = Lane(topic, partition, priority)
            if lane in bounds:
                latencies.append(_latencies(reader, lane, bounds[lane], found, period))
    figures.latencies = Moments.together(latencies, 1)
    figures.retries = Moments.together(failures, 1)
    return figures


def read_acks(changes: Iterable[tuple[int, bytes]], period: TimeRange) -> tuple[list[Acks], Moments]:
    """What a journal says about acks, by lane, and how many deliveries failed within a time, by second."""
    acks = [Acks() for _ in range(LANE_COUNT)]
    seconds, counts = list[int](), list[int]()
    for time_us, record in changes:
        for kind, lane, numbers, _ in unpack(record):
            if kind == FINISH:
                acks[lane].finish(list(numbers), time_us)
            elif kind == DEAD_LETTER:
                acks[lane].give_up(list(numbers[3:]))
            elif kind == RETRY and numbers[0] > 0 and time_us in period:
                # With no attempt yet it waits for its turn, and did not fail.
                flat = numbers[2:]
                seconds.append(time_us // 1_000_000)
                counts.append(sum(flat[1::2]) - sum(flat[::2]))
    return acks, Moments.of(np.array(seconds, np.int64), np.array(counts, np.int64))


def _latencies(
    reader: MessageReader, lane: Lane, bounds: LaneBounds, acks: Acks, period: TimeRange
) -> Moments:
    """How long after they came in messages were acked: seconds and steps, packed into one number."""
    offsets, times_us = acks.offsets()
    is_there = (offsets >= bounds.start) & (offsets < bounds.end) & period.holds(times_us)
    offsets, times_us = offsets[is_there], times_us[is_there]
    if not len(offsets):
        return Moments.together([], 1)
    try:
        frames = reader.frames(lane, int(offsets.min()), int(offsets.max()) + 1)
        bases, append_us = np.array(
            [(frame.header.base_offset, frame.header.append_time) for frame in frames], np.int64
        ).T
    except OffsetOutOfRange:
        # Retention was faster. When these came in is gone with them; what else the group did is not.
        return Moments.together([], 1)
    came_us = append_us[np.searchsorted(bases, offsets, side="right") - 1]
    steps = steps_of(np.maximum(times_us - came_us, 1))
    packed = times_us // 1_000_000 * STEPS + steps
    unique, counts = np.unique(packed, return_counts=True)
    return Moments(unique, counts.reshape(1, -1))


# So many messages are counted at once: enough that what each count costs besides does not matter.
_GATHERED_MAX = 262_144
# Of keys, so many are kept for each part; those that are frequent everywhere are among them.
_KEYS_MAX = 1000
_KEYS_HELD_MAX = 100_000
# Keys cost more than all the rest: of each part so many are counted, and then those of one frame of eight.
_KEYS_EXACT = 65_536
_KEYS_ONE_OF = 8
# Larger sizes are sorted to be counted, which takes longer.
_SIZE_COUNTED_MAX = 1024 * 1024


class MessageScan:
    """Takes frames of one lane and counts what is in them."""

    def __init__(self, topic: str, *, is_compacted: bool = False) -> None:
        self._is_compacted = is_compacted
        self._figures = MessageFigures(topic, Moments.together([], 2), np.zeros(STEPS, np.int64))
        self._frames: list[tuple[int, int, int]] = []
        self._offsets: list[Any] = []
        self._keys: list[pa.Array] = []
        self._gathered = 0
        self._gathered_keys = 0
        self._counter: Counter[bytes] = Counter()

    def __call__(self, frame: Frame) -> None:
        header = frame.header
        if frame.is_control:
            return
        count = header.message_count
        self._frames.append((header.append_time, count, header.frame_bytes))
        try:
            raw = frame.raw
        except UnsupportedFrame:
            self._figures.unread += count
            return
        if self._is_compacted and header.columns & Column.EXPIRES_AT:
            self._take_left(frame)
            return
        self._offsets.append(np.frombuffer(raw, np.int32, count + 1))
        if header.columns & Column.KEY and self._is_chosen(header.base_offset):
            key = layout(raw, header.columns, count, deep=False).key
            assert key is not None, "the header of a frame says which columns it has"
            buffers = [pa.py_buffer(each) for each in (key.validity, key.offsets_buffer, key.data)]
            self._take_keys(pa.Array.from_buffers(pa.binary(), count, buffers))
        self._gathered += count
        if self._gathered >= _GATHERED_MAX:
            self._count_sizes()

    def _is_chosen(self, base_offset: int) -> bool:
        """Whether the keys of a frame are counted."""
        if not self._figures.are_keys_estimated:
            return True
        # Not every eighth: whoever sends frames in turn would always be chosen, or never.
        return base_offset * 0x9E3779B97F4A7C15 >> 40 & (_KEYS_ONE_OF - 1) == 0

    def figures(self) -> MessageFigures:
        """Everything so far."""
        self._count_sizes()
        self._count_keys()
        found = self._figures
        if self._frames:
            append_us, counts, sizes = np.array(self._frames, np.int64).T
            found.moments = Moments.of(append_us // 1_000_000, counts, sizes)
        found.keys = dict(self._counter.most_common(_KEYS_MAX))
        return found

    def _take_left(self, frame: Frame) -> None:
        """A frame out of which compaction may have taken messages: only the others count."""
        batch = arrow_batch(frame, ("key", "value", "expires_at"))
        expires_us = batch.column("expires_at").cast(pa.int64())
        batch = batch.filter(pc.fill_null(pc.not_equal(expires_us, REMOVED), True))
        append_us, _, size = self._frames[-1]
        self._frames[-1] = (append_us, batch.num_rows, size)
        self._add_sizes(pc.binary_length(batch.column("value")).to_numpy(zero_copy_only=False))
        if self._is_chosen(frame.header.base_offset):
            self._take_keys(batch.column("key"))

    def _take_keys(self, keys: pa.Array) -> None:
        self._keys.append(keys)
        self._gathered_keys += len(keys)
        if self._gathered_keys >= (_GATHERED_MAX if self._figures.are_keys_estimated else _KEYS_EXACT):
            self._count_keys()

    def _count_sizes(self) -> None:
        if self._offsets:
            offsets = np.concatenate(self._offsets)
            is_size = np.ones(len(offsets) - 1, bool)
            # Between the last offset of a frame and the first one of the next there is no message.
            is_size[np.cumsum([len(each) for each in self._offsets])[:-1] - 1] = False
            self._add_sizes(np.diff(offsets)[is_size])
        self._offsets, self._gathered = [], 0

    def _count_keys(self) -> None:
        if self._keys:
            self._add_keys(pa.chunked_array(self._keys, pa.binary()))
        self._keys, self._gathered_keys = [], 0

    def _add_sizes(self, sizes: Any) -> None:
        if not len(sizes):
            return
        if sizes.min() < 0:
            raise InvalidFrame("offsets do not run upwards in the body", position=0)
        # There are far fewer sizes than messages, as a rule, and each takes a logarithm.
        if (largest := int(sizes.max())) < _SIZE_COUNTED_MAX:
            by_size = np.bincount(sizes)
            values = np.flatnonzero(by_size)
            counts = by_size[values]
        else:
            values, counts = np.unique(sizes, return_counts=True)
        np.add.at(self._figures.sizes, steps_of(values), counts)
        self._figures.size_max = max(self._figures.size_max, largest)

    def _add_keys(self, keys: pa.ChunkedArray) -> None:
        try:
            # Before anybody follows the offsets.
            keys.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidFrame(f"the keys do not hold together: {error}", position=0) from None
        counted = pc.value_counts(keys)
        values, counts = counted.field("values"), counted.field("counts")
        is_key = values.is_valid()
        values, counts = values.filter(is_key), counts.filter(is_key)
        weight = _KEYS_ONE_OF if self._figures.are_keys_estimated else 1
        counts = pc.multiply(counts, weight)
        self._figures.keyed += pc.sum(counts).as_py() or 0
        # From the next ones on, which are then counted on their own.
        self._figures.are_keys_estimated |= self._figures.keyed >= _KEYS_EXACT
        if len(counts) > _KEYS_HELD_MAX:
            best = pc.select_k_unstable(counts, _KEYS_HELD_MAX, [("", "descending")])
            values, counts = values.take(best), counts.take(best)
        self._counter.update(dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)))
        if len(self._counter) > 2 * _KEYS_HELD_MAX:
            self._counter = Counter(dict(self._counter.most_common(_KEYS_HELD_MAX)))


def count_messages(
    reader: MessageReader, task: LaneTask, period: TimeRange, *, is_compacted: bool = False
) -> MessageFigures:
    """The figures of what came into a part of a lane within a time."""
    scan = MessageScan(task.lane.topic, is_compacted=is_compacted)
    for frame in reader.frames(task.lane, task.start, task.end):
        # One that begins before this part belongs to the part before.
        if frame.header.base_offset >= task.start and frame.header.append_time in period:
            scan(frame)
    return scan.figures()


def count_dead_letters(reader: MessageReader, task: LaneTask, period: TimeRange) -> DeadLetterFigures:
    """The dead letters of a part of a lane, by where they came from, why, and when."""
    parts: dict[tuple[str, str], list[Moments]] = {}
    for batch in dead_letter_batches(reader, task.lane, task.start, task.end):
        died_us = batch.column("died_at").cast(pa.int64())
        is_inside = pa.array(period.holds(died_us.to_numpy(zero_copy_only=False)))
        seconds = pa.array(died_us.to_numpy(zero_copy_only=False) // 1_000_000)
        names = ["topic", "reason", "second"]
        columns = [batch.column("origin_topic"), batch.column("reason"), seconds]
        table = pa.table(columns, names=names).filter(is_inside)
        table = table.group_by(names).aggregate([([], "count_all")])
        for topic, reason, second, count in zip(*table.to_pydict().values(), strict=True):
            at = Moments(np.array([second]), np.array([[count]]))
            parts.setdefault((topic, reason), []).append(at)
    return DeadLetterFigures({about: Moments.together(found, 1) for about, found in parts.items()})
