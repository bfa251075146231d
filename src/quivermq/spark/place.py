"""Where the queue's data lies: a data directory, or a broker that serves one. Both only look.

This is the only module that decides which of the two is meant; everybody else asks a `Place`. A place is
cheap and can be pickled: it is sent to every task, and opens what it needs where it arrives.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from quivermq.errors import DirectoryLocked, InvalidRequest
from quivermq.frame import Frame
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic.offsets import OffsetSet

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from quivermq.client.blocking.connection import Connection

# A partition is listed from its first moment on, for its normal lane; the other lanes once they are used.
NORMAL = "normal"

AnyPath = str | os.PathLike[str]


class Lane(NamedTuple):
    """One log of the queue: a priority of a partition of a topic."""

    topic: str
    partition: int
    priority: str

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, priority {self.priority}"


class LaneExtent(NamedTuple):
    """What a lane holds now, as half-open offsets. What lies below `sealed` does not change any more."""

    start: int
    sealed: int
    end: int
    size_bytes: int


NOTHING = LaneExtent(0, 0, 0, 0)


class TopicView(NamedTuple):
    """One look at a topic: which one it is, how it is set, and what its lanes hold."""

    created_us: int
    settings: TopicSettings
    lanes: dict[Lane, LaneExtent]


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


class Place(Protocol):
    """All that reading messages in bulk needs. Every method raises StorageFailed or Unreachable."""

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        ...

    def origins(self) -> dict[str, str | None]:
        """The same, each with the topic whose dead letters it has, if it has any."""
        ...

    def origin(self, topic: str) -> str | None:
        """The topic whose dead letters a topic has; None for a topic of its own."""
        ...

    def look(self, topic: str) -> TopicView:
        """A topic in one look: what the next three methods tell. Raises TopicNotFound."""
        ...

    def created_us(self, topic: str) -> int:
        """Tells a topic from an earlier one of its name that was deleted. Raises TopicNotFound."""
        ...

    def settings(self, topic: str) -> TopicSettings:
        """How a topic is set. Raises TopicNotFound."""
        ...

    def lanes(self, topic: str) -> dict[Lane, LaneExtent]:
        """The normal lane of each partition and the others in use, in order. Raises TopicNotFound."""
        ...

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        """The first offset whose message is not older; the end when all are. Every one before it is."""
        ...

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        """Whole frames that overlap [start, end), in order; all of that range is there, or this raises.

        Raises OffsetOutOfRange when retention was faster or the log ends before `end`, and Corruption.
        """
        ...

    def archived_rows(
        self, lane: Lane, start: int, end: int, columns: Sequence[str], /
    ) -> "tuple[int, Iterable[pa.RecordBatch]]":
        """Up to where a range is to be read from Parquet files, and those rows; `start` and none if not."""
        ...

    def removed(self, lane: Lane) -> OffsetSet:
        """Offsets taken out for everybody, as dead letters that went back. A broker hides them itself."""
        ...

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> bool:
        """Let a group, which must have no members, stand there. False where only whoever has it open may.

        Raises Conflict, OffsetOutOfRange.
        """
        ...

    def close(self) -> None:
        """Let go of what was opened; whatever is asked next opens it again."""
        ...


class LivePlace(Place, Protocol):
    """The queue itself: what reading needs, its state, and where its files or its broker are."""

    @property
    def directory(self) -> Path | None:
        """The data directory, whose files and journals can be read; None for a broker."""
        ...

    @property
    def connection(self) -> "Connection | None":
        """The connection of this process to the broker; None for a directory."""
        ...

    def whole(self) -> Place:
        """The same with its own archive, if it has one. Raises NotFound where that cannot be reached."""
        ...

    def archive_directory(self) -> Path | None:
        """What the queue calls its archive; None when it has none. Raises Denied, StorageFailed."""
        ...

    def use_archive(self, directory: Path) -> None:
        """Tell the queue where its archive is. Raises NotFound, Denied."""
        ...

    def synced_ends(self, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:
        """Up to where each lane, from its `starts` on or from 0, survives power loss. Raises TopicNotFound.

        A broker tells what it has synced; the files of a directory are synced for this.
        """
        ...

    def first_since(self, lane: Lane, append_us: int) -> int:
        """An offset before which nothing came in at this moment or later; 0 where finding it costs more."""
        ...

    def segments(self, topic: str) -> list[SegmentPart]:
        """The segments of a topic that hold something, each lane's oldest first. Raises TopicNotFound."""
        ...

    def groups(self, topic: str) -> list[str]:
        """The groups that have been in a topic, sorted."""
        ...

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        """A group in each lane that is in use."""
        ...

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        """What a group has not finished, lane by lane, by offset."""
        ...

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        """The segments of a topic, lane by lane."""
        ...


