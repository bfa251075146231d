"""Figures that are looked up when somebody asks for the metrics, instead of being kept all the time."""

from quivermq.engine.stats import EngineStats
from quivermq.metrics import Metrics


def update_gauges(metrics: Metrics, stats: EngineStats) -> None:
    """Bring every gauge up to date."""
    metrics.gauge("quiver_disk_free_bytes", "Room on the disk.").set(stats.free_bytes)
    for name, topic in stats.topics.items():
        for gauge, help_text, value in (
            ("quiver_topic_messages", "Messages in the log.", topic.messages),
            ("quiver_topic_bytes", "Bytes in the log.", topic.bytes),
            ("quiver_topic_delayed", "Messages that wait to be due.", topic.delayed),
            ("quiver_topic_dead_letters", "Messages that were given up.", topic.dead_letters),
        ):
            metrics.gauge(gauge, help_text, topic=name).set(value)
        for group, queue in topic.groups.items():
            for gauge, help_text, value in (
                ("quiver_group_pending", "Messages that nobody in the group has had.", queue.pending),
                ("quiver_group_in_flight", "Messages with a consumer.", queue.in_flight),
                ("quiver_group_retrying", "Messages that wait for another attempt.", queue.retrying),
            ):
                metrics.gauge(gauge, help_text, topic=name, group=group).set(value)
