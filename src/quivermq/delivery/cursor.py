"""The position of one group in one partition: what it hands out, and what becomes of it.

Every change is in the journal before anybody is told of it: first the record is appended, under the
lock, then the state changes, and outside of the lock the caller waits until the record is as durable as
the topic asks for. Whoever crashes in between has promised nothing.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice, repeat

from quivermq.clock import Clock
from quivermq.delivery import journal
from quivermq.delivery.adoption import (
    Progress,
    adopted_record,
    check_progress,
    is_there,
    leased_by_attempt,
)
from quivermq.delivery.burial import Graves, bury
from quivermq.delivery.dead_letters import Origin, Verdict
from quivermq.delivery.deadlines import Deadlines
from quivermq.delivery.delivery import Taken, message_count
from quivermq.delivery.fresh import Fresh, fresh_messages, fresh_slices, messages_at
from quivermq.delivery.journal import Replay
from quivermq.delivery.lease import Lease, Receipt
from quivermq.delivery.meter import DeliveryMeter
from quivermq.delivery.order import KeyOrder, Place
from quivermq.delivery.recovery import line_up, recover
from quivermq.delivery.retry import Retry, backoff_us, is_last
from quivermq.delivery.state import LaneState
from quivermq.delivery.unfinished import Unfinished, unfinished_after
from quivermq.errors import Closing, DiskRefused, InvalidRequest, LeaseExpired, QuiverError
from quivermq.frame import Record
from quivermq.log import Log
from quivermq.topic.incoming import seconds_us
from quivermq.topic.names import is_dead_letter_topic
from quivermq.topic.offsets import merged, offsets_of, runs
from quivermq.topic.partition import LANES, Partition
from quivermq.topic.settings import TopicSettings
from quivermq.topic.state_log import StateLog, parts

logger = logging.getLogger(__name__)

# More than ever wait at a bell.
EVERYBODY = 2**31

# How long to wait before a dead letter that could not be written is tried again.
_BURIAL_RETRY_US = 1_000_000
# Of messages that are handed out one by one, every so many'th tells its age.
_AGE_SAMPLED = 16

Claim = tuple[int, int]  # An offset and the token of its lease.


class Cursor:
    """What a group has had of a partition. Thread-safe."""

    def __init__(
        self,
        group: str,
        partition: Partition,
        log: StateLog,
        settings: TopicSettings,
        *,
        clock: Clock,
        graves: Callable[[bool], Graves | None],
        meter: DeliveryMeter,
        on_ready: Callable[[int], None],
    ) -> None:
        self.group = group
        self.topic = partition.topic
        self.partition = partition.number
        self.settings = settings
        self._partition = partition
        self._journal = log
        self._clock = clock
        self._graves = graves
        self._meter = meter
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_gone = False
        self._keeps_dead = is_dead_letter_topic(self.topic)
        self._owed = b""
        # Burials that may or may not have reached the dead letters, by transfer.
        self._open_burials: dict[int, bytes] = {}
        # How often the end of one message gave another one its turn.
        self.freed = 0
        self.lanes = [LaneState() for _ in LANES]
        recover(self.lanes, log, partition, graves(False))
        self._deadlines = Deadlines(self.lanes)
        for lane, state in enumerate(self.lanes):
            for lease, offsets in state.leases_by_identity():
                self._deadlines.watch(lane, lease, offsets)
        self._order: KeyOrder | None = None
        self._build_order()

    @property
    def meter(self) -> DeliveryMeter:
        """What was counted so far: the same for all partitions of the topic."""
        return self._meter

    # Handing out.

    @property
    def has_one_lane(self) -> bool:
        """Whether nobody has used any priority but the normal one."""
        high, _, low = self._partition.logs
        return high is None and low is None

    def ready(self, lane: int, now_us: int) -> int:
        """About how many messages a lane could give now."""
        state, log = self.lanes[lane], self._partition.logs[lane]
        if log is None:
            return 0
        with self._lock:
            if self._deadlines.is_due(now_us):
                self._expire(now_us)
            fresh = max(0, log.end - max(state.next, log.start))
            due = state.next_ready()
        return fresh + (len(state.ready) if due is not None and due <= now_us else 0)

    def take(
        self, lane: int, count: int, lease_us: int, *, pop: bool = False, whole: bool = False
    ) -> list[Taken]:
        """Lease up to `count` messages of a lane, those that failed before first.

        With `pop` they are finished at once, and nobody has to settle them. With `whole` they come as parts
        of frames wherever nothing has to be asked of each.
        """
        with self._lock:
            self._check_open()
            now_us = self._clock.now_us()
            if self._deadlines.is_due(now_us):
                self._expire(now_us)
            state, log = self.lanes[lane], self._partition.logs[lane]
            if log is None:
                return []
            if count == 1 and self._is_plain(state, lane):
                return [self._hand_out_next(state, lane, now_us, lease_us, pop)]
            taken: list[Taken] = []
            if whole and self._is_fresh_only(state, lane, now_us):
                taken, end = self._hand_out_slices(state, log, lane, count, now_us + lease_us, pop)
            if not taken:
                batches, end = self._take(state, log, lane, count, now_us, lease_us, pop)
                taken = [Taken(self, lane, lease, records) for lease, records in batches]
        if end:
            self._sync(end)
        return taken

    def _take(
        self, state: LaneState, log: Log, lane: int, count: int, now_us: int, lease_us: int, pop: bool
    ) -> tuple[list[tuple[Lease, list[Record]]], int]:
        """Batches of messages, and the end of the journal that has them.

        Passing over a message may make another one of its key ready, so that has to be looked at, too.
        """
        while True:
            taken = state.take_ready(count, now_us) if state.ready else []
            try:
                batches, end = self._hand_out(state, log, lane, count, now_us, lease_us, taken, pop)
            except BaseException:
                state.put_back(taken)
                state.forget_ahead()
                if self._order is not None:
                    self._build_order()
                raise
            if batches or not taken:
                return batches, end

    def _is_plain(self, state: LaneState, lane: int) -> bool:
        """Whether the next message is in memory, and nothing has to be asked before it is handed out."""
        return (
            state.place < len(state.ahead)
            and not state.ready
            and not state.tried
            and not state.has_conditions
            and self._order is None
            and not self._partition.removals.lanes[lane]
            and self.settings.durability != "fsync"
        )

    def _hand_out_next(self, state: LaneState, lane: int, now_us: int, lease_us: int, pop: bool) -> Taken:
        """What `_hand_out` does, for a single message of the plainest kind: the hot path of `get`."""
        deadline = now_us + lease_us
        place = state.place + 1
        record = state.ahead[place - 1]
        offset = record.offset
        next_offset = offset + 1 if place < len(state.ahead) else state.ahead_end
        lease = Lease(1, deadline)
        if pop:
            self._append(journal.moved(lane, next_offset))
        else:
            self._append(journal.granted_one(lane, next_offset, lease.token, deadline, offset))
        state.place, state.next = place, next_offset
        if not pop:
            state.leases[offset] = lease
            self._deadlines.watch(lane, lease, (offset,))
        if self._journal.wants_snapshot:
            self._keep_short()
        self._meter.delivered.add(1)
        if not offset % _AGE_SAMPLED:
            self._meter.age.observe(max(0, now_us - record.timestamp) / 1_000_000)
        return Taken(self, lane, lease, [record])

    def _is_fresh_only(self, state: LaneState, lane: int, now_us: int) -> bool:
        """Whether nothing is due again, and no message has to be looked at before it is handed out."""
        due = state.next_ready()
        is_nothing_due = (due is None or due > now_us) and not state.tried
        return is_nothing_due and self._order is None and not self._partition.removals.lanes[lane]

    def _hand_out_slices(
        self, state: LaneState, log: Log, lane: int, count: int, deadline: int, pop: bool
    ) -> tuple[list[Taken], int]:
        """Hand out what nobody had, without a look at each message, if that is possible."""
        slices, next_offset = fresh_slices(state, log, count)
        if not slices:
            return [], 0
        lease = Lease(1, deadline)
        flat = merged((start, end) for _, start, end in slices)
        note = journal.moved(lane, next_offset) if pop else journal.granted(lane, next_offset, lease, flat)
        end = self._append(note)
        state.go_to(next_offset)
        taken = Taken(self, lane, lease, [], slices)
        if not pop:
            offsets = list(offsets_of(flat))
            state.grant(lease, offsets)
            self._deadlines.watch(lane, lease, offsets)
        self._keep_short()
        self._meter.delivered.add(message_count([taken]))
        age_us = self._clock.now_us() - slices[0].frame.header.timestamp_min
        self._meter.age.observe(max(0, age_us) / 1_000_000)
        return [taken], end

    def _hand_out(
        self,
        state: LaneState,
        log: Log,
        lane: int,
        count: int,
        now_us: int,
        lease_us: int,
        taken: list[tuple[int, Retry]],
        pop: bool,
    ) -> tuple[list[tuple[Lease, list[Record]]], int]:
        deadline = now_us + lease_us
        batches: list[tuple[Lease, list[Record]]] = []
        gone: list[int] = []
        expired: list[tuple[int, int]] = []
        if taken:
            batches, gone, expired = self._again(log, lane, taken, now_us, deadline)
            again = [record.offset for _, records in batches for record in records]
            count -= len(again)
            if pop:
                gone += again
        fresh = fresh_messages(
            state, log, count, now_us, self._partition.removals.lanes[lane], self._order, lane
        )
        if fresh.records:
            batches += leased_by_attempt(fresh.records, state.tried, deadline)
        expired += [(offset, state.tried.get(offset, 0)) for offset in fresh.expired]
        end = self._note(state, lane, batches, gone, expired, fresh, pop, now_us)
        for _, records in batches:
            self._meter.delivered.add(len(records))
            self._meter.age.observe(max(0, now_us - records[0].timestamp) / 1_000_000)
        if expired:
            self._drop_expired(lane, expired, now_us)
        return batches, end

    def _again(
        self, log: Log, lane: int, taken: list[tuple[int, Retry]], now_us: int, deadline: int
    ) -> tuple[list[tuple[Lease, list[Record]]], list[int], list[tuple[int, int]]]:
        """The messages of an earlier attempt, those that are gone, and those that expired meanwhile."""
        removed = self._partition.removals.lanes[lane]
        by_attempt: dict[int, list[Record]] = {}
        gone: list[int] = []
        expired: list[tuple[int, int]] = []
        records = {record.offset: record for record in messages_at(log, {offset for offset, _ in taken})}
        for offset, retry in taken:
            record = records.get(offset)
            if record is None or offset in removed:
                gone.append(offset)
            elif record.expires_at is not None and record.expires_at <= now_us:
                expired.append((offset, retry.attempt))
            else:
                attempts = retry.attempt or self.lanes[lane].tried.get(offset, 0)
                by_attempt.setdefault(attempts + 1, []).append(record)
        batches = [(Lease(attempt, deadline), records) for attempt, records in by_attempt.items()]
        return batches, gone, expired

    def _note(
        self,
        state: LaneState,
        lane: int,
        batches: list[tuple[Lease, list[Record]]],
        gone: list[int],
        expired: list[tuple[int, int]],
        fresh: Fresh,
        pop: bool,
        now_us: int,
    ) -> int:
        """Journal what is handed out, change the state, and return the end of the journal."""
        changes: list[bytes] = []
        leased: list[tuple[Lease, Sequence[int]]] = []
        for lease, records in batches:
            first, last = records[0].offset, records[-1].offset
            offsets: Sequence[int]
            # Only fresh messages are sorted; others come in the order in which they are due.
            if records is fresh.records and last - first + 1 == len(records):
                offsets, flat = range(first, last + 1), [first, last + 1]
            else:
                offsets = [record.offset for record in records]
                flat = runs(offsets)
            leased.append((lease, offsets))
            if not pop:
                changes.append(journal.granted(lane, fresh.next, lease, flat))
        if fresh.held:
            changes.append(journal.waiting(lane, Retry(0, 0), runs(fresh.held)))
        if self._buries_expired and expired:
            changes += [journal.waiting(lane, Retry(attempt, 0), [o, o + 1]) for o, attempt in expired]
        else:
            gone += [offset for offset, _ in expired if offset in state.retries]
        if gone:
            changes.append(journal.finished(lane, runs(gone)))
        if changes or leased:
            if pop or not leased:
                changes.append(journal.moved(lane, fresh.next))
            end = self._append(b"".join(changes))
        else:
            end = 0
        state.next = fresh.next
        state.place = fresh.place
        for offset in fresh.held:
            state.wait(offset, Retry(0, 0), is_its_turn=False)
        if state.tried:
            for offset in (offset for _, offsets in leased for offset in offsets):
                state.tried.pop(offset, None)
        for lease, offsets in leased:
            if pop:
                self._leave(lane, offsets)
                continue
            for offset in offsets if lease.attempt > 1 or state.retries else ():
                state.retries.pop(offset, None)
            state.grant(lease, offsets)
            self._deadlines.watch(lane, lease, offsets)
        if gone:
            self._finish(lane, gone)
        if self._buries_expired:
            # Until they are dead letters, which may take more than one attempt.
            for offset, attempt in expired:
                state.wait(offset, Retry(attempt, now_us + _BURIAL_RETRY_US))
        self._keep_short()
        return end

    @property
    def _buries_expired(self) -> bool:
        return self.settings.dead_letter_expired and not self._keeps_dead

    def _drop_expired(self, lane: int, expired: list[tuple[int, int]], now_us: int) -> None:
        self._meter.expired.add(len(expired))
        if not self._buries_expired:
            self._leave(lane, [offset for offset, _ in expired])
            return
        verdicts = {offset: Verdict(attempt, "expired") for offset, attempt in expired}
        try:
            self._bury(lane, verdicts, now_us)
        except QuiverError as error:
            # They wait, and are found expired again.
            logger.error("dead letters of %s wait: %s", self._journal.name, error)

    # Settling.

    def ack_one(self, lane: int, offset: int, token: int) -> None:
        """A message is done with. Raises LeaseExpired."""
        with self._lock:
            self._check_holds(lane, [(offset, token)])
            state = self.lanes[lane]
            lease = state.leases.get(offset)
            if lease is None or lease.token != token or lease.deadline <= self._clock.now_us():
                self._meter.refused.add(1)
                raise self._refusal(lane, [(offset, token)])
            end = self._append(journal.finished_one(lane, offset))
            del state.leases[offset]
            if self._order is not None:
                self._leave(lane, (offset,))
            self._deadlines.sweep()
        self._meter.acked.add(1)
        self._sync(end)

    def ack_batch(self, lane: int, token: int, offsets: list[int]) -> bool:
        """Messages of one lease are done with, if it holds for all of them; otherwise nothing is done."""
        with self._lock:
            if self._is_gone:
                return False
            self._check_open()
            state = self.lanes[lane]
            held = list(map(state.leases.get, offsets))
            lease = held[0]
            if lease is None or lease.token != token or lease.deadline <= self._clock.now_us():
                return False
            if held.count(lease) < len(held):
                return False
            first, behind = offsets[0], offsets[-1] + 1
            is_run = behind - first == len(offsets) and offsets == list(range(first, behind))
            if not is_run and len(set(offsets)) < len(offsets):
                return False
            end = self._append(journal.finished(lane, (first, behind) if is_run else runs(offsets)))
            deque(map(state.leases.pop, offsets), maxlen=0)
            self._leave(lane, offsets)
            self._deadlines.sweep()
        self._meter.acked.add(len(offsets))
        self._sync(end)
        return True

    def ack(self, lane: int, claims: Sequence[Claim]) -> list[Claim]:
        """Messages are done with. Returns the claims that are no longer valid."""
        with self._lock:
            offsets, refused = self._valid(lane, claims)
            if not offsets:
                return refused
            record = journal.finished(lane, runs(offsets))
            end = self._append(record)
            self._finish(lane, offsets)
            self._deadlines.sweep()
        self._meter.acked.add(len(offsets))
        self._sync(end)
        return refused

    def nack(
        self,
        lane: int,
        claims: Sequence[Claim],
        delay: float | None,
        reason: str | None,
        error: str | None,
        *,
        raises: bool = True,
    ) -> list[Claim]:
        """Messages failed: they wait for their next attempt, or become dead letters after the last."""
        _check_texts(reason, error)
        delay_us = None if delay is None else seconds_us("delay", delay, lowest=0)
        with self._lock:
            offsets, refused = self._valid(lane, claims)
            now_us = self._clock.now_us()
            state, settings = self.lanes[lane], self.settings
            doomed: dict[int, Verdict] = {}
            waits: dict[Retry, list[int]] = {}
            for offset in offsets:
                attempt = state.leases[offset].attempt
                if not self._keeps_dead and is_last(attempt, settings):
                    doomed[offset] = Verdict(attempt, reason or "attempts", error or "")
                else:
                    wait_us = backoff_us(attempt, settings) if delay_us is None else delay_us
                    waits.setdefault(Retry(attempt, now_us + wait_us), []).append(offset)
            end = self._wait(lane, waits) if waits else 0
            if doomed:
                self._bury(lane, doomed, now_us)
        if waits:
            # Also for one that is not due yet: whoever waits has to know when to look again.
            self._on_ready(len(offsets))
        self._meter.nacked.add(len(offsets))
        self._sync(end)
        if refused and raises:
            raise self._refusal(lane, refused)
        return refused

    def reject(
        self,
        lane: int,
        claims: Sequence[Claim],
        reason: str | None,
        error: str | None,
        *,
        raises: bool = True,
    ) -> list[Claim]:
        """Messages can never succeed: they become dead letters."""
        _check_texts(reason, error)
        if self._keeps_dead:
            raise InvalidRequest(f"{self.topic} holds dead letters already: ack the message, or redrive it")
        with self._lock:
            offsets, refused = self._valid(lane, claims)
            leases = self.lanes[lane].leases
            verdicts = {o: Verdict(leases[o].attempt, reason or "rejected", error or "") for o in offsets}
            if verdicts:
                self._bury(lane, verdicts, self._clock.now_us())
        if refused and raises:
            raise self._refusal(lane, refused)
        return refused

    def extend(
        self, lane: int, claims: Sequence[Claim], seconds: float, *, raises: bool = True
    ) -> list[Claim]:
        """Leases end so many seconds from now."""
        lease_us = seconds_us("the lease", seconds, lowest=0.001)
        with self._lock:
            offsets, refused = self._valid(lane, claims)
            deadline = self._clock.now_us() + lease_us
            state = self.lanes[lane]
            end = 0
            if offsets:
                leases = [_prolonged(state.leases[offset], deadline) for offset in offsets]
                record = b"".join(
                    journal.extended(lane, lease, (offset, offset + 1))
                    for offset, lease in zip(offsets, leases, strict=True)
                )
                end = self._append(record)
                self._deadlines.sweep()
                for offset, lease in zip(offsets, leases, strict=True):
                    state.leases[offset] = lease
                    self._deadlines.watch(lane, lease, (offset,))
        self._sync(end)
        if refused and raises:
            raise self._refusal(lane, refused)
        return refused

    def seek(self, lane: int, position: int) -> None:
        """Let everything from a position on be pending, and everything before it done."""
        self.wait_durable(self.place(lane, position))

    def place(self, lane: int, position: int) -> int:
        """As `seek`, but return what to wait for: so many lanes can be moved before anybody waits."""
        with self._lock:
            self._check_open()
            state = self.lanes[lane]
            if state.is_at(position):
                # Whoever brought it here may not be durable yet.
                return self._journal.log.end
            end = self._append(journal.sought(lane, position))
            state.seek(position)
            if self._order is not None:
                self._build_order()
            self._keep_short()
        self._on_ready(EVERYBODY)
        return end

    def adopt(self, lane: int, progress: Progress, expected: Progress | None) -> bool:
        """Take over how far another queue came with messages that were imported from it.

        With a position, only where the group has never been, or still is exactly where `expected` says;
        False tells that it is elsewhere. Raises InvalidRequest, OffsetOutOfRange.
        """
        with self._lock:
            self._check_open()
            state, log = self.lanes[lane], self._partition.logs[lane]
            check_progress(progress, log)
            if progress.position is not None:
                if is_there(state, progress):
                    # Whoever brought it here may not be durable yet.
                    self._sync(self._journal.log.end)
                    return True
                if not is_there(state, expected):
                    return False
            adopted = adopted_record(lane, state, progress, self._clock.now_us())
            end = self._append(adopted) if adopted else 0
            if adopted:
                Replay(self.lanes).apply_record(adopted)
                state.forget_ahead()
                state.forget_tried()
                self._build_order()
                self._keep_short()
        self._on_ready(EVERYBODY)
        self._sync(end)
        return True

    def wait_durable(self, end: int) -> None:
        """Return once what `place` wrote is as durable as the topic asks for."""
        self._sync(end)

    # Time.

    def expire(self, now_us: int) -> None:
        """Let go of the leases that have run out, and wake somebody for what is due by now."""
        with self._lock:
            if not self._is_closed and self._deadlines.is_due(now_us):
                self._expire(now_us)
            due = [time for state in self.lanes if (time := state.next_ready()) is not None]
        if due and min(due) <= now_us:
            self._on_ready(1)

    def has_overdue(self, now_us: int) -> bool:
        """Whether a lease is over, and nobody has looked yet."""
        if not self._deadlines.is_due(now_us):
            return False
        with self._lock:
            return self._deadlines.has_due(now_us)

    def next_event(self) -> int | None:
        """When something here becomes ready by time alone: a lease that runs out, a retry that is due."""
        with self._lock:
            times = [self._deadlines.next, *(state.next_ready() for state in self.lanes)]
        return min((time for time in times if time is not None), default=None)

    def _expire(self, now_us: int) -> None:
        released = 0
        doomed: dict[int, dict[int, Verdict]] = {}
        for lane, lease, offsets in self._deadlines.take_due(now_us):
            self._meter.leases_expired.add(len(offsets))
            if not self._keeps_dead and is_last(lease.attempt, self.settings):
                verdict = Verdict(lease.attempt, "lease_expired")
                doomed.setdefault(lane, {}).update(dict.fromkeys(offsets, verdict))
                # Until the dead letter is written: it may take more than one attempt.
                self._deadlines.watch(lane, lease, offsets, now_us + _BURIAL_RETRY_US)
                continue
            for offset in offsets:
                is_its_turn = self._is_first(lane, offset)
                self.lanes[lane].wait(offset, Retry(lease.attempt, lease.deadline), is_its_turn=is_its_turn)
            released += len(offsets)
        for lane, verdicts in doomed.items():
            try:
                self._bury(lane, verdicts, now_us)
            except QuiverError as error:
                logger.error("dead letters of %s wait: %s", self._journal.name, error)
        if released:
            self._on_ready(released)

    # State.

    def configure(self, settings: TopicSettings) -> None:
        """Go on with other settings."""
        with self._lock:
            self.settings = settings
            if (settings.ordering == "key") != (self._order is not None):
                self._build_order()

    def floors(self) -> list[int]:
        """For each lane, the first offset that is not finished."""
        with self._lock:
            return [state.floor for state in self.lanes]

    def positions(self) -> list[int | None]:
        """For each lane the same, or None where the group has never been."""
        with self._lock:
            return [state.floor if state.has_position else None for state in self.lanes]

    def counts(self) -> list[tuple[int, int, int]]:
        """For each lane: pending, in flight, waiting for another attempt or for their turn."""
        with self._lock:
            return [
                (
                    removed.missing_between(max(state.next, log.start), log.end) if log else 0,
                    len(state.leases),
                    len(state.retries),
                )
                for state, log, removed in zip(
                    self.lanes, self._partition.logs, self._partition.removals.lanes, strict=True
                )
            ]

    def in_flight(self, limit: int) -> list[tuple[int, int, Lease]]:
        """The first messages that somebody has, each with its lane, its offset and its lease."""
        with self._lock:
            held = (
                (lane, offset, lease)
                for lane, state in enumerate(self.lanes)
                for offset, lease in state.leases.items()
            )
            return list(islice(held, limit))

    def unfinished(self, lane: int, now_us: int, after: int, limit: int) -> list[Unfinished]:
        """What was handed out of a lane, or waits, and is not finished: the first ones behind an offset."""
        state = self.lanes[lane]
        with self._lock:
            # No more than copied: whoever takes and settles messages waits for this.
            leases, retries = state.leases.copy(), state.retries.copy()
        return unfinished_after(leases, retries, now_us, after, limit)

    def drop_to(self, lane: int, offset: int) -> None:
        """Never hand out what lies before an offset and has not been handed out yet."""
        with self._lock:
            state, log = self.lanes[lane], self._partition.logs[lane]
            if state.next < offset:
                # A group that has no position here yet begins where the log does, and still has none.
                if state.has_position or (log is not None and offset > log.start):
                    self._append(journal.moved(lane, offset))
                    state.next = offset
                state.forget_ahead()

    def read_anew(self, lane: int) -> None:
        """Forget what was read ahead: the log has other frames there now."""
        with self._lock:
            self.lanes[lane].forget_ahead()

    def compact(self) -> int:
        """Put a snapshot in place of the journal. Returns how many bytes that freed."""
        with self._lock:
            self._check_open()
            self._pay()
            return self._journal.snapshot(self._snapshot())

    def close(self, *, is_gone: bool = False) -> None:
        """Hand nothing out any more. With `is_gone` it was deleted, and no lease holds any more."""
        with self._lock:
            self._is_closed = True
            self._is_gone = is_gone

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closing(f"group {self.group} of {self.topic} was closed or deleted")

    def _check_holds(self, lane: int, claims: Sequence[Claim]) -> None:
        """Before anything is settled: what was deleted is nobody's any more."""
        if self._is_gone:
            raise self._refusal(lane, claims)
        self._check_open()

    def _sync(self, end: int) -> None:
        if end and self.settings.durability == "fsync":
            self._journal.sync(end)

    def _valid(self, lane: int, claims: Sequence[Claim]) -> tuple[list[int], list[Claim]]:
        """The offsets of the claims that hold, and the claims that do not."""
        self._check_holds(lane, claims)
        leases, now_us = self.lanes[lane].leases, self._clock.now_us()
        found = list(map(leases.get, [offset for offset, _ in claims]))
        first = found[0] if found else None
        if (
            first is not None
            and first.deadline > now_us
            and found.count(first) == len(found)
            and all(token == first.token for _, token in claims)
        ):
            offsets = [offset for offset, _ in claims]
            if len(set(offsets)) == len(offsets):
                return offsets, []
        valid: dict[int, None] = {}
        refused: list[Claim] = []
        for claim, lease in zip(claims, found, strict=True):
            if lease is None or lease.token != claim[1] or lease.deadline <= now_us:
                refused.append(claim)
            else:
                valid[claim[0]] = None
        self._meter.refused.add(len(refused))
        return list(valid), refused

    def _refusal(self, lane: int, claims: Sequence[Claim]) -> LeaseExpired:
        receipts = [Receipt(self.topic, self.partition, lane, offset, token) for offset, token in claims]
        return LeaseExpired(receipts=list(map(str, receipts)))

    def _wait(self, lane: int, waits: dict[Retry, list[int]]) -> int:
        record = b"".join(journal.waiting(lane, retry, runs(offsets)) for retry, offsets in waits.items())
        end = self._append(record)
        state = self.lanes[lane]
        self._deadlines.sweep()
        for retry, offsets in waits.items():
            for offset in offsets:
                state.wait(offset, retry, is_its_turn=self._is_first(lane, offset))
        return end

    def _is_first(self, lane: int, offset: int) -> bool:
        return self._order is None or self._order.is_first(Place(lane, offset))

    def _finish(self, lane: int, offsets: Sequence[int]) -> None:
        state = self.lanes[lane]
        if state.retries:
            state.finish(offsets)
        else:
            deque(map(state.leases.pop, offsets, repeat(None)), maxlen=0)
        if self._order is not None:
            self._leave(lane, offsets)

    def _leave(self, lane: int, offsets: Iterable[int]) -> None:
        """Let the next message of each key have its turn."""
        if self._order is None:
            return
        for offset in offsets:
            turn = self._order.leave(Place(lane, offset))
            if turn is not None and (waits := self.lanes[turn.lane].retries.get(turn.offset)) is not None:
                self.lanes[turn.lane].wait(turn.offset, waits)
                self.freed += 1
                self._on_ready(1)

    def _build_order(self) -> None:
        if self.settings.ordering == "key":
            self._order = line_up(self.lanes, self._partition)
        else:
            self._order = None
            for state in self.lanes:
                state.rebuild_ready()

    def _bury(self, lane: int, verdicts: dict[int, Verdict], now_us: int) -> None:
        origin = Origin(self.topic, self.partition, lane, self.group)
        log = self._partition.log(lane)
        self._pay()
        graves = self._graves(True)
        assert graves is not None, "they were to be made"
        burials = bury(log, self._journal, graves, origin, verdicts, now_us, self._open_burials)
        for offsets in burials:
            # They are dead letters now, also when there is no room for the note of it.
            self._owed += journal.finished(lane, runs(offsets))
            self._finish(lane, offsets)
            with suppress(DiskRefused):
                self._pay()
            self._meter.buried.add(len(offsets))
            logger.warning(
                "dead letters of %s: %d more",
                self.topic,
                len(offsets),
                extra={
                    "topic": self.topic,
                    "partition": self.partition,
                    "group": self.group,
                    "offsets": offsets[:100],
                },
            )

    def _pay(self) -> None:
        """Write down what is done already. Until then nothing else may be written.

        When the process dies before, the intent of the burial in the journal leads to the dead letters.
        """
        if self._owed:
            self._journal.sync(self._journal.append(self._owed))
            self._owed = b""

    def _append(self, record: bytes) -> int:
        if self._owed:
            self._pay()
        return self._journal.append(record, self.settings.durability)

    def _keep_short(self) -> None:
        if self._journal.wants_snapshot:
            self._journal.try_snapshot(self._snapshot())

    def _snapshot(self) -> Iterable[bytes]:
        return parts([*journal.snapshot(self.lanes), *self._open_burials.values()])


def _prolonged(lease: Lease, deadline: int) -> Lease:
    return Lease(lease.attempt, deadline, lease.token, lease.owner)


def _check_texts(*texts: object) -> None:
    for text in texts:
        if text is not None and not isinstance(text, str):
            raise InvalidRequest(f"a reason and an error are texts, not a {type(text).__name__}")
