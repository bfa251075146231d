"""`quiver stats`: what there is, and how far everybody has come."""

from quivermq.cli.output import JsonOption, counted, print_json, print_table, size_text
from quivermq.cli.place import DataOption, ServerOption, open_queue
from quivermq.engine.stats import QueueStats, TopicStats


def command(data: DataOption = None, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Count everything: topics, their messages and sizes, and what each group still has to do."""
    with open_queue(data, server) as mq:
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


def _rows(topic: TopicStats) -> list[tuple[str, ...]]:
    """A row for each group, of which only the first repeats what is true of the topic as a whole."""
    whole = (
        topic.topic,
        str(topic.messages),
        size_text(topic.bytes),
        str(topic.delayed),
        str(topic.dead_letters),
    )
    groups = [_counts(group) for group in topic.groups.values()] or [("-",) * 4]
    return [(whole if number == 0 else ("",) * 5) + counts for number, counts in enumerate(groups)]


def _counts(group: QueueStats) -> tuple[str, ...]:
    return (group.group, str(group.pending), str(group.in_flight), str(group.retrying))
