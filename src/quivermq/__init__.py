"""Quiver: a durable message queue whose log is a table."""

from importlib.metadata import version

from quivermq.client import Connection, RemoteQueue, connect
from quivermq.delivery.adoption import Progress, Tried
from quivermq.delivery.dead_letters import DeadLetter
from quivermq.delivery.delivery import Delivery
from quivermq.engine import Compacted, Engine, Queue, TopicInfo
from quivermq.engine import open_engine as open  # noqa: A004 - Called as quivermq.open, like gzip.open.
from quivermq.engine.in_flight import InFlight
from quivermq.engine.looking import StoredMessage
from quivermq.engine.reasons import DeadLetterReason
from quivermq.engine.stats import Alert, EngineStats, QueueStats, TopicStats
from quivermq.errors import (
    Closing,
    Conflict,
    Corruption,
    Denied,
    DirectoryLocked,
    DiskFull,
    DiskRefused,
    Fenced,
    FsyncFailed,
    GroupNotFound,
    InvalidFrame,
    InvalidName,
    InvalidRequest,
    InvalidSettings,
    LeaseExpired,
    LimitReached,
    MessageTooLarge,
    NotFound,
    OffsetOutOfRange,
    Overloaded,
    QuiverError,
    RateLimited,
    Reentered,
    StorageFailed,
    TopicExists,
    TopicNotFound,
    Unauthenticated,
    Unavailable,
    Unreachable,
    UnsupportedFrame,
    UnsupportedSystem,
)
from quivermq.frame import Producer, Record
from quivermq.log import DataDirectory, Log, LogFollower, Repair, Replaced, Report, follow, repair, verify
from quivermq.settings import ClientSettings, EngineSettings, ServerSettings, Settings, StorageSettings
from quivermq.topic.adopted_ids import AdoptedId
from quivermq.topic.defaults import load_settings
from quivermq.topic.delay import Scheduled, Timeline
from quivermq.topic.incoming import Message
from quivermq.topic.put import FirstFrame, ProducerState, Put
from quivermq.topic.settings import TopicSettings

__version__ = version("quivermq")

__all__ = [
    "AdoptedId",
    "Alert",
    "ClientSettings",
    "Closing",
    "Compacted",
    "Conflict",
    "Connection",
    "Corruption",
    "DataDirectory",
    "DeadLetter",
    "DeadLetterReason",
    "Delivery",
    "Denied",
    "DirectoryLocked",
    "DiskFull",
    "DiskRefused",
    "Engine",
    "EngineSettings",
    "EngineStats",
    "Fenced",
    "FirstFrame",
    "FsyncFailed",
    "GroupNotFound",
    "InFlight",
    "InvalidFrame",
    "InvalidName",
    "InvalidRequest",
    "InvalidSettings",
    "LeaseExpired",
    "LimitReached",
    "Log",
    "LogFollower",
    "Message",
    "MessageTooLarge",
    "NotFound",
    "OffsetOutOfRange",
    "Overloaded",
    "Producer",
    "ProducerState",
    "Progress",
    "Put",
    "Queue",
    "QueueStats",
    "QuiverError",
    "RateLimited",
    "Record",
    "Reentered",
    "RemoteQueue",
    "Repair",
    "Replaced",
    "Report",
    "Scheduled",
    "ServerSettings",
    "Settings",
    "StorageFailed",
    "StorageSettings",
    "StoredMessage",
    "Timeline",
    "TopicExists",
    "TopicInfo",
    "TopicNotFound",
    "TopicSettings",
    "TopicStats",
    "Tried",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "UnsupportedFrame",
    "UnsupportedSystem",
    "__version__",
    "connect",
    "follow",
    "load_settings",
    "open",
    "repair",
    "verify",
]
