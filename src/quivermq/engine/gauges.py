"""Figures that are looked up when somebody asks for the metrics, instead of being kept all the time."""

from collections.abc import Mapping
from pathlib import Path

from quivermq.clock import Clock
from quivermq.disk import Disk
from quivermq.engine.stats import EngineStats, QueueStats, TopicStats
from quivermq.engine.turns import in_turns
from quivermq.metrics import Metrics

# Where Linux lists what a process has open; other systems have nothing there.
_OPEN_FILES = Path("/proc/self/fd")


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
        now_us = self._clock.now_us()
        for name, topic in in_turns(stats.topics.items()):
            self._update_topic(topic)
            for group, queue in in_turns(topic.groups.items()):
                self._update_group(queue)
                if (since_us := oldest.get((name, group))) is not None:
                    self._update_age(name, group, max(0, now_us - since_us) if since_us else 0)

    def _update_topic(self, topic: TopicStats) -> None:
        for name, help_text, value in (
            ("quiver_topic_messages", "Messages in the log.", topic.messages),
            ("quiver_topic_bytes", "Bytes in the log.", topic.bytes),
            ("quiver_topic_delayed", "Messages that wait to be due.", topic.delayed),
            ("quiver_topic_dead_letters", "Messages that were given up.", topic.dead_letters),
        ):
            self._metrics.gauge(name, help_text, topic=topic.topic).set(value)

    def _update_group(self, queue: QueueStats) -> None:
        for name, help_text, value in (
            ("quiver_group_pending", "Messages that wait for a consumer.", queue.pending),
            ("quiver_group_lag", "Messages from the group's position to the end.", queue.pending),
            ("quiver_group_in_flight", "Messages with a consumer.", queue.in_flight),
            ("quiver_group_retrying", "Messages that wait for another attempt.", queue.retrying),
            (
                "quiver_group_waiting_for_key",
                "Messages that wait for earlier ones of their key.",
                queue.waiting_for_key,
            ),
            ("quiver_group_backlog", "Messages that are not finished.", queue.backlog),
        ):
            self._metrics.gauge(name, help_text, topic=queue.topic, group=queue.group).set(value)

    def _update_age(self, topic: str, group: str, age_us: int) -> None:
        self._metrics.gauge(
            "quiver_group_oldest_unacked_seconds",
            "Age of the oldest message that is not finished; 0 when there is none.",
            topic=topic,
            group=group,
        ).set(age_us / 1_000_000)
