"""The delay store of a topic: messages wait on disk until they are due, then go to their lane.

- `message`: what waits, its rank in the order of release, and its id.
- `batch`: messages in runs that fit into a frame.
- `buckets`: logs that each hold the messages of one span of due times.
- `reading`: finding ranks and messages in them.
- `agenda`: the ranks that come next, in memory.
- `journal`: what was released and cancelled, and what is on its way to a lane.
- `waiting`: the buckets and the agenda, and how far each epoch is released.
- `timeline`: how much is due when.
- `release`: taking messages to their lanes.
- `store`: all of it together.
"""

from quivermq.model.messages import Scheduled, Timeline
from quivermq.topic.delay.message import Delayed
from quivermq.topic.delay.store import DelayStore

__all__ = ["DelayStore", "Delayed", "Scheduled", "Timeline"]
