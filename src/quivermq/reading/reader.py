"""What whoever reads a queue in bulk can ask, and what is answered.

Three classes answer: `DirectoryReader`, `BucketReader` and `BrokerReader`. Only `reader_of` decides which
of them is meant, and nobody asks a reader: where queues differ in what can be done with them, a method says
so.
"""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from quivermq.disk import Disk, SystemDisk
from quivermq.errors import InvalidRequest
from quivermq.frame import Frame
from quivermq.log import Report
from quivermq.model.lanes import Lane
from quivermq.model.messages import StoredMessage
from quivermq.model.operations import LaneBounds, TopicExtent
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import ClientSettings, is_bucket
from quivermq.topic.offsets import OffsetSet

if TYPE_CHECKING:
    import pyarrow as pa

    from quivermq.queue.connection import Connection

AnyPath = str | os.PathLike[str]
BytesCallback = Callable[[int, int], None]
"""Called from time to time: so many bytes are done, of so many."""

# How the option that names an archive says that none is to be read.
NO_ARCHIVE = "false"
_NO_ARCHIVES = (NO_ARCHIVE, "none")


class SegmentPart(NamedTuple):
    """Offsets [start, end) of a lane that lie in one segment."""

    lane: Lane
    start: int
    end: int
    size_bytes: int
    is_sealed: bool


class GroupRow(NamedTuple):
    """A group in one lane. `cursor` is the first offset that is not finished, None where it never was.

    `position` is the next one that nobody of the group had; `lag` is how many there are from there on.
    `state` and `members` are known to a broker only.
    """

    topic: str
    partition: int
    priority: str
    group: str
    cursor: int | None
    position: int
    start: int
    end: int
    lag: int
    in_flight: int
    retrying: int
    waiting_for_key: int
    state: str | None = None
    members: int | None = None


class DeliveryRow(NamedTuple):
    """A message that a group was given and has not finished: with somebody until `deadline`, or `due`."""

    topic: str
    partition: int
    priority: str
    group: str
    offset: int
    attempt: int
    state: str
    deadline: int | None
    due: int | None
    holder: str | None
    first_delivered_at: int | None
    last_delivered_at: int | None

    @classmethod
    def of(
        cls, lane: Lane, group: str, offset: int, attempt: int, state: str, time_us: int, *more: Any
    ) -> "DeliveryRow":
        """The time is when the lease ends, or when the message is due again; `more` is from `holder` on."""
        if state == "in_flight":
            return cls(*lane, group, offset, attempt, state, time_us, None, *more)
        # Due at 0 is due at once: whoever waits for others of its key has no time of its own.
        return cls(*lane, group, offset, attempt, state, None, time_us or None, None, *more[1:])


class SegmentRow(NamedTuple):
    """A file of a lane. How many frames it has, and where it lies, only its directory tells."""

    topic: str
    partition: int
    priority: str
    base_offset: int
    end_offset: int
    bytes: int
    frames: int | None
    messages: int
    first_timestamp: int | None
    last_timestamp: int | None
    sealed: bool
    path: str | None


class ProgressCallback(Protocol):
    """Called from time to time while a job works, from any thread.

    `done` of `total` is done of what `description` says; a total that nobody knows yet is None. Each
    description is something of its own, with a count of its own.
    """

    def __call__(self, description: str, done: float, total: float | None = None) -> None: ...


def no_progress(description: str, done: float, total: float | None = None) -> None:
    """Tells nobody."""


