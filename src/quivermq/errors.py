"""Every error the library raises, grouped by what the caller should do.

    QuiverError
    ├── InvalidRequest       fix the call; retrying it unchanged cannot help
    │   ├── InvalidName
    │   ├── MessageTooLarge
    │   ├── InvalidFrame
    │   │   └── UnsupportedFrame
    │   ├── InvalidSettings
    │   ├── LimitReached
    │   ├── UnsupportedSystem
    │   ├── UnsupportedChunk
    │   ├── StoreDenied
    │   ├── StoreNotFound
    │   └── UnsafeStore
    ├── NotFound             what was asked for is not there (any more)
    │   ├── TopicNotFound
    │   ├── GroupNotFound
    │   ├── ClusterNotFound
    │   └── OffsetOutOfRange
    ├── Conflict             somebody else was first
    │   ├── TopicExists
    │   ├── LeaseExpired
    │   ├── DirectoryLocked
    │   ├── Fenced
    │   ├── NotOwner
    │   ├── BrokerExists
    │   └── Reentered
    ├── Denied               ask for a key that may do this
    │   └── Unauthenticated
    ├── Unavailable          retry later
    │   ├── Overloaded
    │   ├── RateLimited
    │   ├── Unreachable
    │   ├── StoreUnreachable
    │   ├── Closing
    │   └── DiskRefused
    │       ├── DiskFull
    │       └── StoreBehind
    └── StorageFailed        stop the partition, look at the disk, then `quiver verify`
        ├── Corruption
        ├── DamagedChunk
        └── FsyncFailed

Each class carries the code and HTTP status that the broker answers with and the exit code of the
command line. The attributes an error is raised with are part of the contract.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar


class QuiverError(Exception):
    """The root: catch this to catch everything the library raises on purpose."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    advice: ClassVar[str] = ""
    """What to do in Python, where messages of the class end with that."""
    command_advice: ClassVar[str] = ""
    """What the command line says in its place."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the subclass with the message alone, and an error with fields
        # could then not cross a process pool.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[QuiverError], args: tuple[Any, ...], fields: dict[str, Any]) -> QuiverError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(fields)
    return error


def error_json(error: QuiverError, message: str | None = None) -> dict[str, Any]:
    """What every error says in JSON, in its own words or in others."""
    text = str(error) if message is None else message
    return {"code": error.code, "message": text, "retryable": error.retryable}


class InvalidRequest(QuiverError):
    """The call is wrong as it stands."""

    code = "invalid_request"
    http_status = 400
    exit_code = 2


class InvalidName(InvalidRequest):
    """A topic, group or producer has a name that is not allowed."""

    code = "invalid_name"


class MessageTooLarge(InvalidRequest):
    """A message, its headers, or a batch is over a limit of the settings."""

    code = "message_too_large"
    http_status = 413

    def __init__(self, what: str, *, size_bytes: int, limit_bytes: int, setting: str) -> None:
        super().__init__(
            f"{what} has {size_bytes} bytes, the limit is {limit_bytes}: send less or raise {setting}"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.setting = setting


class InvalidFrame(InvalidRequest):
    """Bytes that should be a frame are not one. `position` is where in the bytes they go wrong."""

    code = "invalid_frame"

    def __init__(self, reason: str, *, position: int) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class UnsupportedFrame(InvalidFrame):
    """The frame is whole, but has a version or a feature that this release does not know."""

    code = "unsupported_frame"


class InvalidSettings(InvalidRequest):
    """A setting is unknown or out of range. `origin` says where the value came from."""

    code = "invalid_settings"

    def __init__(self, key: str, reason: str, *, origin: str) -> None:
        super().__init__(f"{key}: {reason} (from {origin})")
        self.key = key
        self.reason = reason
        self.origin = origin


class LimitReached(InvalidRequest):
    """There are as many topics, partitions or groups as there may be; nothing was made.

    `setting` is the limit's name: raise it, or delete what is not needed.
    """

    code = "limit_reached"
    http_status = 409

    def __init__(self, what: str, *, setting: str, limit: int) -> None:
        super().__init__(
            f"{what} cannot be made: {setting} = {limit}; delete what is not needed, or raise it"
        )
        self.setting = setting
        self.limit = limit


class UnsupportedSystem(InvalidRequest):
    """A data directory cannot be opened on this operating system; a broker can be used from it."""

    code = "unsupported_system"


class UnsupportedChunk(InvalidRequest):
    """What the object store holds is whole, but a later release wrote it: use that one."""

    code = "unsupported_chunk"


class StoreDenied(InvalidRequest):
    """The object store, or etcd, does not accept the credentials, or they do not allow enough."""

    code = "store_denied"


class StoreNotFound(InvalidRequest):
    """There is no such bucket, or no such kind of store."""

    code = "store_not_found"


class UnsafeStore(InvalidRequest):
    """The object store lets two writers create the same object: a queue there could lose messages."""

    code = "unsafe_store"


class NotFound(QuiverError):
    """What was asked for does not exist, or no longer."""

    code = "not_found"
    http_status = 404
    exit_code = 3


class TopicNotFound(NotFound):
    """No topic of that name exists."""

    code = "topic_not_found"
    advice = "topics() lists those there are"
    command_advice = "`quiver topic list` shows those there are"

    @classmethod
    def named(cls, name: str) -> "TopicNotFound":
        """The error that says so."""
        return cls(f"there is no topic {name}: {cls.advice}")


class GroupNotFound(NotFound):
    """No group of that name exists."""

    code = "group_not_found"


class ClusterNotFound(NotFound):
    """Nobody has made a cluster of that name in this etcd, or the broker belongs to none."""

    code = "cluster_not_found"


class OffsetOutOfRange(NotFound):
    """The offset is not in the log, which now holds `start` up to but not including `end`."""

    code = "offset_out_of_range"
    http_status = 416

    def __init__(self, offset: int, *, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of this log, which holds [{start}, {end})")
        self.offset = offset
        self.start = start
        self.end = end


class Conflict(QuiverError):
    """Somebody else was first."""

    code = "conflict"
    http_status = 409
    exit_code = 4


class TopicExists(Conflict):
    """A topic of that name exists already."""

    code = "topic_exists"
    advice = "use alter_topic to change it"
    command_advice = "`quiver topic alter` changes it"


class LeaseExpired(Conflict):
    """Receipts are no longer valid: the messages may be with another consumer, or settled already."""

    code = "lease_expired"

    def __init__(self, *, receipts: Sequence[str]) -> None:
        more = f" and {len(receipts) - 1} more" if len(receipts) > 1 else ""
        super().__init__(
            f"the lease of {receipts[0]}{more} is over: the message was settled already, or its time ran"
            " out and it will be delivered again"
        )
        self.receipts = tuple(receipts)


class DirectoryLocked(Conflict):
    """Another process, or another opener in this one, writes to the directory.

    `url` is where a broker serves it, None when nobody says that one does.
    """

    code = "directory_locked"

    def __init__(self, path: Path, *, pid: int | None, url: str | None = None) -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        if url is not None:
            advice = f", a broker: use quivermq.connect({url!r}) in place of open"
        else:
            advice = (
                ": if that is `quiver serve`, use quivermq.connect(url) in place of open;"
                " otherwise close it there, or look on with quivermq.follow"
            )
        super().__init__(f"{path} is in use by {holder}{advice}")
        self.path = path
        self.pid = pid
        self.url = url


class Fenced(Conflict):
    """A member of a group comes late: the group went on without it, and it has to join again."""

    code = "fenced"


class NotOwner(Conflict):
    """Another process has taken over the queue in the object store; this one can store nothing any more."""

    code = "not_owner"


class BrokerExists(Conflict):
    """Another broker of the cluster has the same id."""

    code = "broker_exists"


class Reentered(Conflict):
    """A call interrupts another one of the same thread, out of a signal handler or a finalizer."""

    code = "reentered"


class Denied(QuiverError):
    """The key does not allow this."""

    code = "denied"
    http_status = 403
    exit_code = 7


class Unauthenticated(Denied):
    """The broker wants a key, and there was none, or not a valid one."""

    code = "unauthenticated"
    http_status = 401
    advice = "send `Authorization: Bearer KEY`"
    command_advice = "set QUIVER_KEY to one"


class Unavailable(QuiverError):
    """Not now: the same call may succeed later."""

    code = "unavailable"
    retryable = True
    http_status = 503
    exit_code = 5


class Overloaded(Unavailable):
    """The backlog is at its limit; nothing of the message was stored."""

    code = "overloaded"
    http_status = 429

    def __init__(self, topic: str, *, setting: str, limit: int) -> None:
        super().__init__(
            f"the backlog of {topic} is at its limit, {setting} = {limit}: retry once consumers caught up"
        )
        self.topic = topic
        self.setting = setting
        self.limit = limit


class RateLimited(Unavailable):
    """The client sends more requests than it may; nothing of this one was done."""

    code = "rate_limited"
    http_status = 429


class Unreachable(Unavailable):
    """The broker does not answer: it is not there, or the connection broke.

    Whether the call was carried out, nobody knows.
    """

    code = "unreachable"


class StoreUnreachable(Unavailable):
    """The object store, or etcd, did not answer in time.

    What was to be made durable may still become so: it is tried again until the store answers.
    """

    code = "store_unreachable"


class Closing(Unavailable):
    """The object was closed, or belongs to the parent of this forked process."""

    code = "closing"


class DiskRefused(Unavailable):
    """The disk takes nothing now: it is read-only, or too many files are open, or see DiskFull.

    Nothing of the refused write stayed behind, and everything goes on once the reason is gone.
    """

    code = "disk_refused"

    def __init__(self, message: str, *, path: Path) -> None:
        super().__init__(message)
        self.path = path


class DiskFull(DiskRefused):
    """The disk has no room; nothing of the refused write stayed behind."""

    code = "disk_full"
    http_status = 507

    def __init__(self, path: Path, *, needed_bytes: int, free_bytes_min: int | None = None) -> None:
        room = f"no space left for {needed_bytes} bytes in {path}"
        if free_bytes_min is not None:
            # There is some, and it is kept for acknowledgements and the like.
            room = (
                f"{path} has {needed_bytes} bytes less left than engine.free_bytes_min,"
                f" which is {free_bytes_min}"
            )
        super().__init__(f"{room}: free some, then retry", path=path)
        self.needed_bytes = needed_bytes
        self.free_bytes_min = free_bytes_min


class StoreBehind(DiskRefused):
    """The object store is too far behind to take more; nothing of the refused write stayed behind."""

    code = "store_behind"


class StorageFailed(QuiverError):
    """The disk did not do what it promised. `path` is the file concerned."""

    code = "storage_failed"
    exit_code = 6

    def __init__(self, message: str, *, path: Path) -> None:
        super().__init__(message)
        self.path = path


class Corruption(StorageFailed):
    """Stored bytes are not what was written. `offsets` is the half-open range they should hold.

    The end of the range is None where nothing behind the damage says where it ends.
    """

    code = "corruption"

    def __init__(self, reason: str, *, path: Path, position: int, offsets: tuple[int, int | None]) -> None:
        start, end = offsets
        held = f"[{start}, {'?' if end is None else end})"
        super().__init__(
            f"{path} is damaged at byte {position}, offsets {held}: {reason};"
            " run `quiver repair` to set the damaged bytes aside",
            path=path,
        )
        self.reason = reason
        self.position = position
        self.offsets = offsets


class DamagedChunk(StorageFailed):
    """A chunk or a checkpoint in the object store is missing, or is not what was written."""

    code = "damaged_chunk"


class FsyncFailed(StorageFailed):
    """The disk refused to make writes durable. Never retried: the log must be reopened."""

    code = "fsync_failed"
