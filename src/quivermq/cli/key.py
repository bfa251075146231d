"""`quiver key`: who may talk to the broker of a directory."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from quivermq.cli.durations import moment_text
from quivermq.cli.output import JsonOption, YesOption, confirm, print_json, print_table, say
from quivermq.cli.place import ConfigOption, DataOption, check_directory, data_of, loaded_here, named_data
from quivermq.cli.serve import check_parts

app = typer.Typer(help="Make, list and revoke the keys of a broker.", no_args_is_help=True)


class ScopeOption(StrEnum):
    """What a key is good for; each includes those before it."""

    read = "read"
    consume = "consume"
    write = "write"
    admin = "admin"


@app.command()
def create(
    scope: Annotated[
        ScopeOption,
        typer.Option(help="What it allows: to look, also to receive, also to publish, or everything."),
    ],
    data: DataOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic or a pattern that it is for. May be repeated; without it, for all."),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it. This is the only time: the directory keeps its hash, not the key.

    A broker that runs knows it within a second. From the first key on, every call needs one.
    """
    check_parts()
    from quivermq.server.keys import create_key

    directory, file = _where(data, config)
    made = create_key(directory, scope.value, topic or [">"], file=file)
    if as_json:
        print_json(
            {"id": made.key.id, "scope": made.key.scope, "topics": made.key.topics, "key": made.text}
        )
        return
    print(made.text)
    say(f"key {made.key.id}: keep it, it is not shown again. Clients of `quiver` find it in QUIVER_KEY.")


@app.command("list")
def list_keys(data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the keys of a directory: what they are good for, not what they are."""
    check_parts()
    from quivermq.server.keys import list_keys

    directory, file = _where(data, config)
    check_directory(directory)
    keys = list_keys(directory, file=file)
    if as_json:
        told = [
            {"id": key.id, "scope": key.scope, "topics": key.topics, "created_at": key.created_us}
            for key in keys
        ]
        print_json({"keys": told})
        return
    print_table(
        ("id", "scope", "topics", "created"),
        [(key.id, key.scope, ", ".join(key.topics), moment_text(key.created_us)) for key in keys],
    )


@app.command("allow-anonymous")
def allow(
    data: DataOption = None,
    config: ConfigOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a broker serve without keys again, on this machine only, after the last one was revoked.

    Without this, a broker that had keys answers 401 to everything. One that runs has to be started again.
    """
    check_parts()
    from quivermq.server.keys import allow_anonymous

    directory, file = _where(data, config)
    check_directory(directory)
    confirm("Let everybody on this machine use the queue without a key?", yes=yes, as_json=as_json)
    allow_anonymous(directory, file=file)
    if as_json:
        print_json({"anonymous": True})
    else:
        print("a broker that is started now asks for no key")


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `quiver key list` shows.")],
    data: DataOption = None,
    config: ConfigOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take a key away. A broker that runs refuses it, and ends what it waits for, within a second.

    Without the last one every call is refused: make another, or see `quiver key allow-anonymous`.
    """
    check_parts()
    from quivermq.server.keys import revoke_key

    directory, file = _where(data, config)
    check_directory(directory)
    confirm(f"Revoke the key {key_id}?", yes=yes, as_json=as_json)
    revoke_key(directory, key_id, file=file)
    if as_json:
        print_json({"revoked": key_id})
    else:
        print(f"revoked {key_id}")


def _where(data: Path | None, config: Path | None) -> tuple[Path, Path | None]:
    """The directory and the file of keys that a broker would have with the same options and settings."""
    named = data or named_data()
    settings = loaded_here(config, {} if named is None else {"server.data": named}).settings
    return data_of(settings), settings.server.keys
