"""How a command reaches the queue, a directory of this machine or a broker: only here is asked which."""

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from quivermq.cli.output import say
from quivermq.engine import is_queue
from quivermq.engine.beside import open_beside
from quivermq.errors import DirectoryLocked, DiskFull, InvalidRequest, NotFound, QuiverError, TopicNotFound
from quivermq.opening import connect, open_directory
from quivermq.queue.connection import Connection
from quivermq.reading import QueueReader, reader_of
from quivermq.settings import ClientSettings, LoadedSettings, Settings, place_of
from quivermq.topic.defaults import load_settings

DATA_VARIABLE = "QUIVER_DATA"
SERVER_VARIABLE = "QUIVER_SERVER"
KEY_VARIABLE = "QUIVER_KEY"
CONFIG_VARIABLE = "QUIVER_CONFIG"

# Unless somebody says otherwise. They wait at the terminal: a broker that restarts is worth some seconds,
# one that is gone is not.
_RETRIES = 4
_CHECK_SECONDS = 10.0
_CHECK_RETRIES = 2
_MISSING = re.compile(r"there is no topic ([A-Za-z0-9._-]+)")


# A directory, or the URL of a bucket.
Place = Path | str


@dataclass(frozen=True, slots=True)
class QueueLocation:
    """One of the two is there. The data are those of a directory, which is a path, or of a bucket."""

    data: Place | None = None
    server: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether it only becomes a queue's when it is opened to be written to."""
        return self.data is not None and not _is_queue(self.data)

    def connection(self, *, create: bool = False) -> Connection:
        """The queue, to be closed. Only with `create` is one made.

        One in a bucket is taken over from whoever has it.
        """
        if self.server is not None:
            return connected(self.server)
        assert self.data is not None
        if not create:
            check_queue(self.data)
        try:
            return open_directory(self.data, loaded_here().settings)
        except DirectoryLocked as error:
            raise with_advice(error) from None

    def reader(self) -> QueueReader:
        """What looks at the queue without opening it. Raises NotFound for a directory that is not there."""
        if self.data is None:
            return reader_of(server=self.server, key=_key(), settings=_patience())
        if isinstance(self.data, str):
            bucket = loaded_here().settings.bucket
            return reader_of(self.data, endpoint=bucket.endpoint, region=bucket.region)
        _check_there(self.data)
        return reader_of(self.data.absolute())

    def check(self) -> None:
        """Raise NotFound for a directory or bucket that is not a queue's."""
        if self.data is not None:
            check_queue(self.data)

    def arguments(self) -> dict[str, Any]:
        """The arguments by which jobs and exports are told where the queue is."""
        if self.data is None:
            return {"server": self.server, "key": _key()}
        check_queue(self.data)
        if isinstance(self.data, str):
            return {"path": self.data}
        # A process that is to work on it may have another current directory.
        return {"path": str(self.data.absolute())}


def find_location(data: Place | None, server: str | None) -> QueueLocation:
    """What the options say or, when they say nothing, the environment. Raises InvalidRequest."""
    if data is not None and server is not None:
        raise InvalidRequest("--data is a directory here and --server is a broker: give one of them")
    if data is not None or server is not None:
        return QueueLocation(place_of(data) if isinstance(data, str) else data, server)
    named = named_data(), os.environ.get(SERVER_VARIABLE) or None
    if all(named):
        raise InvalidRequest(
            f"both {DATA_VARIABLE} and {SERVER_VARIABLE} are set: unset one, or say --data or --server"
        )
    if not any(named):
        raise InvalidRequest(
            "where is the queue? Say --data with a directory or the URL of a bucket, or --server URL for a"
            f" broker, or set {DATA_VARIABLE} or {SERVER_VARIABLE}"
        )
    return QueueLocation(*named)


@contextmanager
def open_queue(data: Place | None, server: str | None, *, create: bool = False) -> Iterator[Connection]:
    """The queue that the options name, closed at the end. Only with `create` is a directory made."""
    with find_location(data, server).connection(create=create) as mq, naming_topics(mq.topics):
        yield mq


@contextmanager
def open_to_look(data: Place | None, server: str | None, *, is_quiet: bool = False) -> Iterator[Connection]:
    """The queue that the options name, for looking only.

    A directory that somebody has open, or that cannot be written to, is looked at by its files; it says so.
    A bucket is always looked at so: opening it would take it from its owner.
    """
    location = find_location(data, server)
    if isinstance(location.data, str):
        check_queue(location.data)
        with Connection(open_beside(location.data, loaded_here().settings)) as mq, naming_topics(mq.topics):
            yield mq
        return
    try:
        mq = location.connection()
    except QuiverError as error:
        why = None if location.data is None else _only_to_look_at(error)
        if location.data is None or why is None:
            raise
        if not is_quiet:
            say(f"{location.data} {why}: this is what its files show")
        mq = Connection(open_beside(location.data, loaded_here().settings))
    with mq, naming_topics(mq.topics):
        yield mq


