"""`quiver key`: who may talk to the broker of a directory."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import check_directory, loaded_here, named_data, served_data
from quivermq.cli.durations import moment_text
from quivermq.cli.options import ConfigOption, DataOption, YesOption
from quivermq.cli.output import CommandResult, TextTable, confirm
from quivermq.cli.serve import check_parts
from quivermq.errors import InvalidRequest
from quivermq.settings import place_of

app = typer.Typer(help="Make, list and revoke the keys of a broker.", no_args_is_help=True)


@app.command()
@answering
def create(
    scope: Annotated[
        Literal["read", "consume", "write", "admin"],
        Option(help="What it allows: to look, also to receive, also to publish, or everything."),
    ],
    data: DataOption = None,
    topic: Annotated[
        list[str] | None,
        Option(help="A topic or a pattern that it is for. May be repeated; without it, for all."),
    ] = None,
    config: ConfigOption = None,
) -> CommandResult:
    """Make a key and print it. This is the only time: the directory keeps its hash, not the key.

    A broker that runs knows it within a second. From the first key on, every call needs one.
    """
    directory, file = _where(data, config, is_new=True)
    from quivermq.server.keys import create_key

    made = create_key(directory, scope, topic or [">"], file=file)
    note = f"key {made.key.id}: keep it, it is not shown again. Clients of `quiver` find it in QUIVER_KEY."
    return CommandResult(
        {"id": made.key.id, "scope": made.key.scope, "topics": made.key.topics, "key": made.text},
        made.text,
        notes=[note],
    )


@app.command("list")
@answering
def list_keys(data: DataOption = None, config: ConfigOption = None) -> CommandResult:
    """List the keys of a directory: what they are good for, not what they are."""
    directory, file = _where(data, config)
    from quivermq.server.keys import list_keys

    keys = list_keys(directory, file=file)
    listed = [
        {"id": key.id, "scope": key.scope, "topics": key.topics, "created_at": key.created_us}
        for key in keys
    ]
    rows = [(key.id, key.scope, ", ".join(key.topics), moment_text(key.created_us)) for key in keys]
    return CommandResult({"keys": listed}, TextTable(("id", "scope", "topics", "created"), rows))


@app.command("allow-anonymous")
@answering
def allow(
    data: DataOption = None, config: ConfigOption = None, yes: YesOption = False, *, as_json: bool
) -> CommandResult:
    """Let a broker serve without keys again, on this machine only, after the last one was revoked.

    Without this, a broker that had keys answers 401 to everything. One that runs has to be started again.
    """
    directory, file = _where(data, config)
    from quivermq.server.keys import allow_anonymous

    confirm("Let everybody on this machine use the queue without a key?", yes=yes, as_json=as_json)
    allow_anonymous(directory, file=file)
    return CommandResult({"anonymous": True}, "a broker that is started now asks for no key")


@app.command()
@answering
def revoke(
    key_id: Annotated[str, Argument(metavar="ID", help="The id that `quiver key list` shows.")],
    data: DataOption = None,
    config: ConfigOption = None,
    yes: YesOption = False,
    *,
    as_json: bool,
) -> CommandResult:
    """Take a key away. A broker that runs refuses it, and ends what it waits for, within a second.

    Without the last one every call is refused: make another, or see `quiver key allow-anonymous`.
    """
    directory, file = _where(data, config)
    from quivermq.server.keys import revoke_key

    confirm(f"Revoke the key {key_id}?", yes=yes, as_json=as_json)
    revoke_key(directory, key_id, file=file)
    return CommandResult({"revoked": key_id}, f"revoked {key_id}")


def _where(data: str | None, config: Path | None, *, is_new: bool = False) -> tuple[Path, Path | None]:
    """The directory and the file of keys that a broker would have with the same options and settings.

    Raises QuiverError where no broker is installed, and NotFound unless the directory is there or `is_new`.
    """
    check_parts()
    named = named_data() if data is None else place_of(data)
    settings = loaded_here(config, {} if named is None else {"server.data": named}).settings
    file = settings.server.keys
    if settings.server.data is None and file is not None:
        # As brokers of a cluster have it, none of which has a data directory.
        return file.parent, file
    directory = served_data(settings)
    if isinstance(directory, str):
        return _of_bucket(directory, file)
    if not is_new:
        check_directory(directory)
    return directory, file


def _of_bucket(url: str, file: Path | None) -> tuple[Path, Path]:
    """The file of the keys of a broker whose queue is in a bucket: only this machine needs to have it."""
    if file is None:
        raise InvalidRequest(
            f"{url} is a bucket, and keys are in a file of this machine: say which, as `keys` in [server]"
            " of quiver.toml or in QUIVER_SERVER__KEYS"
        )
    return file.parent, file
