"""`quiver stats`: what there is, and how far everybody has come."""

from quivermq.cli.command import on_queue
from quivermq.cli.connecting import open_to_look
from quivermq.cli.group import COUNT_COLUMNS, counts, state_text
from quivermq.cli.output import CommandResult, TextTable, counted, size_text
from quivermq.disk import ENDLESS_BYTES
from quivermq.model.stats import Alert, TopicStats
from quivermq.queue.connection import Connection

_ALERTS_SHOWN = 20
_COLUMNS = ("topic", "messages", "size", "delayed", "dead letters", "group", *COUNT_COLUMNS, "state")


@on_queue(open_to_look)
def command(mq: Connection) -> CommandResult:
    """Count everything: topics, their messages and sizes, what each group still has to do.

    Says what is wrong, too, the worst first, judged by the rules that deploy/prometheus/alerts.yaml has.
    """
    stats = mq.stats()
    rows = [row for topic in stats.topics.values() for row in _rows(topic)]
    whole = [
        counted(len(stats.topics), "topic"),
        counted(stats.messages, "message"),
        size_text(stats.bytes),
    ]
    if stats.free_bytes < ENDLESS_BYTES:
        whole.append(f"{size_text(stats.free_bytes)} free")
    tables = [TextTable(_COLUMNS, rows)] if rows else []
    return CommandResult(stats.as_dict(), *tables, ", ".join(whole), *_alerts(stats.alerts))


def _alerts(alerts: list[Alert]) -> list[str | TextTable]:
    """What is wrong, or that nothing is."""
    if not alerts:
        return ["all is well"]
    rows = [
        (each.severity, each.alert, each.topic or "-", each.group or "-", each.summary)
        for each in alerts[:_ALERTS_SHOWN]
    ]
    more = len(alerts) - len(rows)
    return [
        f"\n{counted(len(alerts), 'alert')}, the worst first:",
        TextTable(("severity", "alert", "topic", "group", "what"), rows),
        *([f"and {more} more: --json lists all"] if more else []),
    ]


def _rows(topic: TopicStats) -> list[tuple[object, ...]]:
    """A row for each group, of which only the first repeats what is true of the topic as a whole."""
    whole = (topic.topic, topic.messages, size_text(topic.bytes), topic.delayed, topic.dead_letters)
    groups: list[tuple[object, ...]] = [
        (group.group, *counts(group), state_text(group)) for group in topic.groups.values()
    ] or [("-",) * 6]
    return [(whole if number == 0 else ("",) * 5) + row for number, row in enumerate(groups)]
