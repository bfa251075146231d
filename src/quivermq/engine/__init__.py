"""The whole queue of a data directory, synchronous: the `Backend` of `quivermq.open`."""

from quivermq.engine.bucket import BucketEngine, is_queue, open_at
from quivermq.engine.engine import Engine, engine_of
from quivermq.engine.entry import open_engine
from quivermq.engine.queue import EngineQueue
from quivermq.topic.incoming import CheckedMessage, is_delayed

__all__ = [
    "BucketEngine",
    "CheckedMessage",
    "Engine",
    "EngineQueue",
    "engine_of",
    "is_delayed",
    "is_queue",
    "open_at",
    "open_engine",
]