class MessageReader(ABC):
    """Messages in bulk. Any thread may ask; every method raises StorageFailed or Unreachable."""

    @abstractmethod
    def _arguments(self) -> tuple[Any, ...]:
        """What makes the same reader again, in another process."""

    @abstractmethod
    def __str__(self) -> str: ...

    def __repr__(self) -> str:
        # Without a key: what is printed ends up in logs.
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageReader) and other.__reduce__() == self.__reduce__()

    def __hash__(self) -> int:
        return hash(str(self))

    @abstractmethod
    def origins(self) -> dict[str, str | None]:
        """The names of all topics, sorted, each with the topic whose dead letters it has, if it has any."""

    @abstractmethod
    def origin(self, topic: str) -> str | None:
        """The topic whose dead letters a topic has; None for a topic of its own."""

    @abstractmethod
    def look(self, topic: str) -> TopicExtent:
        """A topic in one look: what the next three methods tell. Raises TopicNotFound."""

    @abstractmethod
    def created_us(self, topic: str) -> int:
        """Tells a topic from an earlier one of its name that was deleted. Raises TopicNotFound."""

    @abstractmethod
    def settings(self, topic: str) -> TopicSettings:
        """How a topic is set. Raises TopicNotFound."""

    def lanes(self, topic: str) -> dict[Lane, LaneBounds]:
        """The normal lane of each partition and the others in use, in order. Raises TopicNotFound."""
        return self.look(topic).lanes

    @abstractmethod
    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        """The first offset whose message is not older; the end when all are. Every one before it is."""

    @abstractmethod
    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        """Whole frames that overlap [start, end), in order; all of that range is there, or this raises.

        Raises OffsetOutOfRange when retention was faster or the log ends before `end`, and Corruption.
        """

    def archived_rows(
        self,
        lane: Lane,  # noqa: ARG002  (Only a reader with an archive asks for more than where it begins.)
        start: int,
        end: int,  # noqa: ARG002
        columns: Sequence[str],  # noqa: ARG002
    ) -> "tuple[int, Iterable[pa.RecordBatch]]":
        """Up to where a range is to be read from Parquet files, and those rows; `start` and none if not."""
        return start, ()

    @abstractmethod
    def removed(self, lane: Lane) -> OffsetSet:
        """Offsets taken out for everybody, as dead letters that went back. A broker hides them itself."""

    @abstractmethod
    def commit(self, group: str, offsets: Mapping[Lane, int]) -> bool:
        """Let a group, which must have no members, stand there. False where only whoever has it open may.

        Raises Conflict, OffsetOutOfRange.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of what was opened; whatever is asked next opens it again."""


