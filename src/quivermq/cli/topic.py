"""`quiver topic`: what topics there are, and how they are set."""

from typing import Annotated, Any

import typer

from quivermq.cli.durations import duration_ms
from quivermq.cli.looking import sight_of
from quivermq.cli.output import JsonOption, YesOption, confirm, counted, print_json, print_table, size_text
from quivermq.cli.place import AnyEngine, DataOption, ServerOption, TopicArgument, open_queue, open_to_look
from quivermq.errors import InvalidRequest, InvalidSettings
from quivermq.model.stats import TopicStats
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings.setting import settings_of

app = typer.Typer(help="Look at topics, make, change and delete them.", no_args_is_help=True)

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A setting of the topic, as NAME=VALUE: `retention_ms=7d`. May be repeated."
    ),
]


@app.command("list")
def list_topics(data: DataOption = None, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """List all topics."""
    with open_to_look(data, server) as mq:
        topics = list(mq.stats().topics.values())
    if as_json:
        print_json({"topics": [topic_as_json(topic) for topic in topics]})
        return
    print_table(
        ("topic", "partitions", "messages", "size", "delayed", "dead letters", "groups"),
        [_row(topic) for topic in topics],
    )


@app.command()
def show(
    topic: TopicArgument, data: DataOption = None, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Show one topic: what is in it, its groups, and how it is set."""
    with open_to_look(data, server) as mq:
        _show(mq, topic, as_json=as_json)


@app.command()
def create(
    topic: TopicArgument,
    settings: SetOption = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Leave a topic that is there already as it is.")
    ] = False,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a topic. `quiver put` does so as well, with the defaults.

    Sizes may be written as `64MiB`, spans of time as `7d`, `12h`, `5m` or `30s`, and no limit as `none`.
    """
    given = parse_settings(settings)
    with open_queue(data, server, create=True) as mq:
        is_new = topic not in mq.topics()
        mq.create_topic(topic, exist_ok=exist_ok, **given)
        _show_changed(mq, topic, "created" if is_new else "kept", as_json=as_json)


@app.command()
def alter(
    topic: TopicArgument,
    settings: SetOption = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a topic while it is in use."""
    given = parse_settings(settings)
    if not given:
        raise InvalidRequest("say what to change, such as --set retention_ms=7d")
    with open_queue(data, server) as mq:
        mq.alter_topic(topic, **given)
        _show_changed(mq, topic, "altered", as_json=as_json)


@app.command()
def delete(
    topic: TopicArgument,
    yes: YesOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a topic with its messages and what its groups know. Its dead letters stay."""
    with open_queue(data, server) as mq:
        # First of all, because there is no need to ask about a topic that is not there.
        mq.topic(topic)
        messages = counted(mq.stats().topics[topic].messages, "message")
        confirm(f"Delete {topic} with {messages}?", yes=yes, as_json=as_json)
        mq.delete_topic(topic)
    if as_json:
        print_json({"deleted": topic})
    else:
        print(f"deleted {topic} with {messages}")


@app.command()
def purge(
    topic: TopicArgument,
    yes: YesOption = False,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take every message out of a topic for good, delayed ones included. Its dead letters stay."""
    with open_queue(data, server) as mq:
        mq.topic(topic)
        messages = counted(mq.stats().topics[topic].messages, "message")
        confirm(f"Purge {topic} of {messages}?", yes=yes, as_json=as_json)
        purged = mq.queue(topic).purge()
    if as_json:
        print_json({"purged": purged})
    else:
        print(f"purged {topic} of {counted(purged, 'message')}")


@app.command()
def sync(
    topic: TopicArgument, data: DataOption = None, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Wait until everything that was put into a topic is on stable storage, whatever its durability."""
    with open_queue(data, server) as mq:
        mq.queue(topic).sync()
    if as_json:
        print_json({"synced": topic})
    else:
        print(f"everything in {topic} is on stable storage")


def parse_settings(given: list[str] | None) -> dict[str, Any]:
    """The settings that `--set` names. Raises InvalidRequest, InvalidSettings."""
    parsed: dict[str, Any] = {}
    for text in given or ():
        name, equals, raw = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--set takes NAME=VALUE, not {text!r:.80}")
        if name in parsed:
            raise InvalidRequest(f"--set {name} is there twice")
        parsed[name] = _parse_setting(name, raw)
    return parsed


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


def topic_as_json(topic: TopicStats) -> dict[str, Any]:
    """A topic as the broker tells of it."""
    told = topic.as_dict()
    return {"name": told.pop("topic"), **told}


def _row(topic: TopicStats) -> tuple[str, ...]:
    return (
        topic.topic,
        str(topic.partitions),
        str(topic.messages),
        size_text(topic.bytes),
        str(topic.delayed),
        str(topic.dead_letters),
        ", ".join(topic.groups) or "-",
    )


def _show_changed(mq: AnyEngine, topic: str, what: str, *, as_json: bool) -> None:
    if as_json:
        _show(mq, topic, as_json=True)
    else:
        print(f"{what} {topic} with {counted(mq.topic(topic).partitions, 'partition')}")


def _show(mq: AnyEngine, topic: str, *, as_json: bool) -> None:
    settings = mq.topic(topic).settings
    stats = mq.stats().topics[topic]
    if as_json:
        print_json({**topic_as_json(stats), "settings": settings.to_json()})
        return
    print_table(
        ("topic", "partitions", "messages", "size", "delayed", "dead letters", "groups"), [_row(stats)]
    )
    sight = sight_of(mq, topic)
    bounds = [(lane, found) for lane in sight.lanes() if (found := sight.bounds(lane)) is not None]
    if bounds:
        print_table(
            ("partition", "priority", "first offset", "next offset"),
            [(str(number), priority, *map(str, found)) for (number, priority), found in bounds],
        )
    if stats.groups:
        print_table(
            ("group", "pending", "in flight", "retrying", "waiting for key"),
            [
                (g.group, *map(str, (g.pending, g.in_flight, g.retrying, g.waiting_for_key)))
                for g in stats.groups.values()
            ],
        )
    print_table(
        ("setting", "value", "doc"),
        [
            (name, setting.text(getattr(settings, name)), setting.doc)
            for name, setting in settings_of(TopicSettings).items()
        ],
    )
