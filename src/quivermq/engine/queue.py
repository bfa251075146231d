"""A topic, or all topics of a pattern, as one group sees it, in this process: a `QueueBackend`."""

from _thread import get_ident
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from random import getrandbits
from typing import TYPE_CHECKING, Any, TypeVar

from quivermq.delivery.cursor import Cursor
from quivermq.delivery.settlement import Settlement
from quivermq.delivery.taken import Taken, deliveries_of
from quivermq.engine.dead_letters import count_reasons, dead_letters, discard, redrive
from quivermq.engine.looking import in_flight, stored_message, unseen
from quivermq.engine.offsets import positions
from quivermq.engine.open_topic import OpenTopic
from quivermq.engine.retention import purge
from quivermq.engine.taking import Taking
from quivermq.engine.waiting import Watch
from quivermq.errors import Closing, GroupNotFound, LeaseExpired, QuiverError
from quivermq.frame import Wanted
from quivermq.group.group import Group
from quivermq.model import operations
from quivermq.model.checks import Moment, Period, check_partition
from quivermq.model.dead_letters import NO_EDITS, DeadLetter, DeadLetterReason, Edits, Filter
from quivermq.model.deliveries import Claim, Delivery, Held, InFlight
from quivermq.model.lanes import Priority, lane_number
from quivermq.model.messages import Message, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.names import Scope, check_group_name
from quivermq.model.operations import QueueOperation, SeekTarget, Settle, Settled, Tokens, arguments_of
from quivermq.model.stats import QueueStats, stats_of_all
from quivermq.reentry import entered, finish, inside, postponed, refusal
from quivermq.settings import Durability
from quivermq.topic.incoming import Batch, CheckedMessage
from quivermq.topic.rules import TopicRules

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine

T = TypeVar("T")


