"""`quiver settings`: what every setting is, and who said so."""

import os
from pathlib import Path
from typing import Annotated

import typer

from quivermq.cli.output import JsonOption, print_json, print_table
from quivermq.settings import load_settings

app = typer.Typer(help="Look at the settings.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # With a single command and no callback, typer would drop the name `show`.
    pass


@app.command()
def show(
    config: Annotated[
        Path | None,
        typer.Option(help="The settings file. Without it, quiver.toml here, if there is one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print every setting with its value and where that came from."""
    loaded = load_settings(toml=config or _config_here(), environ=os.environ)
    if as_json:
        print_json(
            {
                "settings": [
                    {"key": s.key, "value": s.value, "origin": s.origin, "doc": s.setting.doc}
                    for s in loaded.values()
                ]
            }
        )
    else:
        print_table(
            ("key", "value", "origin", "doc"),
            [(s.key, s.setting.text(s.value), s.origin, s.setting.doc) for s in loaded.values()],
        )


def _config_here() -> Path | None:
    path = Path("quiver.toml")
    return path if path.exists() else None
