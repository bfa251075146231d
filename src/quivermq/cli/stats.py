"""`quiver stats`: what there is, and how far everybody has come."""

from quivermq.cli.output import JsonOption, counted, print_json, print_table, size_text, state_text
from quivermq.cli.place import DataOption, ServerOption, open_to_look
from quivermq.model.stats import Alert, QueueStats, TopicStats

_ALERTS_SHOWN = 20


def command(data: DataOption = None, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Count everything: topics, their messages and sizes, what each group still has to do.

    Says what is wrong, too, the worst first, judged by the rules that deploy/prometheus/alerts.yaml has.
    """
    with open_to_look(data, server) as mq:
        stats = mq.stats()
    if as_json:
        print_json(stats.as_dict())
        return
    rows = [row for topic in stats.topics.values() for row in _rows(topic)]
    if rows:
        print_table(
            (
                "topic",
                "messages",
                "size",
                "delayed",
                "dead letters",
                "group",
                "pending",
                "in flight",
                "retrying",
                "waiting for key",
                "state",
            ),
            rows,
        )
    parts = (
        counted(len(stats.topics), "topic"),
        counted(stats.messages, "message"),
        size_text(stats.bytes),
        f"{size_text(stats.free_bytes)} free",
    )
    print(", ".join(parts))
    _print_alerts(stats.alerts)


def _print_alerts(alerts: list[Alert]) -> None:
    """What is wrong, or that nothing is."""
    if not alerts:
        print("all is well")
        return
    print(f"\n{counted(len(alerts), 'alert')}, the worst first:")
    rows = [
        (each.severity, each.alert, each.topic or "-", each.group or "-", each.summary)
        for each in alerts[:_ALERTS_SHOWN]
    ]
    print_table(("severity", "alert", "topic", "group", "what"), rows)
    if len(alerts) > _ALERTS_SHOWN:
        print(f"and {len(alerts) - _ALERTS_SHOWN} more: --json lists all")


def _rows(topic: TopicStats) -> list[tuple[str, ...]]:
    """A row for each group, of which only the first repeats what is true of the topic as a whole."""
    whole = (
        topic.topic,
        str(topic.messages),
        size_text(topic.bytes),
        str(topic.delayed),
        str(topic.dead_letters),
    )
    groups = [_counts(group) for group in topic.groups.values()] or [("-",) * 6]
    return [(whole if number == 0 else ("",) * 5) + counts for number, counts in enumerate(groups)]


def _counts(group: QueueStats) -> tuple[str, ...]:
    counts = (group.pending, group.in_flight, group.retrying, group.waiting_for_key)
    return (group.group, *map(str, counts), state_text(group.state))
