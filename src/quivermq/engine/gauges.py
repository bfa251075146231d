"""Figures that are looked up when somebody asks for the metrics, instead of being kept all the time."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from quivermq.clock import Clock
from quivermq.disk import Disk
from quivermq.metrics import Labels, Metrics, labels_of
from quivermq.model.stats import EngineStats, QueueStats, TopicStats
from quivermq.model.turns import in_turns

# Where Linux lists what a process has open; other systems have nothing there.
_OPEN_FILES = Path("/proc/self/fd")


S = TypeVar("S")
Kinds = list[tuple[str, str, Callable[[S], int]]]

_OF_TOPICS: Kinds[TopicStats] = [
    ("quiver_topic_messages", "Messages in the log.", attrgetter("messages")),
    ("quiver_topic_bytes", "Bytes in the log.", attrgetter("bytes")),
    ("quiver_topic_delayed", "Messages that wait to be due.", attrgetter("delayed")),
    ("quiver_topic_dead_letters", "Messages that were given up.", attrgetter("dead_letters")),
]
_OF_GROUPS: Kinds[QueueStats] = [
    ("quiver_group_pending", "Messages that wait for a consumer.", attrgetter("pending")),
    ("quiver_group_lag", "Messages from the group's position to the end.", attrgetter("pending")),
    ("quiver_group_in_flight", "Messages with a consumer.", attrgetter("in_flight")),
    ("quiver_group_retrying", "Messages that wait for another attempt.", attrgetter("retrying")),
    (
        "quiver_group_waiting_for_key",
        "Messages that wait for earlier ones of their key.",
        attrgetter("waiting_for_key"),
    ),
    ("quiver_group_backlog", "Messages that are not finished.", attrgetter("backlog")),
]


class Gauges:
    """Brings every gauge up to date. One thread at a time."""

    def __init__(self, metrics: Metrics, disk: Disk, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._disk = disk

    def update(self, stats: EngineStats, oldest: Mapping[tuple[str, str], int], problems: int) -> None:
        """Tell what there is; `oldest` is what `Ages` found."""
        self._metrics.gauge("quiver_disk_free_bytes", "Room on the disk.").set(stats.free_bytes)
        self._metrics.gauge("quiver_problems", "Parts that do not work.").set(problems)
        if open_files := len(self._disk.names(_OPEN_FILES)):
            self._metrics.gauge("process_open_fds", "Files and sockets that are open.").set(open_files)
        topics = [(topic, labels_of(topic=topic.topic)) for topic in in_turns(stats.topics.values())]
        self._tell(_OF_TOPICS, topics)
        groups = [
            (group, labels_of(topic=group.topic, group=group.group))
            for topic, _ in topics
            for group in in_turns(topic.groups.values())
        ]
        self._tell(_OF_GROUPS, groups)
        now_us = self._clock.now_us()
        ages = {
            labels: (max(0, now_us - since_us) if since_us else 0) / 1_000_000
            for group, labels in in_turns(groups)
            if (since_us := oldest.get((group.topic, group.group))) is not None
        }
        told = "Age of the oldest message that is not finished; 0 when there is none."
        self._metrics.gauges("quiver_group_oldest_unacked_seconds", told, ages, together=max)

    def _tell(self, kinds: Kinds[S], found: list[tuple[S, Labels]]) -> None:
        for name, help_text, value in kinds:
            self._metrics.gauges(name, help_text, {labels: value(each) for each, labels in in_turns(found)})
