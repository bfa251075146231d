"""`quiver topic`: what topics there are, and how they are set."""

from typing import Annotated, Any

import typer
from typer import Option

from quivermq.cli.command import answering, on_queue
from quivermq.cli.connecting import open_queue, open_to_look
from quivermq.cli.durations import duration_ms
from quivermq.cli.group import COUNT_COLUMNS, counts
from quivermq.cli.options import DataOption, ServerOption, TopicArgument, YesOption, parse_pairs
from quivermq.cli.output import CommandResult, TextTable, confirm, counted, size_text
from quivermq.errors import InvalidRequest, InvalidSettings, OffsetOutOfRange
from quivermq.frame import OFFSET_MAX
from quivermq.model.lanes import PRIORITIES
from quivermq.model.stats import TopicStats
from quivermq.model.stats_json import topic_stats_json
from quivermq.model.topic_settings import TopicSettings
from quivermq.queue.connection import Connection
from quivermq.settings.setting import settings_of

app = typer.Typer(help="Look at topics, make, change and delete them.", no_args_is_help=True)

SetOption = Annotated[
    list[str] | None,
    Option("--set", help="A setting of the topic, as NAME=VALUE: `retention_ms=7d`. May be repeated."),
]


@app.command("list")
@on_queue(open_to_look)
def list_topics(mq: Connection) -> CommandResult:
    """List all topics."""
    topics = list(mq.stats().topics.values())
    return CommandResult({"topics": [topic_stats_json(topic) for topic in topics]}, _table(topics))


@app.command()
@on_queue(open_to_look)
def show(topic: TopicArgument, mq: Connection) -> CommandResult:
    """Show one topic: what is in it, its groups, and how it is set."""
    settings = mq.topic(topic).settings
    stats = mq.stats().topics[topic]
    bounds = TextTable(("partition", "priority", "first offset", "next offset"), _bounds(mq, topic))
    groups = TextTable(
        ("group", *COUNT_COLUMNS), [(each.group, *counts(each)) for each in stats.groups.values()]
    )
    values = [
        (name, setting.text(getattr(settings, name)), setting.doc)
        for name, setting in settings_of(TopicSettings).items()
    ]
    return CommandResult(
        {**topic_stats_json(stats), "settings": settings.to_json()},
        _table([stats]),
        *(table for table in (bounds, groups) if table.rows),
        TextTable(("setting", "value", "doc"), values),
    )


@app.command()
@answering
def create(
    topic: TopicArgument,
    settings: SetOption = None,
    exist_ok: Annotated[
        bool, Option("--exist-ok", help="Leave a topic that is there already as it is.")
    ] = False,
    data: DataOption = None,
    server: ServerOption = None,
) -> CommandResult:
    """Create a topic. `quiver put` does so as well, with the defaults.

    Sizes may be written as `64MiB`, spans of time as `7d`, `12h`, `5m` or `30s`, and no limit as `none`.
    """
    # Before the queue is opened, because that makes a directory.
    given = parse_settings(settings)
    with open_queue(data, server, create=True) as mq:
        is_new = topic not in mq.topics()
        mq.create_topic(topic, exist_ok=exist_ok, **given)
        return _changed(mq, topic, "created" if is_new else "kept")


@app.command()
@on_queue(open_queue)
def alter(topic: TopicArgument, settings: SetOption = None, *, mq: Connection) -> CommandResult:
    """Change settings of a topic while it is in use."""
    given = parse_settings(settings)
    if not given:
        raise InvalidRequest("say what to change, such as --set retention_ms=7d")
    mq.alter_topic(topic, **given)
    return _changed(mq, topic, "altered")


@app.command()
@on_queue(open_queue)
def delete(topic: TopicArgument, yes: YesOption = False, *, mq: Connection, as_json: bool) -> CommandResult:
    """Delete a topic with its messages and what its groups know. Its dead letters stay."""
    messages = _messages(mq, topic)
    confirm(f"Delete {topic} with {messages}?", yes=yes, as_json=as_json)
    mq.delete_topic(topic)
    return CommandResult({"deleted": topic}, f"deleted {topic} with {messages}")


@app.command()
@on_queue(open_queue)
def purge(topic: TopicArgument, yes: YesOption = False, *, mq: Connection, as_json: bool) -> CommandResult:
    """Take every message out of a topic for good, delayed ones included. Its dead letters stay."""
    confirm(f"Purge {topic} of {_messages(mq, topic)}?", yes=yes, as_json=as_json)
    purged = mq.queue(topic).purge()
    return CommandResult({"purged": purged}, f"purged {topic} of {counted(purged, 'message')}")


@app.command()
@on_queue(open_queue)
def sync(topic: TopicArgument, mq: Connection) -> CommandResult:
    """Wait until everything that was put into a topic is on stable storage, whatever its durability."""
    mq.queue(topic).sync()
    return CommandResult({"synced": topic}, f"everything in {topic} is on stable storage")


def parse_settings(given: list[str] | None) -> dict[str, Any]:
    """The settings that `--set` names. Raises InvalidRequest, InvalidSettings."""
    pairs = parse_pairs(given, "--set takes", "--set")
    return {name: _parse_setting(name, raw) for name, raw in pairs.items()}


def _parse_setting(name: str, raw: str) -> object:
    setting = settings_of(TopicSettings).get(name)
    if setting is None:
        # The queue knows best what it has, and which name was meant.
        return raw
    milliseconds = duration_ms(raw, unit="ms") if "ms" in name.split("_") else None
    try:
        return setting.parse(raw if milliseconds is None else round(milliseconds))
    except ValueError as error:
        raise InvalidSettings(name, str(error), origin="--set") from None


def _messages(mq: Connection, topic: str) -> str:
    """How many there are. Raises TopicNotFound: there is no need to ask about one that is not there."""
    mq.topic(topic)
    return counted(mq.stats().topics[topic].messages, "message")


def _changed(mq: Connection, topic: str, what: str) -> CommandResult:
    settings = mq.topic(topic).settings
    document = {**topic_stats_json(mq.stats().topics[topic]), "settings": settings.to_json()}
    return CommandResult(document, f"{what} {topic} with {counted(settings.partitions, 'partition')}")


def _table(topics: list[TopicStats]) -> TextTable:
    return TextTable(
        ("topic", "partitions", "messages", "size", "delayed", "dead letters", "groups"),
        [
            (
                each.topic,
                each.partitions,
                each.messages,
                size_text(each.bytes),
                each.delayed,
                each.dead_letters,
                ", ".join(each.groups) or "-",
            )
            for each in topics
        ],
    )


def _bounds(mq: Connection, topic: str) -> list[tuple[object, ...]]:
    """The first offset of each lane in use, archived ones included, and the one behind its last."""
    queue, found = mq.queue(topic), list[tuple[object, ...]]()
    for partition in range(mq.topic(topic).partitions):
        for priority in PRIORITIES:
            try:
                queue.read(partition, OFFSET_MAX, 1, priority=priority)
            except OffsetOutOfRange as error:
                # Nobody has that many messages, and the refusal tells how many there are.
                if error.end:
                    found.append((partition, priority, error.start, error.end))
    return found
