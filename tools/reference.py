"""Write the pages of docs/reference that the code itself can write: `make reference`.

The tests compare the pages with what this module makes of the code, so none of them can go stale.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reference_calls import calls_page
from reference_names import names_page
from reference_tables import table
from typer.main import get_command

from quivermq import errors
from quivermq.cli.app import app
from quivermq.errors import QuiverError
from quivermq.model.topic_settings import TopicSettings, storage_names
from quivermq.settings.load import SETTINGS, variable_of
from quivermq.settings.setting import (
    INT64_MAX,
    STRICT,
    PathSetting,
    Setting,
    TextSetting,
    WeightsSetting,
    settings_of,
)

ROOT = Path(__file__).parents[1]


def settings_page() -> str:
    """docs/reference/settings.md."""
    rows = (
        (f"`{key}`", f"`{setting.text(setting.default)}`", _allowed(setting), setting.doc)
        for key, setting in SETTINGS.items()
    )
    shared = storage_names()
    topic_rows = (
        (
            f"`{name}`",
            f"`storage.{name}`" if name in shared else f"`{setting.text(setting.default)}`",
            _allowed(setting),
            setting.doc,
        )
        for name, setting in settings_of(TopicSettings).items()
    )
    header = ("setting", "default", "allowed", "what it does")
    example = "storage.segment_bytes"
    return f"""\
# Settings

Defaults < `quiver.toml` < environment < arguments. A key that is unknown and a value that is not
allowed are errors that name the key and where it came from; nothing is clamped.
`quiver settings show` prints every value and its origin, `quiver settings show --topic NAME` what a
topic of that name is made with.

The file is that of `--config` or `QUIVER_CONFIG`, or else `quiver.toml` in the current directory. In it the
part before the dot is the section:

```toml
[server]
data = "data"
port = 7070

[storage]
segment_bytes = "128MiB"

[topics]
retention_ms = "7d"
```

In the environment `{example}` is `{variable_of(example)}`. An option of `quiver serve` is an argument
for the setting of its name: `--port` is `server.port`. A program gives the same tree to
`quivermq.open(path, settings={{"storage": {{"segment_bytes": "128MiB"}}}})`, or what
`quivermq.load_settings` made of a file, the environment and its own arguments.

A size is a number of bytes or a number with `KiB`, `MiB` or `GiB`. A span of time is a number of
milliseconds or a number with `ms`, `s`, `m`, `h` or `d`. A limit that may be left out is switched off with
`none`. A relative path in the file begins at the directory of the file. What is secret is never a value,
but in a file of its own.

{table(header, rows)}
## Settings of a topic

They are the keyword arguments of `create_topic` and `alter_topic`, and are kept in the `topic.json` of the
topic. A default that names another setting is the value which that had when the topic was made; to
change it later leaves the topic as it is.

What nobody gives as an argument, a new topic has from the section `[topics]`, whether it is made by
`create_topic` or by the first message:

```toml
[topics]                # all topics
attempts_max = 5
lease_ms = "1m"

[topics."events.>"]     # all topics below `events`
retention_ms = "7d"

[topics."events.*"]     # those with one level below it
partitions = 4

[topics."events.eu"]    # one topic
partitions = 16
```

Setting by setting, the most specific rule counts that names it; its place in the file does not matter. Of
two patterns, the first level in which they differ decides: a name counts more than `*`, and `*` more than
`>`. Any pattern counts more than `[topics]`, also where that comes from the environment, as in
`QUIVER_TOPICS__LEASE_MS=1m`. A setting that `[topics]` does not name is that of `[storage]`, if there is
one of its name. Topics of dead letters are not meant: they follow their topic, and only a pattern that ends
like their names, such as `orders.dlq`, is about them.

{table(header, topic_rows)}"""


def errors_page() -> str:
    """docs/reference/errors.md."""
    rows = (
        (
            f"`{error.__name__}`",
            f"`{error.__mro__[1].__name__}`",
            f"`{error.code}`",
            str(error.http_status),
            str(error.exit_code),
            "yes" if error.retryable else "no",
            inspect.cleandoc(error.__doc__ or "").splitlines()[0],
        )
        for error in error_classes()
    )
    header = ("class", "is a", "code", "HTTP status", "exit code", "retryable", "when")
    return f"""\
# Errors

Everything the library raises on purpose is a `QuiverError`. The broker answers with the HTTP
status and `{{"error": {{"code", "message", "retryable"}}}}`; the command line prints `error: …`, or
the same JSON with `--json`, on standard error and exits with the exit code. 0 is success, 130 an
interrupt.

{table(header, rows)}"""


def cli_page() -> str:
    """docs/reference/cli.md."""
    sections = "\n".join(_section(*each) for each in _commands("quiver", get_command(app)))
    return f"""\
# Command line

Every command has `--help`; [the guide](../guides/command-line.md) shows them at work. The queue is a
directory of this machine, `--data DIR` or `QUIVER_DATA`, or a broker, `--server URL` or `QUIVER_SERVER`; an
option counts more than the environment. A broker's key is taken from `QUIVER_KEY`, so that it is in no list
of processes.

What a program wants to read goes to standard output; errors, what was done, and the progress bar go to
standard error, and the bar only to a terminal. With `--json`, standard output is one JSON document or,
where messages come one after the other (`put`, `get`, `tail`, `read`), a line of JSON for each.
The exit code is 0, or that of the [error](errors.md); a question that is answered with no ends with 1,
and so does an output that is closed before its end.

{sections}"""


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/calls.md": calls_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/names.md": names_page,
    "docs/reference/settings.md": settings_page,
}


def error_classes() -> list[type[QuiverError]]:
    """Every public error, in the order of errors.py."""
    return [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, QuiverError)
    ]


# Of any type, because typer has changed the classes of its commands within the versions we allow.
def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command and those below it, in the order of the names."""
    yield name, command
    for part, below in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(f"{name} {part}", below)


def _section(name: str, command: Any) -> str:
    # From what the help is made of, not from the help: that is as wide as somebody's terminal.
    section = f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n"
    options = [option for option in command.params if not option.hidden]
    if not options:
        return section
    rows = ((_words(option), _kind(option), option.help or "") for option in options)
    return f"{section}\n{table(('option', 'is', 'what it does'), rows)}"


def _words(option: Any) -> str:
    """How an option is written; an argument has no dashes, and stands in capitals as in the help."""
    if option.param_type_name == "argument":
        return f"`{option.metavar or option.name.upper()}`"
    return ", ".join(f"`{word}`" for word in (*option.opts, *option.secondary_opts))


def _kind(option: Any) -> str:
    if getattr(option, "is_flag", False):
        return "flag"
    return "required" if option.required else "optional"


def _allowed(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{word}`" for word in setting.choices)
    if isinstance(setting, PathSetting | TextSetting):
        return setting.expected.replace("none", "`none`")
    if isinstance(setting, WeightsSetting):
        example = setting.text(setting.default)
        return f"`{STRICT}`, or {setting.lowest} … {setting.highest} each, as in `{example}`"
    bounds = (
        f"≥ {setting.lowest}" if setting.highest == INT64_MAX else f"{setting.lowest} … {setting.highest}"
    )
    return f"{bounds}, `none`" if setting.optional else bounds


if __name__ == "__main__":
    for path, page in PAGES.items():
        (ROOT / path).write_text(page(), encoding="utf-8")
        print(path)
