"""`quiver settings`: what every setting is, and who said so."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import loaded_here
from quivermq.cli.options import ConfigOption
from quivermq.cli.output import CommandResult, TextTable
from quivermq.topic.defaults import TopicDefaults

app = typer.Typer(help="Look at the settings.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # With a single command and no callback, typer would drop the name `show`.
    pass


@app.command()
@answering
def show(
    config: ConfigOption = None,
    topic: Annotated[
        str | None,
        Option(help="Show what a topic of that name is made with, instead of all rules for topics."),
    ] = None,
) -> CommandResult:
    """Print every setting with its value and where that came from."""
    loaded = loaded_here(config)
    defaults = TopicDefaults(loaded.settings)
    values = (*loaded.values(), *(defaults.values() if topic is None else defaults.of(topic)))
    listed = [
        {"key": each.key, "value": _plain(each.value), "origin": each.origin, "doc": each.setting.doc}
        for each in values
    ]
    rows = [(each.key, each.setting.text(each.value), each.origin, each.setting.doc) for each in values]
    return CommandResult({"settings": listed}, TextTable(("key", "value", "origin", "doc"), rows))


def _plain(value: object) -> object:
    """A value of the types that JSON has."""
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
