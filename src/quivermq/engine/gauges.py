"""Figures that are looked up when somebody asks for the metrics, instead of being kept all the time."""

from collections.abc import Mapping
from pathlib import Path

from quivermq.disk import Disk
from quivermq.engine.ages import Ages
from quivermq.engine.hosted import Hosted
from quivermq.engine.stats import EngineStats, QueueStats, TopicStats
from quivermq.metrics import Metrics

# Where Linux lists what a process has open; other systems have nothing there.
_OPEN_FILES = Path("/proc/self/fd")


class Gauges:
    """Brings every gauge up to date. One thread at a time."""

    def __init__(self, metrics: Metrics, disk: Disk, ages: Ages) -> None:
        self._metrics = metrics
        self._disk = disk
        self._ages = ages

    def update(self, stats: EngineStats, hosted: Mapping[str, Hosted]) -> None:
        """Look at everything there is."""
        self._metrics.gauge("quiver_disk_free_bytes", "Room on the disk.").set(stats.free_bytes)
        if open_files := len(self._disk.names(_OPEN_FILES)):
            self._metrics.gauge("process_open_fds", "Files and sockets that are open.").set(open_files)
        ages_us = self._ages.look(hosted)
        for name, topic in stats.topics.items():
            self._update_topic(topic)
            for group, queue in topic.groups.items():
                self._update_group(queue)
                if (name, group) in ages_us:
                    self._update_age(name, group, ages_us[name, group])

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
            ("quiver_group_pending", "Messages that nobody in the group has had.", queue.pending),
            ("quiver_group_lag", "Messages from the group's position to the end.", queue.pending),
            ("quiver_group_in_flight", "Messages with a consumer.", queue.in_flight),
            ("quiver_group_retrying", "Messages that wait for another attempt.", queue.retrying),
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