class EngineQueue:
    """Made by `Engine.queue`. Thread-safe."""

    def __init__(self, engine: "Engine", topic: str, group: str) -> None:
        check_group_name(group)
        self._scope = Scope(topic)
        self.topic = topic
        self.group = group
        self._engine = engine
        self._taking = Taking(engine, self._scope, group)
        self._open_topic: OpenTopic | None = None

    # In.

    def put(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        priority: Priority = "normal",
        ttl: Period | None = None,
        delay: Period | None = None,
        deliver_at: Moment | None = None,
        dedup_id: str | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        dedup_window: Period | None = None,
        durability: Durability | None = None,
    ) -> Put:
        thread = get_ident()
        if thread in inside:
            raise refusal()
        try:
            # Written out, as `entered` has it, because this is the hottest call of all.
            inside.add(thread)
            topic = self._open_topic
            if topic is None or topic.is_gone:
                message = self._rules().check(
                    value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
                    dedup_window,
                )  # fmt: skip
                topic = self._target()
            else:
                message = topic.topic.rules.check(
                    value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
                    dedup_window,
                )  # fmt: skip
            return topic.put_one(message, durability)
        finally:
            inside.discard(thread)
            if postponed:
                finish(thread)

    def put_many(
        self, messages: list[bytes | Message], durability: Durability | None = None
    ) -> Sequence[Put]:
        thread = get_ident()
        if thread in inside:
            raise refusal()
        try:
            # Written out, as in `put`.
            inside.add(thread)
            rules = self._rules()
            if len(messages) == 1:
                [message] = messages
                checked = rules.check(*message) if isinstance(message, Message) else rules.check(message)
                return [self._target().put_one(checked, durability)]
            batch = rules.check_many(messages)
            return self._target().put_many(batch, durability)
        finally:
            inside.discard(thread)
            if postponed:
                finish(thread)

    def check(self, message: bytes | Message) -> CheckedMessage:
        """A message as it will be stored: the proof that it was checked. Raises InvalidRequest."""
        topic = self._open_topic
        # Where the topic is open, nothing is locked for a look at its rules, so that nothing can wait.
        rules = self._find_rules() if topic is None or topic.is_gone else topic.topic.rules
        return rules.check(*message) if isinstance(message, Message) else rules.check(message)

    @entered
    def put_checked(
        self, messages: Sequence[CheckedMessage], durability: Durability | None = None
    ) -> Sequence[Put]:
        """Store messages of many callers together, each of which `check` has seen."""
        return self._target().put_many(Batch.of(messages), durability)

    @entered
    def put_frame(
        self,
        frame: bytes,
        partition: int | None = None,
        priority: str = "normal",
        durability: Durability | None = None,
        partitions: int | None = None,
    ) -> Put:
        """`partitions` is how many there were when the partition was chosen by a key."""
        rules = self._rules()
        parsed = rules.parse(frame)
        rules.check_producer(parsed.header, partition)
        if partitions is not None:
            rules.check_routed(partitions)
        return self._target().put_frame(parsed, partition, priority, durability)

    @entered
    def _find_rules(self) -> TopicRules:
        return self._rules()

    def _rules(self) -> TopicRules:
        """What the topic lets in, or would let in if it were there."""
        topic = self._open_topic
        if topic is None or topic.is_gone:
            self._engine.check_open()
            self._scope.check_single("put into")
            topic = self._open_topic = self._engine.catalog.find(self.topic)
        return self._engine.rules_of_new(self.topic) if topic is None else topic.topic.rules

    def _target(self) -> OpenTopic:
        """The topic that messages go to, which is made when it is new: so they are checked first."""
        topic = self._open_topic
        if topic is None or topic.is_gone:
            self._engine.check_open()
            topic = self._engine.catalog.find(self.topic)
            if topic is None:
                self._engine.check_space()
                topic = self._engine.catalog.get_or_create(self.topic)
            self._open_topic = topic
        return topic

    def sync(self) -> None:
        self._get_topic().sync()

    # Out.

    def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens,
        pop: bool = False,
    ) -> list[Delivery]:
        token = getrandbits(63)
        # Before anything is leased: whatever strikes from here on finds it there.
        tokens.append(token)
        if timeout == 0 and lease is None:
            found = self._taking.take_now(count, None, pop, False, None, token)
        else:
            found = self._taking.take(count, timeout, lease, pop=pop, token=token)
        if count == 1 and found:
            settler, lane, lease_held, [record], _ = found[0]
            return [Delivery(record, lease_held, settler, lane)]
        return deliveries_of(found)

    def take_batches(
        self,
        count: int,
        *,
        lease: Period | None = None,
        pop: bool = False,
        whole: bool = False,
        holder: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """What is there now, as batches of one lease each, for a broker that hands them on to `holder`.

        With `pop` they are acknowledged at once. With `whole` they come as parts of frames, wherever no
        message has to be asked for itself. All leases have the `token`, a random number of its own, with
        which `release_taken` gives them back.
        """
        return self._taking.take(count, 0, lease, pop=pop, whole=whole, holder=holder, token=token)

    def release_taken(self, tokens: Tokens, retries: int = 0) -> None:  # noqa: ARG002 - A directory is there.
        self._engine.check_open()
        for token in tokens:
            for cursor in self._cursors():
                cursor.release_token(token)

    def _cursors(self) -> list[Cursor]:
        """Those that there are."""
        groups = (topic.groups.get(self.group) for topic in self._taking.topics())
        return [cursor for group in groups if group is not None for cursor in group.cursors.values()]

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call `wake` once, from whatever thread, when there may be something to take.

        For those who wait without a thread. They look once more behind this call, and leave the watch.
        """
        self._engine.check_open()
        return self._taking.watch(wake)

    def wait_until_ready(self, seconds: Period) -> bool:
        return self._taking.wait_until_ready(seconds)

    def is_ready(self) -> bool:
        """Whether there seems to be something to take."""
        return self._taking.is_ready()

    def pass_on(self) -> None:
        """Wake somebody who waits for what is there, as whoever asked `is_ready` may not take it."""
        self._taking.pass_on()

    def lease_s(self, topic: str) -> float:
        return self._engine.catalog.get(topic).settings.lease_ms / 1000

    # Settling.

    def settle(self, settle: Settle, held: Sequence[Held]) -> Settled:
        self._engine.check_open()
        for lease in held:
            self._scope.check_includes(lease.topic)
        late: list[str] = []
        failure: QuiverError | None = None
        for lease in held:
            settlement = self._settlement_of(lease)
            try:
                if settlement is None:
                    late += lease.receipts()
                elif refused := _settled(settlement, settle, lease):
                    late += lease.receipts([offset for offset, _ in refused])
            except (Closing, LeaseExpired):
                # The topic or the group was deleted.
                late += lease.receipts()
            except QuiverError as error:
                failure = failure or error
                late += lease.receipts()
        return Settled(late, failure)

    def _settlement_of(self, lease: Held) -> Settlement | None:
        """Who settles the messages of a partition; None where nobody can have any."""
        topic = self._engine.catalog.find(lease.topic)
        group = None if topic is None else topic.groups.get(self.group)
        cursor = None if group is None else group.cursors.get(lease.partition)
        return None if cursor is None else cursor.settlement

    def perform(self, operation: QueueOperation[T]) -> T:
        answer: T = _METHODS[type(operation)](self, *arguments_of(operation))
        return answer

    # The log.

    def partitions(self) -> int:
        return self._get_topic().settings.partitions

    @entered
    def seek(self, target: SeekTarget) -> None:
        topic = self._get_topic()
        seam = self._engine.seam if self._engine.archive.is_named else None
        found = positions(topic.topic, target, seam)
        group = topic.group(self.group)
        for (number, lane), offset in found.items():
            group.cursors[number].seek(lane, offset)

    @entered
    def read(
        self, partition: int, start: int | None, limit: int, priority: Priority, wanted: Wanted
    ) -> list[StoredMessage]:
        topic = self._get_topic()
        lane = lane_number(priority)
        check_partition(partition, topic.settings)
        owner = topic.topic.partitions[partition]
        log = owner.logs[lane]
        if log is None:
            return []
        if wanted or self._engine.archive.is_named or (start is not None and start < log.start):
            seam = self._engine.seam(topic.name, owner, lane)
            found = seam.records(seam.start if start is None else start, wanted)
        else:
            removed = owner.removals.lanes[lane]
            found = (record for record in log.records(start) if not removed or record.offset not in removed)
        return [stored_message(record, owner, lane) for record in islice(found, limit)]

    @entered
    def peek(self, limit: int) -> list[StoredMessage]:
        topic = self._get_topic()
        now_us = self._engine.clock.now_us()
        topic.release(now_us)
        return list(islice(unseen(topic, self.group, now_us), limit))

    # Looking after.

    @entered
    def stats(self) -> QueueStats:
        self._engine.check_open()
        each = [self._engine.statistics.of_group(topic, self.group) for topic in self._taking.topics()]
        if self._scope.pattern is not None:
            return stats_of_all(self.topic, self.group, each)
        return each[0] if each else QueueStats(self.topic, self.group)

    @entered
    def deliveries(self, limit: int, after: InFlight | None) -> list[InFlight]:
        self._engine.check_open()
        found = in_flight(self._taking.topics(), self.group, self._engine.clock.now_us(), limit, after)
        return list(islice(found, limit))

    @entered
    def dead_letters(self, limit: int | None) -> list[DeadLetter]:
        given_up = self._dead_letter_topic()
        return [] if given_up is None else dead_letters(given_up, limit)

    @entered
    def dead_letter_reasons(self) -> list[DeadLetterReason]:
        given_up = self._dead_letter_topic()
        return [] if given_up is None else count_reasons(given_up).reasons

    @entered
    def redrive(
        self,
        wanted: Filter | None,
        limit: int | None,
        ids: Collection[str] | None,
        edits: Edits = NO_EDITS,
    ) -> int:
        given_up = self._dead_letter_topic()
        if given_up is None:
            return 0
        with given_up.moving:
            return redrive(given_up, wanted, limit, self._engine.catalog.get, ids, edits)

    @entered
    def discard(self, wanted: Filter | None, limit: int | None, ids: Collection[str] | None) -> int:
        given_up = self._dead_letter_topic()
        if given_up is None:
            return 0
        with given_up.moving:
            return discard(given_up, wanted, limit, ids)

    @entered
    def scheduled(self, limit: int | None) -> list[Scheduled]:
        topic = self._find_topic()
        return [] if topic is None else topic.topic.delays.scheduled(limit)

    @entered
    def timeline(self, until_us: int | None, bins: int) -> Timeline:
        topic, now_us = self._find_topic(), self._engine.clock.now_us()
        if topic is None:
            return Timeline.empty(now_us, until_us, bins)
        return topic.topic.delays.timeline(now_us, until_us, bins)

    @entered
    def cancel(self, scheduled_ids: Collection[str]) -> int:
        topic, cancelled = self._find_topic(), 0
        if topic is None:
            return 0
        for scheduled_id in scheduled_ids:
            if topic.topic.delays.cancel(scheduled_id):
                topic.topic.dedup.forget_scheduled(scheduled_id)
                cancelled += 1
        return cancelled

    @entered
    def deliver_now(self, scheduled_id: str) -> bool:
        topic = self._find_topic()
        return topic is not None and topic.deliver(scheduled_id)

    @entered
    def purge(self) -> int:
        topic = self._get_topic()
        topic.release(self._engine.clock.now_us())
        return purge(topic)

    @entered
    def pause(self, is_paused: bool) -> None:
        self._known_group().pause(is_paused)

    @entered
    def retry_now(self) -> int:
        return self._known_group().retry_now()

    def _get_topic(self) -> OpenTopic:
        """The topic, which has to exist. Raises TopicNotFound."""
        return self._engine.catalog.get(self.topic)

    def _find_topic(self) -> OpenTopic | None:
        """The topic, if there is one, with what is due by now in its lanes."""
        self._engine.check_open()
        topic = self._engine.catalog.find(self.topic)
        if topic is not None:
            topic.release(self._engine.clock.now_us())
        return topic

    def _dead_letter_topic(self) -> OpenTopic | None:
        """Where the dead letters of the topic lie; None while it has none."""
        self._engine.check_open()
        return self._engine.catalog.dead_letter_topic_of(self.topic)

    def _known_group(self) -> Group:
        group = self._get_topic().groups.get(self.group)
        if group is None:
            raise GroupNotFound(
                f"{self.topic} has no group {self.group}: it comes to be with the first get or seek"
            )
        return group


# What carries an operation out. The broker calls these methods itself.
_METHODS: dict[type[QueueOperation[Any]], Callable[..., Any]] = {
    operations.SyncTopic: EngineQueue.sync,
    operations.GetLeaseSeconds: EngineQueue.lease_s,
    operations.WaitForMessages: EngineQueue.wait_until_ready,
    operations.CountPartitions: EngineQueue.partitions,
    operations.Seek: EngineQueue.seek,
    operations.Peek: EngineQueue.peek,
    operations.GetQueueStats: EngineQueue.stats,
    operations.ListDeliveries: EngineQueue.deliveries,
    operations.PauseGroup: EngineQueue.pause,
    operations.RetryNow: EngineQueue.retry_now,
    operations.Purge: EngineQueue.purge,
    operations.ListDeadLetters: EngineQueue.dead_letters,
    operations.CountReasons: EngineQueue.dead_letter_reasons,
    operations.Redrive: EngineQueue.redrive,
    operations.Discard: EngineQueue.discard,
    operations.ListScheduled: EngineQueue.scheduled,
    operations.CountScheduled: EngineQueue.timeline,
    operations.Cancel: EngineQueue.cancel,
    operations.DeliverNow: EngineQueue.deliver_now,
}


def _settled(settlement: Settlement, settle: Settle, held: Held) -> list[Claim]:
    """Settle what holds of one lease, and return the claims that do not."""
    lane, token = held.lane, held.token
    if settle.act == "ack" and settlement.ack_batch(lane, token, list(held.offsets)):
        return []
    claims = [(offset, token) for offset in held.offsets]
    match settle.act:
        case "ack":
            return settlement.ack(lane, claims)
        case "nack":
            return settlement.nack(lane, claims, settle.delay, settle.reason, settle.error, raises=False)
        case "release":
            return settlement.release(lane, claims, raises=False)
        case "reject":
            return settlement.reject(lane, claims, settle.reason, settle.error, raises=False)
        case "extend":
            return settlement.extend(lane, claims, settle.seconds, raises=False)
