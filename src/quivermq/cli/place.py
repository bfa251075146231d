"""Where the queue is: a directory of this machine or a broker, and how a command gets hold of it."""

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from quivermq.cli.completion import complete_topics
from quivermq.client import Connection, RemoteQueue, connect
from quivermq.engine import Engine, Queue, open_engine
from quivermq.engine.beside import open_beside
from quivermq.errors import DirectoryLocked, DiskFull, InvalidRequest, NotFound, QuiverError, TopicNotFound
from quivermq.settings import LoadedSettings, Settings
from quivermq.topic.defaults import load_settings

DATA_VARIABLE = "QUIVER_DATA"
SERVER_VARIABLE = "QUIVER_SERVER"
KEY_VARIABLE = "QUIVER_KEY"
CONFIG_VARIABLE = "QUIVER_CONFIG"

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
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help=f"The settings file. Or set `{CONFIG_VARIABLE}`. Else, `quiver.toml` here if there is one."
    ),
]
TopicArgument = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topics)]

# Embedded or over the wire: both have the same methods, and a command is written once for both.
AnyEngine = Engine | Connection
AnyQueue = Queue | RemoteQueue

# Unless somebody says otherwise. They wait at the terminal: a broker that restarts is worth some seconds,
# one that is gone is not.
_RETRIES = 4
_MISSING = re.compile(r"there is no topic ([A-Za-z0-9._-]+)")


@dataclass(frozen=True, slots=True)
class QueueLocation:
    """One of the two is there."""

    data: Path | None = None
    server: str | None = None

    def __str__(self) -> str:
        return str(self.data or self.server)


def find_place(data: Path | None, server: str | None) -> QueueLocation:
    """What the options say or, when they say nothing, the environment. Raises InvalidRequest."""
    if data is not None and server is not None:
        raise InvalidRequest("--data is a directory here and --server is a broker: give one of them")
    if data is not None or server is not None:
        return QueueLocation(data, server)
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
    return QueueLocation(Path(named[0]) if named[0] else None, named[1] or None)


@contextmanager
def open_queue(data: Path | None, server: str | None, *, create: bool = False) -> Iterator[AnyEngine]:
    """The queue that the options name, closed at the end. Only with `create` is a directory made."""
    place = find_place(data, server)
    if place.data is None:
        assert place.server is not None
        with connected(place.server) as client, _naming_topics(client):
            yield client
        return
    if not create:
        check_directory(place.data)
    try:
        engine = open_engine(place.data, settings_here())
    except DirectoryLocked as error:
        raise with_advice(error) from None
    with engine, _naming_topics(engine):
        yield engine


@contextmanager
def _naming_topics(mq: AnyEngine) -> Iterator[None]:
    """Let an error about a topic that is not there say which one may have been meant."""
    try:
        yield
    except TopicNotFound as error:
        if match := _MISSING.search(str(error)):
            with_close_names(error, match[1], mq)
        raise


def with_close_names(error: TopicNotFound, topic: str, mq: AnyEngine) -> TopicNotFound:
    """The error, with the names of topics that are spelt much like it."""
    try:
        names = mq.topics()
    except QuiverError:
        # A key that may not list topics must not turn one error into another.
        return error
    if close := close_names(topic, names):
        error.args = (f"there is no topic {topic}: {close}",)
    return error


def close_names(topic: str, names: Iterable[str]) -> str:
    """A question for who may have misspelt a topic; empty when no name is like it."""
    close = get_close_matches(topic, list(names), 3, 0.6)
    return f"did you mean {' or '.join(close)}?" if close else ""


@contextmanager
def open_to_look(data: Path | None, server: str | None) -> Iterator[AnyEngine]:
    """The queue that the options name, for looking only.

    A directory that somebody has open, or that cannot be written to, is looked at by its files; it says so.
    """
    place = find_place(data, server)
    if place.data is None:
        with open_queue(data, server) as mq:
            yield mq
        return
    check_directory(place.data)
    try:
        engine = open_engine(place.data, settings_here())
    except QuiverError as error:
        why = only_to_look_at(error)
        if why is None:
            raise
        print(f"{place.data} {why}: this is what its files show", file=sys.stderr)
        engine = open_beside(place.data, settings_here())
    with engine, _naming_topics(engine):
        yield engine


def only_to_look_at(error: QuiverError) -> str | None:
    """Why a directory can be looked at though it cannot be opened; None when it cannot."""
    if isinstance(error, DirectoryLocked):
        return "is in use by " + ("another process" if error.pid is None else f"process {error.pid}")
    cause = error.__cause__
    if isinstance(error, DiskFull):
        return "lies on a full disk"
    if isinstance(cause, OSError) and cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "cannot be written to"
    return None


def connected(url: str, *, timeout: float | None = None, retries: int | None = None) -> Connection:
    """A client of a broker, with the key of the environment, and as patient as the settings here say."""
    loaded = loaded_here()
    if retries is None and loaded.origins["client.retries"] == "default":
        retries = _RETRIES
    return connect(
        url,
        key=os.environ.get(KEY_VARIABLE) or None,
        timeout=timeout,
        retries=retries,
        settings=loaded.settings.client,
    )


def check_directory(data: Path) -> None:
    """Raise NotFound unless it is a queue's: to ask about it must not make a directory one."""
    if not data.is_dir():
        raise NotFound(f"there is no directory {data}")
    if not is_queue_directory(data):
        raise NotFound(f"{data} is not the directory of a queue: it has no topics")


def is_queue_directory(data: Path) -> bool:
    """Whether somebody has opened it as the directory of a queue before."""
    return any((data / name).exists() for name in ("topics", "LOCK", "keys.json"))


def with_advice(error: DirectoryLocked) -> DirectoryLocked:
    """The error in words that help at a command line."""
    holder = "another process" if error.pid is None else f"process {error.pid}"
    if error.url is not None:
        error.args = (f"{error.path} is served by {holder}: say --server {error.url} in place of --data",)
        return error
    advice = (
        f"{error.path} is in use by {holder}: if that is a broker, talk to it with --server URL,"
        " such as --server http://127.0.0.1:7070; otherwise wait for its end"
    )
    error.args = (advice,)
    return error


def named_data() -> Path | None:
    """The directory that the environment names."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


def data_of(settings: Settings) -> Path:
    """The directory that a broker with these settings serves. Raises InvalidRequest when they name none."""
    if settings.server.data is None:
        raise InvalidRequest(
            f"where is the queue? Say --data DIR, set {DATA_VARIABLE}, or `data` in [server] of quiver.toml"
        )
    return settings.server.data


def settings_here(config: Path | None = None) -> Settings:
    """The settings of a file, by default of `quiver.toml` here if there is one, and the environment."""
    return loaded_here(config).settings


def loaded_here(
    config: Path | None = None, arguments: Mapping[str, object] = MappingProxyType({})
) -> LoadedSettings:
    """The same, with what options say and where each setting came from."""
    named, here = os.environ.get(CONFIG_VARIABLE), Path("quiver.toml")
    file = config or (Path(named) if named else here if here.exists() else None)
    return load_settings(toml=file, environ=os.environ, arguments=arguments)
