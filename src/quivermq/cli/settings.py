"""`quiver settings`: what every setting is, and who said so."""

from pathlib import Path
from typing import Annotated

import typer

from quivermq.cli.output import JsonOption, print_json, print_table
from quivermq.cli.place import ConfigOption, loaded_here
from quivermq.topic.defaults import TopicDefaults

app = typer.Typer(help="Look at the settings.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # With a single command and no callback, typer would drop the name `show`.
    pass


@app.command()
def show(
    config: ConfigOption = None,
    topic: Annotated[
        str | None,
        typer.Option(help="Show what a topic of that name is made with, instead of all rules for topics."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print every setting with its value and where that came from."""
    loaded = loaded_here(config)
    defaults = TopicDefaults(loaded.settings)
    rules = defaults.values() if topic is None else defaults.of(topic)
    rows = [(s.key, s.setting, s.value, s.origin) for s in (*loaded.values(), *rules)]
    if as_json:
        told = [
            {"key": key, "value": _plain(value), "origin": origin, "doc": setting.doc}
            for key, setting, value, origin in rows
        ]
        print_json({"settings": told})
    else:
        print_table(
            ("key", "value", "origin", "doc"),
            [(key, setting.text(value), origin, setting.doc) for key, setting, value, origin in rows],
        )


def _plain(value: object) -> object:
    """A value of the types that JSON has."""
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
