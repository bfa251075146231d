"""Arguments and options that several commands have, and what a shell offers while a topic is typed."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from quivermq.cli.connecting import CONFIG_VARIABLE, DATA_VARIABLE, KEY_VARIABLE, SERVER_VARIABLE, connected
from quivermq.errors import InvalidRequest, QuiverError


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin like that, as far as the options so far say where to look.

    It must be quick and can only help, never fail.
    """
    return [name for name in _topics(context.params) if name.startswith(incomplete)]


def _topics(options: dict[str, Any]) -> list[str]:
    server = options.get("server") or (None if options.get("data") else os.environ.get(SERVER_VARIABLE))
    if server:
        return _topics_of_broker(server)
    data = options.get("data") or os.environ.get(DATA_VARIABLE)
    # Read from the names of directories: the queue need not be opened, and may be open elsewhere.
    with suppress(OSError):
        return sorted(path.name for path in (Path(data) / "topics").iterdir()) if data else []
    return []


def _topics_of_broker(server: str) -> list[str]:
    # A shell that is completing has no place for an error message.
    with suppress(QuiverError), connected(server, timeout=1, retries=0) as client:
        return client.topics()
    return []


TopicArgument = Annotated[str, Argument(help="The topic.", autocompletion=complete_topics)]

DataOption = Annotated[
    str | None,
    Option(
        "--data",
        metavar="DIR|URL",
        help=f"The data directory, or the URL of a bucket. Or set `{DATA_VARIABLE}`.",
    ),
]
ServerOption = Annotated[
    str | None,
    Option(
        "--server",
        help=f"The URL of a broker. Or set `{SERVER_VARIABLE}`. A key goes into `{KEY_VARIABLE}`.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    Option(
        help=f"The settings file. Or set `{CONFIG_VARIABLE}`. Else, `quiver.toml` here if there is one."
    ),
]
GroupOption = Annotated[str, Option("--group", help="The group that consumes.")]
YesOption = Annotated[bool, Option("--yes", help="Do not ask first.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON, for programs.")]
NdjsonOption = Annotated[bool, Option("--json", help="The same as `--format ndjson`.")]
DryRunOption = Annotated[bool, Option("--dry-run", help="Only tell what would be done.")]
TopicsOption = Annotated[
    str | None, Option("--topics", help="Names and patterns, separated by commas; otherwise all.")
]
MasterOption = Annotated[
    str | None,
    Option(
        "--master",
        help="The master of a Spark cluster, such as spark://host:7077. Or set `QUIVER_SPARK_MASTER`."
        " Otherwise the cores of this machine.",
    ),
]


def parse_pairs(given: list[str] | None, form: str, name_of: str) -> dict[str, str]:
    """What options of the form NAME=VALUE say. `form` and `name_of` begin the error of a wrong one."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{form} NAME=VALUE, not {text!r:.80}")
        if name in found:
            raise InvalidRequest(f"{name_of} {name} is there twice")
        found[name] = value
    return found
