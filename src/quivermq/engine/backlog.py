"""Back-pressure: how much of a topic is unfinished, and what happens when that is too much."""

import logging
import threading
from collections.abc import Sequence
from heapq import heappop, heappush

from quivermq.errors import Overloaded
from quivermq.frame import Frame
from quivermq.group.group import Group
from quivermq.log import Log
from quivermq.metrics import Metrics
from quivermq.model.messages import Put
from quivermq.settings import Durability
from quivermq.topic.incoming import Batch
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

    @property
    def turned_away(self) -> tuple[int, int]:
        """How many messages were refused, and how many dropped, since the queue was opened."""
        return int(self._refused.value), int(self._dropped.value)

    def put(self, batch: Batch, durability: Durability | None) -> Sequence[Put]:
        """Store messages if the limits of the topic have room for them. Raises Overloaded."""
        topic = self._topic
        if not batch.values:
            return []
        if not topic.settings.is_bounded:
            return topic.put_batch(batch, durability)
        word = topic.settings.durability if durability is None else durability
        # Looked at and stored in one step, or many producers at once would go over the limit together.
        with self._lock:
            new = batch
            if batch.dedup_ids is not None:
                new = batch.chosen(
                    [i for i, each in enumerate(batch.dedup_ids) if not topic.is_known(each)]
                )
            self._make_room(len(new), new.bytes)
            puts = topic.put_batch(batch, "os" if word == "fsync" else word)
        if word == "fsync":
            topic.sync(puts)
        return puts

    def put_frame(
        self, frame: Frame, partition: int | None, priority: str, durability: Durability | None
    ) -> Put:
        """Store a frame likewise."""
        topic = self._topic
        if not topic.settings.is_bounded:
            return topic.put_frame(frame, partition=partition, priority=priority, durability=durability)
        word = topic.settings.durability if durability is None else durability
        early: Durability = "os" if word == "fsync" else word
        with self._lock:
            if not topic.is_known_batch(frame, partition, priority):
                self._make_room(len(frame), frame.header.raw_bytes)
            put = topic.put_frame(frame, partition=partition, priority=priority, durability=early)
        if word == "fsync" and put.offset is not None:
            topic.sync([put._replace(offset=put.offset + len(frame) - 1)])
        return put

    def _groups(self) -> list[Group | None]:
        return list(self.groups.values()) or [None]

    def _unfinished(self, group: Group | None) -> int:
        return self._topic.messages if group is None else group.counts().unfinished

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

    def _held_bytes_in_archive(self, group: Group) -> int:
        """What `_unfinished_bytes` counts although only the archive has it."""
        held = {number: cursor.unfinished_in_archive() for number, cursor in group.cursors.items()}
        return sum(
            held[partition][lane] * log.size_bytes // max(1, log.end - log.start)
            for (partition, lane), log in self._topic.lanes().items()
            if partition in held
        )

    def _make_room(self, count: int, size: int) -> None:
        """Let so many messages in, of so many bytes, or refuse them.

        What only the archive has takes no room. It is told apart where it matters, because each message
        that is held has to be looked at for that.
        """
        settings = self._topic.settings
        if settings.backlog_messages_max is not None:
            delayed = self._topic.delays.pending
            limit = settings.own_share_of(settings.backlog_messages_max)
            over = {g: delayed + self._unfinished(g) + count - limit for g in self._groups()}
            for group, excess in over.items():
                if excess > 0 and group is not None:
                    over[group] -= group.in_archive()
            self._free(over, count, "backlog_messages_max", limit)
        if settings.backlog_bytes_max is not None:
            limit = settings.own_share_of(settings.backlog_bytes_max)
            over = {}
            for group in self._groups():
                there = self._topic.delays.size_bytes + self._unfinished_bytes(group)
                if there + size > limit and group is not None:
                    there -= self._held_bytes_in_archive(group)
                average = max(1, there // max(1, self._topic.delays.pending + self._unfinished(group)))
                over[group] = -(-(there + size - limit) // average)
            self._free(over, count, "backlog_bytes_max", limit)

    def _free(self, over: dict[Group | None, int], incoming: int, setting: str, limit: int) -> None:
        """Drop, of each group that is over the limit, the oldest messages that it has not had yet.

        When that is not enough, or not wanted, nothing is dropped, and the new ones are refused.
        """
        over = {group: excess for group, excess in over.items() if excess > 0}
        if not over:
            return
        is_droppable = all(excess <= self._fresh(group) for group, excess in over.items())
        if self._topic.settings.backlog_policy != "drop_oldest" or not is_droppable:
            self._refused.add(incoming)
            raise Overloaded(self._topic.name, setting=setting, limit=limit)
        # Of who has not come further than the archive, that is older still, and goes as well.
        dropped = sum(excess + self._drop(group, excess) for group, excess in over.items())
        self._dropped.add(dropped)
        logger.warning(
            "dropped %d messages of %s for newer ones",
            dropped,
            self._topic.name,
            extra={"topic": self._topic.name, "messages": dropped},
        )

    def _fresh(self, group: Group | None) -> int:
        return self._unfinished(None) if group is None else group.fresh_in_log()

    def _drop(self, group: Group | None, excess: int) -> int:
        """Drop frame after frame, the oldest of all lanes first.

        Returns how many messages that only the archive has went with them.
        """
        ends: dict[tuple[int, int], int] = {}
        heads: list[tuple[int, int, int, int, int]] = []
        for (partition, lane), log in self._topic.lanes().items():
            removed = self._topic.partitions[partition].removals.lanes[lane].floor
            position = removed if group is None else group.cursors[partition].lanes[lane].next
            _add_head(heads, log, partition, lane, max(position, log.start))
        while excess and heads:
            _, partition, lane, position, end = heappop(heads)
            dropped = min(excess, end - position)
            excess -= dropped
            ends[partition, lane] = position + dropped
            _add_head(
                heads, self._topic.partitions[partition].log(lane), partition, lane, position + dropped
            )
        archived = 0
        for (partition, lane), end in ends.items():
            if group is None:
                self._topic.partitions[partition].removals.raise_floor(lane, end)
            else:
                archived += group.cursors[partition].fresh_in_archive()[lane]
                group.cursors[partition].drop_to(lane, end)
        return archived


def _add_head(
    heads: list[tuple[int, int, int, int, int]], log: Log, partition: int, lane: int, position: int
) -> None:
    """Note when the message at a position came in, and where its frame ends."""
    frame = next(log.frames(position), None) if position < log.end else None
    if frame is not None:
        heappush(heads, (frame.header.append_time, partition, lane, position, frame.header.end_offset))
