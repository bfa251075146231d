"""What a consumer has read ahead and how far it is, lane by lane. Guarded by the consumer's lock."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from quivermq.client.consuming.calls import Page, partition_of
from quivermq.group.assignment import TopicPartition
from quivermq.model.lanes import PRIORITIES, Lane
from quivermq.model.messages import StoredMessage


class Wish(NamedTuple):
    """Where to fetch from. After a seek to the same offset it is another one."""

    offset: int
    version: int


class Tenure(NamedTuple):
    """A partition from when it was taken over until it is given up. Taken over again it is another one."""

    partition: TopicPartition
    number: int


class Reading:
    """The partitions that a consumer has: what was fetched, handed out, and finished."""

    def __init__(self) -> None:
        # Where the next fetch begins; changed by a seek, which whoever fetches notices by the version.
        self._fetched: dict[Lane, int] = {}
        self._versions: dict[Lane, int] = {}
        self._ready: dict[TopicPartition, deque[StoredMessage]] = {}
        self._tenures: dict[TopicPartition, int] = {}
        self._tenure_count = 0
        # The first offset that was not handed out, and the first that is not finished.
        self._positions: dict[Lane, int] = {}
        self._finished: dict[Lane, int] = {}
        self._committed: dict[Lane, int] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._ready)

    def add(
        self,
        partition: TopicPartition,
        positions: Mapping[Lane, int],
        committed: Mapping[Lane, int],
    ) -> Tenure:
        """Begin with a partition. A lane that nobody has used yet begins at its beginning.

        Where the group begins, but the broker has not `committed` anything, is for the next commit.
        """
        self._ready[partition] = deque()
        self._tenure_count += 1
        self._tenures[partition] = self._tenure_count
        for priority in PRIORITIES:
            lane = Lane(*partition, priority)
            self._begin(lane, positions.get(lane, 0))
            if lane in committed:
                self._committed[lane] = committed[lane]
        return Tenure(partition, self._tenure_count)

    def has(self, tenure: Tenure) -> bool:
        """Whether the partition was not given up since then."""
        return self._tenures.get(tenure.partition) == tenure.number

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Give partitions up."""
        for partition in partitions:
            self._ready.pop(partition, None)
            self._tenures.pop(partition, None)
            for priority in PRIORITIES:
                lane = Lane(*partition, priority)
                for table in (self._fetched, self._positions, self._finished, self._committed):
                    table.pop(lane, None)

    def seek(self, lane: Lane, offset: int) -> None:
        """Go on from elsewhere. Raises KeyError for a partition that is not here."""
        self._begin(lane, offset)
        kept = [message for message in self._ready[partition_of(lane)] if message.priority != lane.priority]
        self._ready[partition_of(lane)] = deque(kept)

    def _begin(self, lane: Lane, offset: int) -> None:
        self._fetched[lane] = self._positions[lane] = self._finished[lane] = offset
        self._versions[lane] = self._versions.get(lane, 0) + 1

    # Fetching.

    def wish(self, lane: Lane) -> Wish | None:
        """Where to fetch from; None for a partition that was given up."""
        offset = self._fetched.get(lane)
        return None if offset is None else Wish(offset, self._versions[lane])

    def fetched(self, lane: Lane, wish: Wish, page: Page) -> bool:
        """Take in what was fetched, unless that is not wished for any more. Whether there is more now."""
        if self.wish(lane) != wish:
            return False
        self._fetched[lane] = page.next
        ready = self._ready[partition_of(lane)]
        ready += page.messages
        if not any(message.priority == lane.priority for message in ready):
            # Everything before is handed out, and what lies between has expired or was removed.
            self._positions[lane] = page.next
        return bool(page.messages)

    def ahead(self, partition: TopicPartition) -> int:
        """How many messages of a partition were read ahead."""
        return len(self._ready.get(partition, ()))

    # Handing out.

    def take(self, count: int) -> list[StoredMessage]:
        """The next messages, of one partition after the other in turn."""
        taken: list[StoredMessage] = []
        for partition in list(self._ready):
            ready = self._ready[partition]
            if ready and len(taken) < count:
                # Behind the others: next time it is their turn.
                self._ready[partition] = self._ready.pop(partition)
            while ready and len(taken) < count:
                message = ready.popleft()
                self._positions[Lane(*message[:3])] = message.offset + 1
                taken.append(message)
        return taken

    def finish(self) -> None:
        """Everything that was handed out is finished."""
        self._finished.update(self._positions)

    def position(self, lane: Lane) -> int:
        """The next offset that is handed out. Raises KeyError."""
        return self._positions[lane]

    def uncommitted(self, partitions: Iterable[TopicPartition] | None = None) -> dict[Lane, int]:
        """What is finished and the broker does not know of."""
        wanted = self.partitions if partitions is None else frozenset(partitions)
        return {
            lane: offset
            for lane, offset in self._finished.items()
            if partition_of(lane) in wanted and self._committed.get(lane) != offset
        }

    def committed(self, positions: Mapping[Lane, int]) -> None:
        """The broker knows."""
        self._committed.update({lane: o for lane, o in positions.items() if lane in self._finished})
