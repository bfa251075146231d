"""Back-pressure: how much of a topic is unfinished, and what happens when that is too much."""

import logging
import threading
from collections.abc import Sequence

from quivermq.disk import Buffer
from quivermq.errors import Overloaded
from quivermq.group.group import Group
from quivermq.log import Log
from quivermq.metrics import Metrics
from quivermq.settings import Durability
from quivermq.topic.incoming import Message
from quivermq.topic.put import Put
from quivermq.topic.topic import Topic

logger = logging.getLogger(__name__)


class Backlog:
    """Lets messages in, or not. Thread-safe."""

    def __init__(self, topic: Topic, groups: dict[str, Group], metrics: Metrics) -> None:
        self.groups = groups
        self._topic = topic
        self._lock = threading.Lock()
        self._refused = metrics.counter(
            "quiver_messages_refused_total", "Messages refused for a full backlog.", topic=topic.name
        )
        self._dropped = metrics.counter(
            "quiver_messages_dropped_total", "Messages dropped for newer ones.", topic=topic.name
        )

    def put(self, messages: Sequence[bytes | Message], durability: Durability | None) -> Sequence[Put]:
        """Store messages if the limits of the topic have room for them. Raises Overloaded."""
        topic = self._topic
        if not topic.settings.is_bounded or not messages:
            return topic.put_many(messages, durability)
        word = durability or topic.settings.durability
        # A message that is wrong in itself is refused as such, and makes no room.
        topic.check(messages)
        # Looked at and stored in one step, or many producers at once would go over the limit together.
        with self._lock:
            size = sum(len(m.value if isinstance(m, Message) else m) for m in messages)
            self._make_room(len(messages), size)
            puts = topic.put_many(messages, "os" if word == "fsync" else word)
        if word == "fsync":
            topic.sync(puts)
        return puts

    def put_frame(
        self, frame: Buffer, partition: int | None, priority: str, durability: Durability | None
    ) -> tuple[Put, int]:
        """Store a frame likewise; how many messages it has is told, too."""
        topic = self._topic
        parsed = topic.parse(frame)
        if not topic.settings.is_bounded:
            put = topic.put_frame(parsed, partition=partition, priority=priority, durability=durability)
            return put, len(parsed)
        word = durability or topic.settings.durability
        with self._lock:
            self._make_room(len(parsed), parsed.header.raw_bytes)
            early: Durability = "os" if word == "fsync" else word
            put = topic.put_frame(parsed, partition=partition, priority=priority, durability=early)
        if word == "fsync":
            topic.sync([put._replace(offset=(put.offset or 0) + len(parsed) - 1)])
        return put, len(parsed)

    def messages(self) -> int:
        """How many messages are unfinished for the group that is farthest behind."""
        return self._topic.delays.pending + max(map(self._unfinished, self._groups()))

    def size_bytes(self) -> int:
        """About how many bytes those are."""
        return max(map(self._unfinished_bytes, self._groups()))

    def _groups(self) -> list[Group | None]:
        return list(self.groups.values()) or [None]

    def _unfinished(self, group: Group | None) -> int:
        if group is not None:
            return group.counts().unfinished
        return sum(
            self._topic.partitions[partition].removals.lanes[lane].missing_between(log.start, log.end)
            for (partition, lane), log in self._topic.lanes().items()
        )

    def _unfinished_bytes(self, group: Group | None) -> int:
        size = 0
        for (partition, lane), log in self._topic.lanes().items():
            removed = self._topic.partitions[partition].removals.lanes[lane]
            position = removed.floor
            if group is not None:
                state = group.cursors[partition].lanes[lane]
                position = max(position, state.next)
                size += state.unfinished * log.size_bytes // max(1, log.end - log.start)
            size += log.bytes_from(position)
        return size

    def _make_room(self, count: int, incoming: int) -> None:
        settings = self._topic.settings
        if settings.backlog_messages_max is not None:
            excess = self.messages() + count - settings.backlog_messages_max
            if excess > 0:
                self._free(excess, count, "backlog_messages_max", settings.backlog_messages_max)
        if settings.backlog_bytes_max is not None:
            while (excess := self.size_bytes() + incoming - settings.backlog_bytes_max) > 0:
                average = max(1, self.size_bytes() // max(1, self.messages()))
                self._free(-(-excess // average), count, "backlog_bytes_max", settings.backlog_bytes_max)

    def _free(self, excess: int, incoming: int, setting: str, limit: int) -> None:
        """Drop the oldest messages that nobody has had yet, or refuse the new ones.

        More than the limit at once never fit: then nothing is dropped for them in vain.
        """
        if self._topic.settings.backlog_policy == "drop_oldest" and incoming <= limit:
            dropped = sum([self._drop(group, excess) for group in self._groups()])
            if dropped:
                self._dropped.add(dropped)
                logger.warning(
                    "dropped %d messages of %s for newer ones",
                    dropped,
                    self._topic.name,
                    extra={"topic": self._topic.name, "messages": dropped},
                )
                return
        self._refused.add(incoming)
        raise Overloaded(self._topic.name, setting=setting, limit=limit)

    def _drop(self, group: Group | None, excess: int) -> int:
        heads = []
        for (partition, lane), log in self._topic.lanes().items():
            removed = self._topic.partitions[partition].removals.lanes[lane].floor
            position = removed if group is None else group.cursors[partition].lanes[lane].next
            position = max(position, log.start)
            if position < log.end:
                heads.append((_time_at(log, position), partition, lane, position, log.end))
        left = excess
        for _, partition, lane, position, end in sorted(heads):
            count = min(left, end - position)
            if group is None:
                self._topic.partitions[partition].removals.raise_floor(lane, position + count)
            else:
                group.cursors[partition].drop_to(lane, position + count)
            left -= count
            if not left:
                break
        return excess - left


def _time_at(log: Log, offset: int) -> int:
    frame = next(log.frames(offset), None)
    return 0 if frame is None else frame.header.append_time
