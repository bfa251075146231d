"""A topic, or all topics of a pattern, of a cluster as one group sees it: a `QueueBackend`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from quivermq.backend import QueueBackend
from quivermq.cluster.awaiting import Awaiting
from quivermq.cluster.looking import perform_on
from quivermq.cluster.places import Place
from quivermq.cluster.routing import WideRouting, note_puts
from quivermq.cluster.taking import ShardTaking
from quivermq.errors import InvalidRequest, QuiverError, TopicNotFound, Unavailable
from quivermq.frame import Wanted, parse_header
from quivermq.model.checks import Moment, Period
from quivermq.model.deliveries import Delivery, Held
from quivermq.model.lanes import Priority
from quivermq.model.messages import Message, Put, StoredMessage
from quivermq.model.names import Scope, check_group_name
from quivermq.model.operations import QueueOperation, Settle, Settled, Tokens, WaitForMessages
from quivermq.settings import Durability

if TYPE_CHECKING:
    from quivermq.cluster.backend import ClusterBackend

T = TypeVar("T")


class ClusterQueue:
    """Made by `ClusterBackend.queue`. Thread-safe."""

    def __init__(self, backend: "ClusterBackend", topic: str, group: str) -> None:
        check_group_name(group)
        self.scope = Scope(topic)
        self.topic = topic
        self.group = group
        self.backend = backend
        self._queues: dict[int, QueueBackend] = {}
        self._prompts: dict[int, QueueBackend] = {}
        self._routing = WideRouting(backend.steady_clock)
        self._awaiting = Awaiting(self._wait_at)
        backend.opened(self._awaiting)
        self._taking = ShardTaking(
            self.place, self.at, self._prompt_at, self._awaiting, backend.clock, backend.check_open
        )

    def place(self) -> Place:
        """The shards of the topic; of a pattern, all of them, because it may be of any topic."""
        return (
            self.backend.places.of(self.topic) if self.scope.pattern is None else self.backend.places.all()
        )

    def at(self, shard: int) -> QueueBackend:
        """The same queue in one shard."""
        queue = self._queues.get(shard)
        if queue is None:
            queue = self.backend.shards.backend(shard).queue(self.topic, self.group)
            self._queues[shard] = queue
        return queue

    def _prompt_at(self, shard: int) -> QueueBackend:
        queue = self._prompts.get(shard)
        if queue is None:
            queue = self.backend.shards.prompt(shard).queue(self.topic, self.group)
            self._prompts[shard] = queue
        return queue

    def _wait_at(self, shard: int, seconds: float) -> bool:
        return self.at(shard).perform(WaitForMessages(seconds))

    # In.

    def put(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        priority: Priority,
        ttl: Period | None,
        delay: Period | None,
        deliver_at: Moment | None,
        dedup_id: str | None,
        timestamp: Moment | None,
        partition: int | None,
        dedup_window: Period | None,
        durability: Durability | None,
    ) -> Put:
        message = Message(
            value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
            dedup_window,
        )  # fmt: skip

        def put(place: Place) -> Put:
            shard = place[0] if len(place) == 1 else place[self._index_of(message, len(place))]
            return self.at(shard).put(*message, durability)

        self.scope.check_single("put into")
        return self._routed(put)

    def _index_of(self, message: Message, spread: int) -> int:
        """Which shard of a wide topic a message goes to: the one of its partition."""
        info = self.backend.topics.remembered(self.topic)
        # Before it is hashed: what is wrong with it is said as everywhere.
        batch = self._routing.rules(info).check_many([message])
        number = batch.item(batch.partitions, 0)
        key, dedup_id = batch.item(batch.keys, 0), batch.item(batch.dedup_ids, 0)
        if number is None:
            if key is None and dedup_id is None:
                return self._routing.turn(spread)
            number = self._routing.router(info).wide_partition_of(key, dedup_id)
        return number % spread

    def put_many(self, messages: list[bytes | Message], durability: Durability | None) -> Sequence[Put]:
        results: list[Put | None] = [None] * len(messages)
        left: Sequence[int] = range(len(messages))

        def put_many(place: Place) -> Sequence[Put]:
            nonlocal left
            # When this is done once more, what a shard has taken is not put again.
            chosen = messages if len(left) == len(messages) else [messages[index] for index in left]
            if len(place) == 1 and chosen is messages:
                return self.at(place[0]).put_many(messages, durability)
            dealt = self._routing.deal(chosen, self.backend.topics.remembered(self.topic), len(place))
            calls = [partial(self.at(place[index]).put_many, part, durability) for index, _, part in dealt]
            outcomes = self.backend.together.outcomes(calls)
            note_puts(results, left, dealt, outcomes)
            left = [index for index in left if results[index] is None]
            if failure := next((each for each in outcomes if isinstance(each, QuiverError)), None):
                raise failure
            return [put for put in results if put is not None]

        self.scope.check_single("put into")
        return self._routed(put_many)

    def put_frame(
        self, frame: bytes, partition: int | None, priority: Priority, durability: Durability | None
    ) -> Put:
        def put_frame(place: Place) -> Put:
            if partition is None:
                index = 0 if len(place) == 1 or _has_producer(frame) else self._routing.turn(len(place))
            else:
                index = partition % len(place)
            return self.at(place[index]).put_frame(frame, partition, priority, durability)

        self.scope.check_single("put into")
        return self._routed(put_frame)

    def _routed(self, act: Callable[[Place], T]) -> T:
        """Do it where the topic is, all of which is there.

        Once more, when somebody has altered it, made it anew or made it wide since it was looked at: what
        belongs elsewhere was refused, and nothing is stored.
        """
        place = self.backend.topics.ensure(self.topic)
        if len(place) == 1:
            try:
                return act(place)
            except InvalidRequest:
                if self.backend.places.refreshed(self.topic) == place:
                    raise
        else:
            try:
                return act(place)
            except (InvalidRequest, TopicNotFound):
                before = self.backend.topics.remembered(self.topic)
                self.backend.topics.forget(self.topic)
                again = self.backend.places.refreshed(self.topic)
                if again == place and self.backend.topics.remembered(self.topic) == before:
                    raise
        return act(self.backend.topics.ensure(self.topic))

    # Out.

    def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens,
        pop: bool = False,
    ) -> list[Delivery]:
        return self._taking.take(count, timeout, lease, tokens, pop)

    def release_taken(self, tokens: Tokens, retries: int = 0) -> None:
        if tokens:
            self._everywhere(lambda shard: self.at(shard).release_taken(list(tokens), retries))

    def _everywhere(self, act: Callable[[int], object]) -> None:
        self.backend.together.of_each(self.place(), act)

    def settle(self, settle: Settle, held: Sequence[Held]) -> Settled:
        """Each message where its partition is."""
        by_shard: dict[int, list[Held]] = {}
        for lease in held:
            self.scope.check_includes(lease.topic)
            by_shard.setdefault(self.backend.places.of_partition(lease.topic, lease.partition), []).append(
                lease
            )
        if len(by_shard) == 1:
            [(shard, leases)] = by_shard.items()
            return self.at(shard).settle(settle, leases)
        calls = [partial(self.at(shard).settle, settle, leases) for shard, leases in by_shard.items()]
        outcomes = self.backend.together.outcomes(calls)
        return _settled_together(outcomes, list(by_shard.values()))

    # The log.

    def read(
        self,
        partition: int,
        start: int | None,
        limit: int,
        priority: Priority,
        wanted: Wanted,
    ) -> list[StoredMessage]:
        place = self.place()
        return self.at(place[partition % len(place)]).read(partition, start, limit, priority, wanted)

    def perform(self, operation: QueueOperation[T]) -> T:
        place = self.place()
        if len(place) == 1:
            return self.at(place[0]).perform(operation)
        return perform_on(self, place, operation)


def _has_producer(frame: object) -> bool:
    try:
        return isinstance(frame, bytes) and bool(parse_header(frame).producer_id)
    except QuiverError:
        # What is wrong with it, the shard says.
        return True


def _settled_together(outcomes: Sequence[Settled | QuiverError], held: Sequence[Sequence[Held]]) -> Settled:
    """What all shards say. Raises Unavailable when none of them could be asked."""
    late: list[str] = []
    failure: QuiverError | None = None
    errors = [outcome for outcome in outcomes if isinstance(outcome, QuiverError)]
    if len(errors) == len(outcomes):
        raise next((error for error in errors if isinstance(error, Unavailable)), errors[0])
    for outcome, leases in zip(outcomes, held, strict=True):
        if isinstance(outcome, QuiverError):
            failure = failure or outcome
            late += [receipt for lease in leases for receipt in lease.receipts()]
        else:
            failure = failure or outcome.failure
            late += outcome.late
    return Settled(late, failure)