def _only_to_look_at(error: QuiverError) -> str | None:
    """Why a directory can be looked at though it cannot be opened; None when it cannot."""
    cause = error.__cause__
    if isinstance(error, DirectoryLocked):
        return f"is in use by {_holder(error)}"
    if isinstance(error, DiskFull):
        return "lies on a full disk"
    if isinstance(cause, OSError) and cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "cannot be written to"
    return None


@contextmanager
def naming_topics(names: Callable[[], list[str]]) -> Iterator[None]:
    """Let an error about a topic that is not there say which one may have been meant."""
    try:
        yield
    except TopicNotFound as error:
        name_close_topics(error, names)
        raise


def name_close_topics(error: TopicNotFound, names: Callable[[], list[str]]) -> None:
    """Let the error tell the names of topics that are spelt much like the one that is not there."""
    match = _MISSING.search(str(error))
    if match is None:
        return
    try:
        close = get_close_matches(match[1], names(), 3, 0.6)
    except QuiverError:
        # A key that may not list topics must not turn one error into another.
        return
    advice = f"did you mean {' or '.join(close)}?" if close else error.advice
    error.args = (f"{match[0]}: {advice}",)


def connected(url: str, *, timeout: float | None = None, retries: int | None = None) -> Connection:
    """A client of a broker, with the key of the environment, and as patient as the settings here say."""
    return connect(url, key=_key(), timeout=timeout, retries=retries, settings=_patience())


def _key() -> str | None:
    return os.environ.get(KEY_VARIABLE) or None


def _patience() -> ClientSettings:
    """How long a command waits for a broker, and how often it asks."""
    loaded = loaded_here()
    is_said = loaded.origins["client.retries"] != "default"
    return loaded.settings.client if is_said else replace(loaded.settings.client, retries=_RETRIES)


def check_broker(server: str, key: str | None) -> None:
    """Raise Unreachable when there is no broker, or Denied when it does not want the key."""
    with connect(server, key=key, timeout=_CHECK_SECONDS, retries=_CHECK_RETRIES) as client:
        client.topics()


def check_queue(data: Place) -> None:
    """Raise NotFound unless it is a queue's, and what a store raises."""
    if isinstance(data, Path):
        check_directory(data)
    elif not _is_queue(data):
        raise NotFound(f"there is no queue in {data}")


def _is_queue(data: Place) -> bool:
    if isinstance(data, Path):
        return _is_queue_directory(data)
    return is_queue(data, loaded_here().settings.bucket)


def check_directory(data: Path) -> None:
    """Raise NotFound unless it is a queue's: to ask about it must not make a directory one."""
    _check_there(data)
    if not _is_queue_directory(data):
        raise NotFound(f"{data} is not the directory of a queue: it has no topics")


def _check_there(data: Path) -> None:
    if not data.is_dir():
        raise NotFound(f"there is no directory {data}")


def _is_queue_directory(data: Path) -> bool:
    """Whether somebody has opened it as the directory of a queue before."""
    return any((data / name).exists() for name in ("topics", "LOCK", "keys.json"))


def with_advice(error: DirectoryLocked) -> DirectoryLocked:
    """The error in words that help at a command line."""
    if error.url is not None:
        advice = f"is served by {_holder(error)}: say --server {error.url} in place of --data"
    else:
        advice = (
            f"is in use by {_holder(error)}: if that is a broker, talk to it with --server URL,"
            " such as --server http://127.0.0.1:7070; otherwise wait for its end"
        )
    error.args = (f"{error.path} {advice}",)
    return error


def _holder(error: DirectoryLocked) -> str:
    return "another process" if error.pid is None else f"process {error.pid}"


def named_data() -> Place | None:
    """The directory, or the bucket, that the environment names."""
    named = os.environ.get(DATA_VARIABLE)
    return place_of(named) if named else None


def served_data(settings: Settings) -> Path | str:
    """The directory or bucket that a broker with these settings serves.

    Raises InvalidRequest when they name none.
    """
    if settings.server.data is None:
        raise InvalidRequest(
            "where is the queue? Say --data with a directory or the URL of a bucket,"
            f" set {DATA_VARIABLE}, or `data` in [server] of quiver.toml"
        )
    return settings.server.data


def loaded_here(
    config: Path | None = None, arguments: Mapping[str, object] = MappingProxyType({})
) -> LoadedSettings:
    """The settings of a file, by default of `quiver.toml` here if there is one, of the environment and of
    options, with where each came from."""
    named, here = os.environ.get(CONFIG_VARIABLE), Path("quiver.toml")
    file = config or (Path(named) if named else here if here.exists() else None)
    return load_settings(toml=file, environ=os.environ, arguments=arguments)
