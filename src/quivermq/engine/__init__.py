"""The whole queue, synchronous: what `quivermq.open()` returns."""

from quivermq.engine.engine import Compacted, Engine, TopicInfo, open_engine
from quivermq.engine.queue import Queue

__all__ = ["Compacted", "Engine", "Queue", "TopicInfo", "open_engine"]
