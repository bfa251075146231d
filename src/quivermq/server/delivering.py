"""What receiving and settling share: queues at hand, receives that were taken back, deliveries as bytes.

Libraries want the leases in one small JSON, then frames. Where a lease holds a frame of the log, or most of
it, that frame is sent as it is stored, and nobody looked at a message in it. The layout is in
docs/reference/http.md.
"""

import threading
from collections.abc import Iterable
from itertools import islice
from operator import sub
from struct import Struct
from typing import Annotated

import msgspec
from msgspec import Meta

from quivermq.delivery.taken import Slice, Taken
from quivermq.disk import Buffer
from quivermq.engine import EngineQueue
from quivermq.frame import Frame, encode_records, part_of
from quivermq.model.lanes import PRIORITIES
from quivermq.model.messages import Record
from quivermq.model.names import is_pattern
from quivermq.server.broker import Broker
from quivermq.server.http import Request, encode_json
from quivermq.topic.offsets import merged, runs

Token = Annotated[str, Meta(pattern="^(0|[1-9a-f][0-9a-f]{0,15})$")]

_QUEUES_MAX = 10_000
# A receive that is overtaken by as many others finds its token forgotten, and its leases run out.
_WITHDRAWN_MAX = 10_000

_length = Struct("<I")


class Queues:
    """The queues that were asked for lately, by topic, or pattern, and group."""

    def __init__(self, broker: Broker) -> None:
        self._engine = broker.engine
        self._queues: dict[tuple[str, str], EngineQueue] = {}

    def get(self, topic: str, group: str) -> EngineQueue:
        """The queue of a topic and a group. Raises InvalidName."""
        queue = self._queues.get((topic, group))
        if queue is None:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues.clear()
            queue = self._queues[topic, group] = self._engine.queue(topic, group)
        return queue


def queue_of(broker: Broker, request: Request) -> EngineQueue:
    """The queue that a path names."""
    return broker.part(Queues).get(request.params["topic"], request.params["group"])


def may_wait(broker: Broker, queue: EngineQueue) -> bool:
    """Whether taking or settling messages has to go to a thread, because the disk may be waited for."""
    if is_pattern(queue.topic) or broker.may_wait_for_disk(queue.topic):
        return True
    return broker.engine.inspection.may_wait(queue.topic, queue.group)


class Withdrawn:
    """The tokens of receives that were taken back last: their client is not there for the answer any more.

    The one that takes a receive back may overtake it, because they come on two connections. So its token is
    remembered, and nothing is handed out with it from then on. Thread-safe.
    """

    def __init__(self, _: Broker) -> None:
        self._lock = threading.Lock()
        # By topic, or pattern, and group.
        self._tokens: dict[tuple[str, str, int], None] = {}

    def has(self, queue: EngineQueue, token: int | None) -> bool:
        """Whether nothing is to be handed out with this token."""
        return token is not None and (queue.topic, queue.group, token) in self._tokens

    def take_back(self, queue: EngineQueue, token: int) -> None:
        """Hand nothing out with a token any more, and give back what was. Raises what keeps it from it."""
        # In this order: whatever is leased behind the search sees that it was taken back.
        with self._lock:
            self._tokens[queue.topic, queue.group, token] = None
            while len(self._tokens) > _WITHDRAWN_MAX:
                del self._tokens[next(iter(self._tokens))]
        queue.release_taken([token])


class LeaseOut(msgspec.Struct):
    """Messages that were handed out together."""

    topic: str
    partition: int
    priority: str
    attempt: int
    is_last_attempt: bool
    token: str
    deadline: int
    runs: list[int]
    frames: int


class LeasesOut(msgspec.Struct):
    """What stands before the frames."""

    leases: list[LeaseOut]


def packed(taken: Iterable[Taken], now_us: int) -> bytes:
    """All messages of a receive as one body."""
    leases: list[LeaseOut] = []
    buffers: list[Buffer] = []
    for cursor, lane, lease, records, slices in taken:
        if slices:
            flat, frames = merged((start, end) for _, start, end in slices), list(map(_cut, slices))
        else:
            flat, frames = _encoded(records, now_us)
        for frame in frames:
            buffers += frame.buffers()
        leases.append(
            LeaseOut(
                cursor.topic,
                cursor.partition,
                PRIORITIES[lane],
                lease.attempt,
                cursor.is_last_attempt(lease),
                f"{lease.token:x}",
                lease.deadline,
                flat,
                len(frames),
            )
        )
    head = encode_json(LeasesOut(leases))
    padding = bytes(-(_length.size + len(head)) % 8)
    return b"".join([_length.pack(len(head)), head, padding, *buffers])


def _cut(part: Slice) -> Frame:
    """The frame as it is stored, unless most of it is not delivered now."""
    frame, start, end = part
    is_most = 2 * (end - start) >= len(frame)
    return frame if is_most else part_of(frame, start, end)


def _encoded(records: list[Record], now_us: int) -> tuple[list[int], list[Frame]]:
    """Messages that had to be looked at one by one, as ranges of offsets and a frame for each."""
    ordered = sorted(records)
    flat = runs(record.offset for record in ordered)
    lengths = map(sub, flat[1::2], flat[::2])
    parts = iter(ordered)
    return flat, [encode_records(list(islice(parts, length)), now_us) for length in lengths]
