"""The whole queue, synchronous: what `quivermq.open()` returns."""

from quivermq.engine.engine import Engine, open_engine
from quivermq.engine.queue import Queue
from quivermq.model.stats import Compacted, TopicInfo

__all__ = ["Compacted", "Engine", "Queue", "TopicInfo", "open_engine"]
