"""`quiver key`: who may talk to the broker of a directory."""

from enum import StrEnum
from typing import Annotated

import typer

from quivermq.cli.durations import moment_text
from quivermq.cli.output import JsonOption, YesOption, confirm, print_json, print_table, say
from quivermq.cli.place import OwnDataOption, check_directory
from quivermq.cli.serve import check_parts

app = typer.Typer(help="Make, list and revoke the keys of a broker.", no_args_is_help=True)


class Scope(StrEnum):
    """What a key is good for; each includes those before it."""

    read = "read"
    write = "write"
    admin = "admin"


@app.command()
def create(
    data: OwnDataOption,
    scope: Annotated[Scope, typer.Option(help="What it allows: to read, also to write, or everything.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic or a pattern that it is for. May be repeated; without it, for all."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it. This is the only time: the directory keeps its hash, not the key.

    A broker that runs knows it within a second. From the first key on, every call needs one.
    """
    check_parts()
    from quivermq.server.keys import create_key

    made = create_key(data, scope.value, topic or [">"])
    if as_json:
        print_json(
            {"id": made.key.id, "scope": made.key.scope, "topics": made.key.topics, "key": made.text}
        )
        return
    print(made.text)
    say(f"key {made.key.id}: keep it, it is not shown again. Clients of `quiver` find it in QUIVER_KEY.")


@app.command("list")
def list_keys(data: OwnDataOption, as_json: JsonOption = False) -> None:
    """List the keys of a directory: what they are good for, not what they are."""
    check_parts()
    from quivermq.server.keys import list_keys

    check_directory(data)
    keys = list_keys(data)
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


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `quiver key list` shows.")],
    data: OwnDataOption,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take a key away. A broker that runs refuses it within a second."""
    check_parts()
    from quivermq.server.keys import revoke_key

    check_directory(data)
    confirm(f"Revoke the key {key_id}?", yes=yes, as_json=as_json)
    revoke_key(data, key_id)
    if as_json:
        print_json({"revoked": key_id})
    else:
        print(f"revoked {key_id}")
