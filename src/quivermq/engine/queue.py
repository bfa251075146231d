"""A topic, or all topics of a pattern, as one group sees it: what producers and consumers hold in hand."""

from _thread import get_ident
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, cast

from quivermq.delivery.arriving import expecting, received
from quivermq.delivery.delivery import Taken, deliveries_of, is_stop, release_unsettled
from quivermq.delivery.settlement import Settlement
from quivermq.engine.dead_letters import NO_EDITS, Filter, dead_letters, discard, redrive
from quivermq.engine.editing import check_edits
from quivermq.engine.hosted import Hosted
from quivermq.engine.in_flight import check_after, in_flight
from quivermq.engine.looking import check_timeline, stored_message, unseen, wanted_of
from quivermq.engine.positions import positions
from quivermq.engine.reasons import count_reasons
from quivermq.engine.scope import Scope
from quivermq.engine.settling import Settling, claims_of, offsets_held
from quivermq.engine.tables import Page, Part, check_arrow, is_behind, table_of
from quivermq.engine.taking import Taking
from quivermq.engine.waiting import Watch
from quivermq.errors import (
    Closing,
    GroupNotFound,
    InvalidRequest,
    LeaseExpired,
    OffsetOutOfRange,
)
from quivermq.frame import OFFSET_MAX
from quivermq.group.group import Group
from quivermq.log.entries import check_durability
from quivermq.model.checks import Moment, Period, check_ids, check_limit, check_number, seconds_of
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason
from quivermq.model.deliveries import Delivery, Held, InFlight
from quivermq.model.lanes import lane_number
from quivermq.model.messages import Message, Put, Scheduled, StoredMessage, Timeline, plain_put
from quivermq.model.names import check_group_name
from quivermq.model.stats import QueueStats, stats_of_all
from quivermq.reentry import entered, finish, inside, postponed, refusal
from quivermq.settings import Durability
from quivermq.topic.draft import Draft

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from quivermq.engine.engine import Engine

_MANY_MAX = 100_000
_READ_MAX = 100_000
PREFETCH_MAX = 10_000
# What can be walked over, and is a single message all the same.
_ONE_ALONE = (bytes, bytearray, memoryview, str)

# What settles messages takes a delivery, its receipt, or many of either.
Settled = Delivery | str | Held | Iterable[Delivery | str | Held]


