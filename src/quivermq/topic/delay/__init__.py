"""The delay store of a topic: messages wait on disk until they are due, then go to their lane.

- `message`: what waits, its rank in the order of release, its id, and runs of them that fit into a frame.
- `buckets`: logs that each hold the messages of one span of due times.
- `upcoming`: the ranks that come next, in memory, and how much is due when.
- `reading`: finding ranks and messages in the buckets.
- `journal`: what was released and cancelled, and what is on its way to a lane.
- `waiting`: the buckets and what comes next, and how far each epoch is released.
- `release`: taking messages to their lanes.
- `store`: all of it together.
"""

from quivermq.topic.delay.message import Delayed
from quivermq.topic.delay.store import DelayStore, FailedDelayStore

__all__ = ["DelayStore", "Delayed", "FailedDelayStore"]
