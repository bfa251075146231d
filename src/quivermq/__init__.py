"""Quiver: a durable message queue whose log is a table."""

from importlib.metadata import version

from quivermq.errors import (
    Closing,
    Conflict,
    Corruption,
    DirectoryLocked,
    DiskFull,
    FsyncFailed,
    GroupNotFound,
    InvalidFrame,
    InvalidName,
    InvalidRequest,
    InvalidSettings,
    LeaseExpired,
    MessageTooLarge,
    NotFound,
    OffsetOutOfRange,
    Overloaded,
    QuiverError,
    StorageFailed,
    TopicExists,
    TopicNotFound,
    Unavailable,
    UnsupportedFrame,
)
from quivermq.frame import Record
from quivermq.log import DataDirectory, Log, LogFollower, follow, repair, verify
from quivermq.settings import StorageSettings, load_settings

__version__ = version("quivermq")

__all__ = [
    "Closing",
    "Conflict",
    "Corruption",
    "DataDirectory",
    "DirectoryLocked",
    "DiskFull",
    "FsyncFailed",
    "GroupNotFound",
    "InvalidFrame",
    "InvalidName",
    "InvalidRequest",
    "InvalidSettings",
    "LeaseExpired",
    "Log",
    "LogFollower",
    "MessageTooLarge",
    "NotFound",
    "OffsetOutOfRange",
    "Overloaded",
    "QuiverError",
    "Record",
    "StorageFailed",
    "StorageSettings",
    "TopicExists",
    "TopicNotFound",
    "Unavailable",
    "UnsupportedFrame",
    "__version__",
    "follow",
    "load_settings",
    "repair",
    "verify",
]