class Queue:
    """Made by `Engine.queue`. Cheap to make, and to share between threads."""

    def __init__(self, engine: "Engine", topic: str, group: str) -> None:
        check_group_name(group)
        self._scope = Scope(engine, topic)
        self.topic = topic
        self.group = group
        self._engine = engine
        self._taking = Taking(engine, self._scope, group)
        self._hosted: Hosted | None = None

    def __repr__(self) -> str:
        return f"<Queue {self.topic}, group {self.group}>"

    # In.

    def put(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        priority: str = "normal",
        ttl: Period | None = None,
        delay: Period | None = None,
        deliver_at: Moment | None = None,
        dedup_id: str | None = None,
        dedup_window: Period | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        durability: Durability | None = None,
    ) -> Put:
        """Put one message into the topic, which is created when it is new.

        `ttl`, `delay` and `dedup_window` are seconds; `deliver_at` and `timestamp` are unix microseconds as
        an int, unix seconds as a float, or a datetime. Raises InvalidRequest, Overloaded or DiskRefused:
        then nothing was stored. Raises StorageFailed: then only opening the queue again tells.
        """
        thread = get_ident()
        if thread in inside:
            raise refusal()
        try:
            # Written out, as `entered` has it, because this is the hottest call of all.
            inside.add(thread)
            if durability is not None:
                check_durability(durability)
            hosted = self._hosted
            if hosted is None or hosted.is_gone:
                message = Message(
                    value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
                    dedup_window,
                )  # fmt: skip
                hosted = self._target(lambda topic: topic.checked([message]))
            if (
                dedup_id is None
                and delay is None
                and deliver_at is None
                and dedup_window is None
                and hosted.is_simple
            ):
                number, offset = hosted.put_one(
                    value, key, headers, priority, ttl, timestamp, partition, durability
                )
                return plain_put((hosted.name, number, priority, offset, False, None))
            message = Message(
                value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
                dedup_window,
            )  # fmt: skip
            return hosted.put_many([message], durability)[0]
        finally:
            inside.discard(thread)
            if postponed:
                finish(thread)

    def put_many(
        self, messages: Iterable[bytes | Message], *, durability: Durability | None = None
    ) -> Sequence[Put]:
        """Put messages, each just a value or a `Message`. All are checked before the first is stored.

        Those of one lane are stored together or not at all. When the disk is full or fails between two
        lanes, the first one keeps its messages: give them a `dedup_id` to put them all again safely.
        """
        listed = messages if type(messages) is list else _listed(messages)
        thread = get_ident()
        if thread in inside:
            raise refusal()
        try:
            # Written out, as in `put`.
            inside.add(thread)
            if durability is not None:
                check_durability(durability)
            hosted = self._hosted
            if hosted is None or hosted.is_gone:
                hosted = self._target(lambda topic: topic.checked(listed))
            return hosted.put_many(listed, durability)
        finally:
            inside.discard(thread)
            if postponed:
                finish(thread)

    @entered
    def put_frame(
        self,
        frame: bytes,
        *,
        partition: int | None = None,
        priority: str = "normal",
        durability: Durability | None = None,
    ) -> Put:
        """Append a frame that was encoded elsewhere, as it is; the put is that of its first message.

        One whose producer sent it before, as its id, epoch and sequence tell, is answered with the offset
        it got then, and `duplicate`. Raises InvalidFrame, Conflict.
        """
        if durability is not None:
            check_durability(durability)
        lane_number(priority)
        hosted = self._target(lambda topic: topic.check_frame(frame, partition))
        return hosted.put_frame(frame, partition, priority, durability)

    def sync(self) -> None:
        """Return once everything that was put into the topic so far is on stable storage.

        Whatever its durability. Raises TopicNotFound, StorageFailed.
        """
        self._scope.one("sync").sync()

    # Out.

    def get(self, timeout: Period | None = 0, *, lease: Period | None = None) -> Delivery | None:
        """The next message, or None when there is none within `timeout` seconds; None waits for ever.

        It is leased for `lease` seconds, by default as the topic is set: settle it before that.
        """
        box = expecting()
        try:
            return self._next(timeout, lease)
        except BaseException:
            self._give_back(box)
            raise
        finally:
            received()

    def _next(self, timeout: Period | None, lease: Period | None) -> Delivery | None:
        is_plain = timeout == 0 and lease is None
        found = self._taking.take_now(1, None, False) if is_plain else self._taking.take(1, timeout, lease)
        if not found:
            return None
        cursor, lane, held, [record], _ = found[0]
        return Delivery(record, held, cursor, lane)

    def _give_back(self, box: list[Taken]) -> None:
        """Release what was on its way to a call that has failed."""
        received()
        if box:
            release_unsettled(self, deliveries_of(box))

    def get_many(
        self, count: int, timeout: Period | None = 0, *, lease: Period | None = None
    ) -> list[Delivery]:
        """Up to `count` messages: what is there, or, when nothing is, what comes first."""
        box = expecting()
        try:
            return deliveries_of(self.take(count, timeout, lease=lease))
        except BaseException:
            self._give_back(box)
            raise
        finally:
            received()

    def take(
        self,
        count: int,
        timeout: Period | None = 0,
        *,
        lease: Period | None = None,
        pop: bool = False,
        whole: bool = False,
        owner: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """As `get_many`, but batches of one lease each, for those who hand them on to `owner`.

        With `pop` they are acknowledged at once. With `whole` they come as parts of frames, wherever no
        message has to be asked for itself. All leases have the `token`, a random number of its own, with
        which `release_taken` gives them back.
        """
        check_number("count", count, 1, _MANY_MAX)
        return self._taking.take(count, timeout, lease, pop=pop, whole=whole, owner=owner, token=token)

    def pop(self, timeout: Period | None = 0) -> Delivery | None:
        """The next message, acknowledged at once: if it is lost from here on, it is lost."""
        found = deliveries_of(self.take(1, timeout, pop=True))
        if not found:
            return None
        found[0].is_settled = True
        return found[0]

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call `wake` once, from whatever thread, when there may be something to get.

        For those who wait without a thread. They look once more behind this call, and leave the watch.
        """
        self._engine.check_open()
        return self._taking.watch(wake)

    @contextmanager
    def process(
        self, timeout: Period | None = 0, *, lease: Period | None = None
    ) -> Iterator[Delivery | None]:
        """The next message for a `with` block: acked at its end, nacked when it raises.

        Released when the block is left because the program, a task or a generator ends: by
        KeyboardInterrupt, SystemExit, CancelledError or GeneratorExit. The lease is renewed as long as the
        block runs. None when there is no message.
        """
        message, is_given, box = None, False, expecting()
        try:
            message = self._next(timeout, lease)
            if message is not None:
                self._hold(message, lease)
            is_given = True
            received()
            yield message
        except BaseException as error:
            if message is None:
                self._give_back(box)
                raise
            if is_stop(error) or not is_given:
                release_unsettled(self, [message], partial(self._let_go, [message]))
                raise
            self._let_go([message])
            # What the handler raised is what the caller has to know.
            with suppress(LeaseExpired, Closing):
                if not message.is_settled:
                    message.nack(reason=type(error).__name__, error=_told(error))
            raise
        if message is None:
            return
        try:
            self._let_go([message])
            if not message.is_settled:
                message.ack()
        except BaseException as error:
            if is_stop(error):
                # Nobody knows whether it was acked: if not, it comes again, and no attempt counts.
                release_unsettled(self, [message], partial(self._let_go, [message]))
            raise

    def stream(
        self, timeout: Period | None = None, *, lease: Period | None = None, prefetch: int = 1
    ) -> Generator[Delivery, None, None]:
        """Message after message; each is acked when the next one is asked for.

        Ends when none comes for `timeout` seconds, by default never. With `prefetch`, so many are taken at
        a time, and their leases renewed until it is their turn. What the loop did not get past is released.
        An error that leaves the loop looks like a `break` from in here: use `process` in the loop, or
        `nack`, for what may fail.
        """
        check_number("prefetch", prefetch, 1, PREFETCH_MAX)
        return self._stream(timeout, lease, prefetch)

    def _stream(
        self, timeout: Period | None, lease: Period | None, prefetch: int
    ) -> Generator[Delivery, None, None]:
        held: list[Delivery] = []
        while True:
            passed, box = 0, expecting()
            try:
                held = []
                held = deliveries_of(self.take(prefetch, timeout, lease=lease))
                received()
                if not held:
                    return
                for message in held:
                    self._hold(message, lease)
                for message in held:
                    yield message
                    self._let_go([message])
                    if not message.is_settled:
                        message.ack()
                    passed += 1
            except BaseException:
                left = held[passed:] if held else deliveries_of(box)
                received()
                release_unsettled(self, left, partial(self._let_go, left))
                raise

    # Settling.

    def ack(self, held: Settled) -> None:
        """Messages are done with.

        Those whose receipts still hold are settled in any case; then LeaseExpired tells of the others.
        """
        if isinstance(held, list) and held and (self._ack_batch(held) or self._ack_runs(held)):
            return
        self._settle(held, lambda cursor, lane, claims: cursor.ack(lane, claims))

    def _ack_batch(self, held: list[Delivery | str | Held]) -> bool:
        """Acknowledge what one `get_many` returned, if that is what it is, without a look at each."""
        if set(map(type, held)) != {Delivery}:
            return False
        deliveries = cast(list[Delivery], held)
        lease = deliveries[0]._lease
        # One lease is about messages of one lane.
        if [delivery._lease for delivery in deliveries].count(lease) < len(deliveries):
            return False
        cursor, lane = deliveries[0]._settler, deliveries[0]._lane
        if not isinstance(cursor, Settlement):
            return False
        self._check_cursor(cursor)
        if not cursor.ack_batch(lane, lease.token, [delivery._record.offset for delivery in deliveries]):
            return False
        for delivery in deliveries:
            delivery.is_settled = True
        return True

    def _ack_runs(self, held: list[Delivery | str | Held]) -> bool:
        """Acknowledge all of a lease, if that is what it is."""
        if len(held) != 1 or not isinstance(run := held[0], Held):
            return False
        self._engine.check_open()
        cursor = self._cursor_of(run.topic, run.partition)
        return cursor is not None and cursor.ack_batch(run.lane, run.token, offsets_held(run))

    def nack(
        self,
        held: Settled,
        delay: Period | None = None,
        reason: str | None = None,
        *,
        error: str | None = None,
    ) -> None:
        """Messages failed and are tried again, after `delay` seconds or a growing wait."""
        self._settle(
            held,
            lambda cursor, lane, claims: cursor.nack(lane, claims, delay, reason, error, raises=False),
        )

    def release(self, held: Settled) -> None:
        """Messages are given back as if they had not been handed out: at once, and no attempt counts."""
        self._settle(held, lambda cursor, lane, claims: cursor.release(lane, claims, raises=False))

    def release_taken(self, token: int) -> None:
        """Give back whatever `take` leased with this token, and nobody has settled."""
        self._engine.check_open()
        for hosted in self._topics():
            group = hosted.groups.get(self.group)
            for cursor in () if group is None else group.cursors:
                for lane, offsets in cursor.held_by(token):
                    cursor.release(lane, [(offset, token) for offset in offsets], raises=False)

    def _topics(self) -> list[Hosted]:
        """Those that there are."""
        if self._scope.pattern is not None:
            return self._scope.all()
        hosted = self._engine.find(self.topic)
        return [] if hosted is None else [hosted]

    def reject(self, held: Settled, reason: str | None = None, *, error: str | None = None) -> None:
        """Messages can never succeed: they become dead letters at once."""
        self._settle(
            held, lambda cursor, lane, claims: cursor.reject(lane, claims, reason, error, raises=False)
        )

    def extend(self, held: Settled, seconds: Period) -> None:
        """Leases last for so many seconds from now."""
        self._settle(
            held,
            lambda cursor, lane, claims: cursor.extend(lane, claims, seconds, raises=False),
            is_final=False,
        )

    def _settle(self, held: Settled, settle: Settling, *, is_final: bool = True) -> None:
        self._engine.check_open()
        claims_of(held, self._cursor_of, self._check_cursor).settle(settle, is_final=is_final)

    # The log.

    @entered
    def seek(
        self,
        to: str | None = None,
        *,
        offset: int | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        priority: str | None = None,
    ) -> None:
        """Let the group go on from elsewhere: "earliest", "latest", an offset, or a moment.

        An offset counts in one lane, by default that of normal priority. What lies before is done with,
        also what is in flight; what lies behind is pending again, also what is only archived by now.
        Raises OffsetOutOfRange, and StorageFailed where the archive cannot be reached.
        """
        hosted = self._scope.one("seek in")
        found = positions(
            hosted.topic,
            to,
            offset=offset,
            timestamp=timestamp,
            partition=partition,
            priority=priority,
            seam=self._engine.seam if self._engine.archive.is_named else None,
        )
        group = hosted.group(self.group)
        for (number, lane), position in found.items():
            group.cursors[number].seek(lane, position)

    @entered
    def read(
        self,
        partition: int = 0,
        start: int | None = None,
        limit: int = 100,
        *,
        priority: str = "normal",
        key: bytes | None = None,
        text: bytes | None = None,
    ) -> list[StoredMessage]:
        """Messages of one lane from an offset on, by default the earliest, for looking only.

        With `key` only those that have it, and with `text` those that have these bytes, as they are
        written, in their value, their key or a header. What is archived is read from there, as if the log
        had never lost it. Where offsets are gone in between, this ends before them, and raises
        OffsetOutOfRange when it begins with them.
        """
        hosted = self._scope.one("read")
        lane = lane_number(priority)
        check_number("partition", partition, 0, hosted.settings.partitions - 1)
        check_number("limit", limit, 0, _READ_MAX)
        if start is not None:
            check_number("start", start, 0, OFFSET_MAX)
        wanted = wanted_of(key, text)
        owner = hosted.topic.partitions[partition]
        log = owner.logs[lane]
        if log is None:
            return []
        if wanted or self._engine.archive.is_named or (start is not None and start < log.start):
            seam = self._engine.seam(hosted.name, owner, lane)
            found = seam.records(seam.start if start is None else start, wanted)
        else:
            removed = owner.removals.lanes[lane]
            found = (record for record in log.records(start) if not removed or record.offset not in removed)
        return [stored_message(record, owner, lane) for record in islice(found, limit)]

    def to_arrow(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: str | None = None,
    ) -> "pa.Table":
        """Messages of the topic as a `pyarrow.Table`, with the columns that they have for Spark.

        All of them, or those of a partition, of a priority, and with offsets in [start, end), `limit` at
        most, in order of partition, priority and offset. Raises InvalidRequest without pyarrow, and
        OffsetOutOfRange for offsets that are gone.
        """
        check_arrow()
        part = Part(partition, start, end, limit, priority)
        pages = part.pages(self._scope.one("read").settings.partitions)
        try:
            page = next(pages)
            while True:
                page = pages.send(self._page(page))
        except StopIteration as stop:
            return table_of(stop.value)

    def _page(self, page: Page) -> list[StoredMessage]:
        try:
            return self.read(page.partition, page.start, page.limit, priority=page.priority)
        except OffsetOutOfRange as error:
            if is_behind(error, page):
                return []
            raise

    def to_pandas(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: str | None = None,
    ) -> "pd.DataFrame":
        """The same as a `pandas.DataFrame`. Needs pandas."""
        return self.to_arrow(partition, start, end, limit=limit, priority=priority).to_pandas()

    @entered
    def peek(self, limit: int = 1) -> list[StoredMessage]:
        """The next messages that nobody in the group has had, without taking them."""
        check_number("limit", limit, 0, _READ_MAX)
        hosted = self._scope.one("peek into")
        now_us = self._engine.clock.now_us()
        hosted.release(now_us)
        return list(islice(unseen(hosted, self.group, now_us), limit))

    # Looking after.

    @entered
    def stats(self) -> QueueStats:
        """How much there is for the group, and how far it has come."""
        self._engine.check_open()
        hosted = self._engine.find(self.topic)
        if self._scope.pattern is None:
            empty = QueueStats(self.topic, self.group)
            return empty if hosted is None else self._engine.queue_stats(hosted, self.group)
        each = [self._engine.queue_stats(hosted, self.group) for hosted in self._scope.all()]
        return stats_of_all(self.topic, self.group, each)

    @entered
    def deliveries(self, limit: int = 100, after: InFlight | None = None) -> list[InFlight]:
        """What is in flight, by topic, partition, priority and offset: who has what, and until when.

        At most `limit`; those behind `after`, which is the last one that you have.
        """
        check_number("limit", limit, 0, _READ_MAX)
        check_after(after)
        self._engine.check_open()
        found = in_flight(self._topics(), self.group, self._engine.clock.now_us(), limit, after)
        return list(islice(found, limit))

    @entered
    def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """The messages of this topic that were given up, by whichever group."""
        check_limit(limit)
        graves = self._graves()
        return [] if graves is None else dead_letters(graves, limit)

    @entered
    def dead_letter_reasons(self) -> list[DeadLetterReason]:
        """How many messages of this topic were given up for which reason, the most frequent first."""
        graves = self._graves()
        return [] if graves is None else count_reasons(graves).reasons

    @entered
    def redrive(
        self,
        filter: Filter | None = None,  # noqa: A002 - The contract's word.
        limit: int | None = None,
        ids: Collection[str] | None = None,
        edits: Mapping[str, Message] | None = None,
    ) -> int:
        """Send dead letters back to where they came from, and return how many.

        All of them, or those with these ids, and of them those that the filter wants. Each is at any time,
        also after a crash, in exactly one of the two topics. They come back as new messages at the end of
        their lane, so every group sees them. Where `edits` has a message for an id, that one's value, key
        and headers go back in place of what was given up; without `ids`, only those move.
        """
        check_limit(limit)
        _check_filter(filter)
        check_ids(ids)
        check_edits(edits)
        graves = self._graves()
        if graves is None:
            return 0
        chosen = list(edits) if edits is not None and ids is None else ids
        with graves.moving:
            return redrive(graves, filter, limit, self._engine.hosted, chosen, edits or NO_EDITS)

    @entered
    def discard(
        self,
        filter: Filter | None = None,  # noqa: A002 - As in redrive.
        limit: int | None = None,
        ids: Collection[str] | None = None,
    ) -> int:
        """Take dead letters out for good, and return how many."""
        check_limit(limit)
        _check_filter(filter)
        check_ids(ids)
        graves = self._graves()
        if graves is None:
            return 0
        with graves.moving:
            return discard(graves, filter, limit, ids)

    @entered
    def scheduled(self, limit: int | None = None) -> list[Scheduled]:
        """The delayed messages that wait, the next one first."""
        check_limit(limit)
        self._scope.check_single("ask for the delayed messages of")
        hosted = self._engine.find(self.topic)
        if hosted is None:
            return []
        hosted.release(self._engine.clock.now_us())
        return hosted.topic.delays.scheduled(limit)

    @entered
    def timeline(self, until: Moment | None = None, bins: int = 60) -> Timeline:
        """How many delayed messages are due when, in equal spans from now on, by default up to the last.

        Cheap, however many wait: what is due in some hours is counted, what is due later estimated.
        """
        end_us = check_timeline(until, bins)
        self._scope.check_single("ask for the delayed messages of")
        hosted, now_us = self._engine.find(self.topic), self._engine.clock.now_us()
        if hosted is None:
            return Timeline(now_us, max(now_us + bins, end_us or 0), [0] * bins, 0)
        hosted.release(now_us)
        return hosted.topic.delays.timeline(now_us, end_us, bins)

    @entered
    def cancel(self, scheduled_id: str) -> bool:
        """Call a delayed message off. False when it is not waiting any more, or never was."""
        self._scope.check_single("cancel in")
        return self._cancel(scheduled_id)

    def _cancel(self, scheduled_id: str) -> bool:
        hosted = self._engine.find(self.topic)
        if hosted is None or not isinstance(scheduled_id, str):
            return False
        hosted.release(self._engine.clock.now_us())
        if not hosted.topic.delays.cancel(scheduled_id):
            return False
        hosted.topic.seen.forget_scheduled(scheduled_id)
        return True

    @entered
    def cancel_many(self, scheduled_ids: Collection[str]) -> int:
        """Call delayed messages off, and return how many of them were still waiting."""
        check_ids(scheduled_ids)
        self._scope.check_single("cancel in")
        return sum(map(self._cancel, scheduled_ids))

    @entered
    def deliver_now(self, scheduled_id: str) -> bool:
        """Let a delayed message come before it is due. False when it is not waiting, or never was."""
        self._scope.check_single("deliver in")
        hosted = self._engine.find(self.topic)
        if hosted is None or not isinstance(scheduled_id, str):
            return False
        hosted.release(self._engine.clock.now_us())
        return hosted.deliver(scheduled_id)

    @entered
    def purge(self) -> int:
        """Take every message out of the topic for good, delayed ones included, and return how many.

        No group gets them any more; who has one in hand may still settle it. Dead letters stay.
        """
        hosted = self._scope.one("purge")
        hosted.release(self._engine.clock.now_us())
        return hosted.purge()

    @entered
    def pause(self) -> None:
        """Give the group nothing more of the topic until `resume`, also after a restart.

        Who waits goes on waiting, and what is in hand can be settled. Members in stream mode pause by
        themselves.
        """
        self._known_group("pause a group of").pause(True)

    @entered
    def resume(self) -> None:
        """Let a group go on that was paused."""
        self._known_group("resume a group of").pause(False)

    @entered
    def retry_now(self) -> int:
        """Let everything that failed and waits for its next attempt have it now. Returns how many."""
        return self._known_group("retry in").retry_now()

    def _known_group(self, act: str) -> Group:
        hosted = self._scope.one(act)
        group = hosted.groups.get(self.group)
        if group is None:
            raise GroupNotFound(
                f"{self.topic} has no group {self.group}: it comes to be with the first get or seek"
            )
        return group

    def _graves(self) -> Hosted | None:
        self._scope.check_single("ask for the dead letters of")
        return self._engine.dead_letters_of(self.topic)

    def _target(self, check: Callable[[Draft], object]) -> Hosted:
        """The topic that messages go to. One that is new is made only if `check` lets them in."""
        self._scope.check_single("put into")
        hosted = self._engine.find(self.topic)
        if hosted is None:
            check(self._engine.draft(self.topic))
            self._engine.check_space()
            hosted = self._engine.hosted_or_new(self.topic)
        self._hosted = hosted
        return hosted

    def _cursor_of(self, topic: str, partition: int) -> Settlement | None:
        """Who settles the messages of a partition; None where nobody can have any."""
        self._scope.check_includes(topic)
        hosted = self._engine.find(topic)
        group = None if hosted is None else hosted.groups.get(self.group)
        if group is None or not 0 <= partition < len(group.cursors):
            return None
        return group.cursors[partition].settlement

    def _check_cursor(self, cursor: Settlement) -> None:
        self._scope.check_includes(cursor.topic)
        if cursor.group != self.group:
            raise InvalidRequest(
                f"the message was delivered to group {cursor.group}, and this is {self.group}"
            )

    @entered
    def _let_go(self, messages: list[Delivery]) -> None:
        self._engine.renewer.release_all(messages)

    @entered
    def _hold(self, message: Delivery, lease: Period | None) -> None:
        if lease is None:
            lease_s = self._engine.hosted(message.topic).settings.lease_ms / 1000
        else:
            lease_s = seconds_of("lease", lease, lowest=0.001)
        self._engine.renewer.hold(message, lease_s)


def _check_filter(wanted: object) -> None:
    if wanted is not None and not callable(wanted):
        raise InvalidRequest(
            f"filter is a function that takes a dead letter, not a {type(wanted).__name__}"
        )


def _told(error: BaseException) -> str:
    """What an exception says, even one that cannot say it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as unspeakable:
        return f"{type(error).__name__}, which cannot be shown: {type(unspeakable).__name__}"


def _listed(messages: object) -> list[bytes | Message]:
    """Messages that may come from anywhere, as a list. Raises InvalidRequest for what is not many."""
    if isinstance(messages, _ONE_ALONE) or not isinstance(messages, Iterable):
        raise InvalidRequest("put_many takes a list of messages: for a single one there is put")
    return list(messages)