def place_of(path: str | None = None, server: str | None = None, key: str | None = None) -> LivePlace:
    """The place that a user means. Raises InvalidRequest unless it is exactly one."""
    if path is not None and server is not None:
        raise InvalidRequest("give `path` for a data directory or `server` for a broker, not both")
    if path is None and server is None:
        raise InvalidRequest(
            "say where the queue is: the option `path` for a data directory, or `server` for a broker"
        )
    if server is not None:
        from quivermq.spark.broker_place import BrokerPlace

        return BrokerPlace(server, key)
    if key is not None:
        raise InvalidRequest("a key is for a broker: leave the option `key` out for a data directory")
    assert path is not None
    from quivermq.spark.directory_place import DirectoryPlace

    return DirectoryPlace(path)


def where_of(path: AnyPath | None, server: str | None, key: str | None) -> "Where":
    """What a caller of a job says of the place. Raises InvalidRequest unless it is exactly one."""
    return Where(None if path is None else os.fspath(path), server, key)


@dataclass(frozen=True, slots=True)
class Where:
    """Where the queue of a job is, as its caller said it: a data directory, or a broker and its key."""

    path: str | None = None
    server: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.server is None):
            raise InvalidRequest(
                "say where the queue is: path= for a data directory, or server= for a broker"
            )

    def __str__(self) -> str:
        return str(self.path or self.server)

    def options(self) -> dict[str, str]:
        """As options of the data source."""
        given = {"path": self.path, "server": self.server, "key": self.key}
        return {name: str(value) for name, value in given.items() if value is not None}

    def place(self) -> LivePlace:
        """For reading without Spark."""
        return place_of(self.path, self.server, self.key)

    def read(self, spark: "SparkSession", **options: str) -> "DataFrame":
        """What the data source gives with these further options."""
        return spark.read.format("quiver").options(**self.options(), **options).load()

    def queue(self, *, if_locked: str = "") -> Any:
        """The queue itself, to be changed: embedded where nobody else has it open, or over the network.

        Both have the same methods and are closed by `with`. Raises Unreachable, and DirectoryLocked, with
        the advice `if_locked` behind its text.
        """
        import quivermq

        if self.server is not None:
            return quivermq.connect(self.server, key=self.key)
        assert self.path is not None
        try:
            return quivermq.open(self.path)
        except DirectoryLocked as error:
            if not if_locked:
                raise
            # Without its fields: the command line adds its own advice to an error that names a process.
            raise DirectoryLocked.__new__(DirectoryLocked, f"{error}: {if_locked}") from None

    def state_root(self) -> Path:
        """Where jobs keep their state: in the data directory, or below the user's state directory."""
        if self.path is not None:
            return Path(self.path).absolute() / "pipelines"
        given = os.environ.get("XDG_STATE_HOME")
        home = Path(given) if given else Path.home() / ".local" / "state"
        return home / "quiver" / "pipelines" / fingerprint(self.server)


def fingerprint(value: object) -> str:
    """A short name for what a job was asked to do: the same question has the same name."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
