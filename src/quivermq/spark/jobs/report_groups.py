"""How long messages took from publish to ack, and how often they failed, as the journals of groups tell it.

An ack is a record of a journal, whose frame says when it came; the message's own frame says when that
came in. A journal reaches back to its last snapshot, so busy groups tell of their recent past alone.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from quivermq.delivery.journal import BURY, FINISH, RETRY
from quivermq.disk import SystemDisk
from quivermq.errors import OffsetOutOfRange
from quivermq.frame import Frame
from quivermq.log.follower import LogFollower
from quivermq.settings import StorageSettings
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.jobs.report_figures import STEPS, DeliveryFigures, Moments, Numbers, Period, steps_of
from quivermq.spark.journals import journal_path
from quivermq.spark.place import Lane, LaneBounds, Place
from quivermq.spark.tables.rows import state_of
from quivermq.topic.partition import LANES
from quivermq.topic.records import unpack
from quivermq.topic.state_log import changes_of


class Acks:
    """What a journal says about one lane: runs of offsets that were finished, and when."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []
        self._buried: list[tuple[int, int]] = []

    def finish(self, flat: "list[int]", time_us: int) -> None:
        self._runs += ((start, end, time_us) for start, end in zip(flat[::2], flat[1::2], strict=True))

    def bury(self, flat: "list[int]") -> None:
        """These end as dead letters, which is no ack."""
        self._buried += zip(flat[::2], flat[1::2], strict=True)

    def offsets(self) -> tuple[Numbers, Numbers]:
        """Every offset that was acked, and when."""
        runs = np.array(self._runs, np.int64).reshape(-1, 3)
        lengths = runs[:, 1] - runs[:, 0]
        before = np.cumsum(lengths) - lengths
        offsets = np.repeat(runs[:, 0] - before, lengths) + np.arange(lengths.sum())
        times = np.repeat(runs[:, 2], lengths)
        buried = [offset for start, end in self._buried for offset in range(start, end)]
        is_ack = ~np.isin(offsets, buried)
        return offsets[is_ack], times[is_ack]


def count_group(place: Place, topic: str, group: str, period: Period) -> DeliveryFigures:
    """A group as it is now and, where its journals can be read, what it did within a time."""
    figures = DeliveryFigures(topic, group, list(state_of(place).group_rows(topic, group)))
    if not isinstance(place, DirectoryPlace):
        return figures
    latencies, failures = list[Moments](), list[Moments]()
    for partition in range(place.settings(topic).partitions):
        acks, failed = read_acks(journal_path(place, topic, group, partition), period)
        bounds = place.lanes(topic)
        failures.append(failed)
        for priority, found in zip(LANES, acks, strict=True):
            lane = Lane(topic, partition, priority)
            if lane in bounds:
                latencies.append(_latencies(place, lane, bounds[lane], found, period))
    figures.latencies = Moments.together(latencies, 1)
    figures.retries = Moments.together(failures, 1)
    return figures


def read_acks(path: Path, period: Period) -> tuple[list[Acks], Moments]:
    """What a journal says about acks, by lane, and how many deliveries failed within a time, by second."""
    acks = [Acks() for _ in LANES]
    seconds, counts = list[int](), list[int]()
    for time_us, record in _changes(path):
        for kind, lane, numbers, _ in unpack(record):
            if kind == FINISH:
                acks[lane].finish(list(numbers), time_us)
            elif kind == BURY:
                acks[lane].bury(list(numbers[3:]))
            elif kind == RETRY and numbers[0] > 0 and time_us in period:
                # With no attempt yet it waits for its turn, and did not fail.
                flat = numbers[2:]
                seconds.append(time_us // 1_000_000)
                counts.append(sum(flat[1::2]) - sum(flat[::2]))
    return acks, Moments.of(np.array(seconds, np.int64), np.array(counts, np.int64))


def _changes(path: Path) -> Iterator[tuple[int, bytes]]:
    """Each change of a journal and when it was written; what a snapshot repeats is none."""
    disk = SystemDisk()
    if not disk.is_directory(path):
        return
    try:
        for frame in LogFollower(path, StorageSettings(), disk=disk).frames():
            for record in changes_of(frame):
                yield frame.header.append_time, record
    except OffsetOutOfRange:
        return  # A snapshot took the rest away just now; what was read holds.


def _latencies(place: Place, lane: Lane, bounds: LaneBounds, acks: Acks, period: Period) -> Moments:
    """How long after they came in messages were acked: seconds and steps, packed into one number."""
    offsets, times_us = acks.offsets()
    is_there = (offsets >= bounds.start) & (offsets < bounds.end) & period.holds(times_us)
    offsets, times_us = offsets[is_there], times_us[is_there]
    if not len(offsets):
        return Moments.together([], 1)
    try:
        frames = place.frames(lane, int(offsets.min()), int(offsets.max()) + 1)
        bases, append_us = np.array([_came(frame) for frame in frames], np.int64).T
    except OffsetOutOfRange:
        # Retention was faster. When these came in is gone with them; what else the group did is not.
        return Moments.together([], 1)
    came_us = append_us[np.searchsorted(bases, offsets, side="right") - 1]
    steps = steps_of(np.maximum(times_us - came_us, 1))
    packed = times_us // 1_000_000 * STEPS + steps
    unique, counts = np.unique(packed, return_counts=True)
    return Moments(unique, counts.reshape(1, -1))


def _came(frame: Frame) -> tuple[int, int]:
    return frame.header.base_offset, frame.header.append_time