class QueueReader(MessageReader):
    """The live queue: its messages, its state, and what jobs need to know of where it is."""

    disk: Disk
    """The disk that its roots are on."""

    @abstractmethod
    def options(self) -> dict[str, str]:
        """What makes the data source of Spark read the same queue."""

    @abstractmethod
    def open_queue(self, *, if_locked: str = "", is_patient: bool = False) -> "Connection":
        """The queue itself, to be changed: embedded where nobody else has it open, or over the network.

        With `is_patient`, one that is away or full is waited for some minutes. Raises Unreachable, and
        DirectoryLocked, with the advice `if_locked` behind its text.
        """

    @abstractmethod
    def state_root(self) -> Path:
        """Where jobs keep their state: in the data directory, or below the user's state directory."""

    @abstractmethod
    def staging_root(self) -> Path | None:
        """Below which executors leave what they write, for the driver, who alone can have the queue open.

        None where everybody may open the queue: then executors write to it themselves.
        """

    @abstractmethod
    def files_root(self) -> Path | None:
        """Below which its logs and all its other files are; None where only the queue can read them."""

    def with_archive(self, option: str | None = None) -> MessageReader:
        """The same with the archive that an option names, or else with the one that the queue has itself.

        A broker reads its own for whoever asks; one that is named is read where the reader is. Raises
        NotFound where no archive can be reached; the option `false` does without.
        """
        if option is None:
            return self._with_own_archive()
        if option.lower() in _NO_ARCHIVES:
            return self
        from quivermq.reading.archived import ArchivedReader

        return ArchivedReader.checked(self, local_path(option))

    @abstractmethod
    def _with_own_archive(self) -> MessageReader: ...

    @abstractmethod
    def archive_directory(self) -> Path | None:
        """What the queue calls its archive; None when it has none. Raises Denied, StorageFailed."""

    @abstractmethod
    def new_archive_directory(self) -> Path:
        """Where the archive goes if nobody says where. Raises InvalidRequest where somebody has to."""

    @abstractmethod
    def use_archive(self, directory: Path) -> None:
        """Tell the queue where its archive is. Raises NotFound, Denied."""

    @abstractmethod
    def synced_ends(self, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:
        """Up to where each lane, from its `starts` on or from 0, survives power loss. Raises TopicNotFound.

        A broker tells what it has synced; the files of a directory are synced for this.
        """

    @abstractmethod
    def first_since(self, lane: Lane, append_us: int) -> int:
        """An offset before which nothing came in at this moment or later; 0 where finding it costs more."""

    @abstractmethod
    def segments(self, topic: str) -> list[SegmentPart]:
        """The segments of a topic that hold something, each lane's oldest first. Raises TopicNotFound."""

    @abstractmethod
    def read(self, lane: Lane, start: int, limit: int) -> list[StoredMessage]:
        """Some messages from an offset on, for looking, without what was removed for everybody.

        Raises OffsetOutOfRange, TopicNotFound.
        """

    @abstractmethod
    def verify(self, progress: BytesCallback | None = None) -> Report:
        """Check every byte of every log, beside whoever writes to it. Files are named below the queue."""

    @abstractmethod
    def groups(self, topic: str) -> list[str]:
        """The groups that have been in a topic, sorted."""

    @abstractmethod
    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        """A group in each lane that is in use."""

    @abstractmethod
    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        """What a group has not finished, lane by lane, by offset."""

    @abstractmethod
    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        """The segments of a topic, lane by lane."""

    @abstractmethod
    def journal_changes(self, topic: str, group: str, partition: int) -> Iterator[tuple[int, bytes]]:
        """Each change of a group's journal and when it was written; what a snapshot repeats is none.

        None at all where the files of the queue cannot be reached.
        """


def reader_of(
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    *,
    settings: ClientSettings | None = None,
    endpoint: str | None = None,
    region: str | None = None,
) -> QueueReader:
    """The reader of the queue that a user means. Raises InvalidRequest unless it is exactly one.

    A path may be the URL of a bucket, which an endpoint and a region are for; the settings are for a
    broker. What is not given is as the environment says.
    """
    if path is not None and server is not None:
        raise InvalidRequest(
            "give `path` for a data directory or a bucket, or `server` for a broker, not both"
        )
    is_told_how = endpoint is not None or region is not None
    if is_told_how and not is_bucket(path):
        raise InvalidRequest(
            "`endpoint` and `region` are for a bucket: leave them out, or give its URL as `path`"
        )
    if server is not None:
        from quivermq.reading.broker import BrokerReader

        return BrokerReader(server, key, settings)
    if path is None:
        raise InvalidRequest(
            "say where the queue is: the option `path` for a data directory or the URL of a bucket, or"
            " `server` for a broker"
        )
    if key is not None:
        raise InvalidRequest("a key is for a broker: leave the option `key` out for a data directory")
    if isinstance(path, str) and is_bucket(path) and not _is_data_directory(path):
        from quivermq.reading.bucket import BucketReader

        return BucketReader.at(path, endpoint, region)
    from quivermq.reading.directory import DirectoryReader

    return DirectoryReader(os.fspath(path))


def _is_data_directory(url: str) -> bool:
    """Whether a `file:` URL is that of a directory with a queue in it, as other tools may give it."""
    if not url.lower().startswith("file:"):
        return False
    disk, path = SystemDisk(), local_path(url)
    return any(disk.exists(path / name) for name in ("LOCK", "topics"))


def local_path(path: str) -> Path:
    """The directory that a path or a `file:` address means. Raises InvalidRequest for any other address."""
    parts = urlsplit(path)
    if not parts.scheme:
        return Path(path).absolute()
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise InvalidRequest(
            f"{path} is not a directory of this machine: mount it on every executor and give its path,"
            " or read through a broker with the option `server`"
        )
    return Path(unquote(parts.path))


def fingerprint(value: object) -> str:
    """A short name for what a job was asked to do: the same question has the same name."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
