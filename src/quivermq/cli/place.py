"""Where the queue is: a directory of this machine or a broker, and how a command gets hold of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from quivermq.cli.completion import complete_topics
from quivermq.client import Connection, RemoteQueue, connect
from quivermq.engine import Engine, Queue, open_engine
from quivermq.errors import DirectoryLocked, InvalidRequest, NotFound
from quivermq.settings import Settings, load_settings

DATA_VARIABLE = "QUIVER_DATA"
SERVER_VARIABLE = "QUIVER_SERVER"
KEY_VARIABLE = "QUIVER_KEY"

DataOption = Annotated[
    Path | None, typer.Option("--data", help=f"The data directory. Or set `{DATA_VARIABLE}`.")
]
# For what a broker cannot be asked to do.
OwnDataOption = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar=DATA_VARIABLE,
        show_envvar=False,
        help=f"The data directory. Or set `{DATA_VARIABLE}`.",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        help=f"The URL of a broker. Or set `{SERVER_VARIABLE}`. A key goes into `{KEY_VARIABLE}`.",
    ),
]
TopicArgument = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topics)]

# Embedded or over the wire: both have the same methods, and a command is written once for both.
AnyEngine = Engine | Connection
AnyQueue = Queue | RemoteQueue

# Somebody waits at the terminal: a broker that restarts is worth some seconds, one that is gone is not.
_RETRIES = 4


@dataclass(frozen=True, slots=True)
class Place:
    """One of the two is there."""

    data: Path | None = None
    server: str | None = None

    def __str__(self) -> str:
        return str(self.data or self.server)


def find_place(data: Path | None, server: str | None) -> Place:
    """What the options say or, when they say nothing, the environment. Raises InvalidRequest."""
    if data is not None and server is not None:
        raise InvalidRequest("--data is a directory here and --server is a broker: give one of them")
    if data is not None or server is not None:
        return Place(data, server)
    named = os.environ.get(DATA_VARIABLE), os.environ.get(SERVER_VARIABLE)
    if all(named):
        raise InvalidRequest(
            f"both {DATA_VARIABLE} and {SERVER_VARIABLE} are set: unset one, or say --data or --server"
        )
    if not any(named):
        raise InvalidRequest(
            "where is the queue? Say --data DIR for a directory or --server URL for a broker,"
            f" or set {DATA_VARIABLE} or {SERVER_VARIABLE}"
        )
    return Place(Path(named[0]) if named[0] else None, named[1] or None)


@contextmanager
def open_queue(data: Path | None, server: str | None, *, create: bool = False) -> Iterator[AnyEngine]:
    """The queue that the options name, closed at the end. Only with `create` is a directory made."""
    place = find_place(data, server)
    if place.data is None:
        assert place.server is not None
        with connected(place.server) as client:
            yield client
        return
    if not create:
        check_directory(place.data)
    try:
        engine = open_engine(place.data, settings_here())
    except DirectoryLocked as error:
        raise with_advice(error) from None
    with engine:
        yield engine


def connected(url: str, *, timeout: float = 30, retries: int = _RETRIES) -> Connection:
    """A client of a broker, with the key of the environment."""
    return connect(url, key=os.environ.get(KEY_VARIABLE) or None, timeout=timeout, retries=retries)


def check_directory(data: Path) -> None:
    """Raise NotFound unless it is a queue's: to ask about it must not make a directory one."""
    if not data.is_dir():
        raise NotFound(f"there is no directory {data}")
    if not any((data / name).exists() for name in ("topics", "LOCK", "keys.json")):
        raise NotFound(f"{data} is not the directory of a queue: it has no topics")


def with_advice(error: DirectoryLocked) -> DirectoryLocked:
    """The error in words that help at a command line."""
    holder = "another process" if error.pid is None else f"process {error.pid}"
    advice = (
        f"{error.path} is in use by {holder}: if that is a broker, talk to it with --server URL,"
        " such as --server http://127.0.0.1:7070; otherwise wait for its end"
    )
    error.args = (advice,)
    return error


def settings_here(config: Path | None = None) -> Settings:
    """The settings of a file, by default of `quiver.toml` here if there is one, and the environment."""
    here = Path("quiver.toml")
    return load_settings(toml=config or (here if here.exists() else None), environ=os.environ).settings
