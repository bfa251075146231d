"""Handing messages out: which ones are next, under which lease, and the record of it in the journal."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from quivermq.delivery import journal
from quivermq.delivery.cursor_state import CursorState
from quivermq.delivery.dead_letter_transfer import DEAD_LETTER_RETRY_US, DeadLetterWriter
from quivermq.delivery.dead_letters import Verdict
from quivermq.delivery.fresh import (
    GIVEN_BYTES,
    Fresh,
    append_time_at,
    fresh_messages,
    fresh_slices,
    messages_at,
    waiting_since,
)
from quivermq.delivery.settlement import Settlement
from quivermq.delivery.state import FOR_ITS_KEY, LaneState, Wait
from quivermq.delivery.taken import Taken, message_count
from quivermq.log import Log
from quivermq.model.deliveries import Lease
from quivermq.model.messages import Record
from quivermq.topic.offsets import merged, offsets_of, runs
from quivermq.topic.partition import Partition

# Of messages that are handed out one by one, the age of every so many'th is observed.
_AGE_SAMPLED = 16

LeasedRecords = tuple[Lease, list[Record]]


class _Request(NamedTuple):
    """What a call of `take` wants, at the time of the call."""

    lane: int
    now_us: int
    deadline: int
    pop: bool
    holder: str
    token: int | None

    def lease(self, attempt: int) -> Lease:
        return Lease(attempt, self.deadline, self.token, self.holder, self.now_us)


class _Found(NamedTuple):
    """What there is for a request: messages with their leases, and what is passed over."""

    batches: list[LeasedRecords]
    gone: list[int]
    """What is finished by this: it is not in the log any more, or popped."""
    expired: list[tuple[int, int]]
    """Offsets, each with the attempts made."""
    fresh: Fresh


class LeaseGranter:
    """The part of a cursor that hands messages out: those that are due again first, then fresh ones."""

    def __init__(self, shared: CursorState, settlement: Settlement, dead_letters: DeadLetterWriter) -> None:
        """`settlement` settles what is handed out here."""
        self._shared = shared
        self._settlement = settlement
        self._dead_letters = dead_letters

    def ready(self, lane: int, now_us: int) -> int:
        """About how many messages a lane could give now."""
        shared = self._shared
        state, log = shared.lanes[lane], shared.partition.logs[lane]
        if log is None or shared.is_paused:
            return 0
        with shared.lock:
            if shared.deadlines.is_due(now_us):
                self.expire(now_us)
            fresh = max(0, log.end - shared.partition.first_known(lane, state.next))
            due = state.next_due()
        return fresh + (len(state.due_heap) if due is not None and due <= now_us else 0)

    def overdue(self, lane: int, before_us: int, now_us: int, count: int) -> tuple[int, int]:
        """When the first message of a lane came in, if before a moment, and how many did, up to `count`.

        Those that are tried again are all as old as the first of them: nobody looks at each.
        """
        shared = self._shared
        state, log = shared.lanes[lane], shared.partition.logs[lane]
        if log is None:
            return 0, 0
        with shared.lock:
            since, found = waiting_since(state, log, before_us, count)
            due = state.next_due()
            if due is not None and due <= now_us:
                came = append_time_at(state, log, state.due_heap[0][1])
                if came is not None and came <= before_us:
                    since = min(since or came, came)
                    found = min(found + len(state.due_heap), count)
        return since, found

    def take(
        self,
        lane: int,
        count: int,
        lease_us: int,
        pop: bool = False,
        whole: bool = False,
        holder: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """Lease up to `count` messages of a lane to `holder`, those that failed before first.

        With `pop` they are finished at once, and nobody has to settle them. With `whole` they come as parts
        of frames wherever nothing has to be asked of each. Leases have the `token`, or one of their own.
        """
        shared = self._shared
        with shared.lock:
            if shared.is_closed:
                shared.check_open()
            now_us = shared.clock.now_us()
            if shared.deadlines.is_due(now_us):
                self.expire(now_us)
            state, log = shared.lanes[lane], shared.partition.logs[lane]
            if log is None or shared.is_paused:
                return []
            taken: list[Taken]
            holder = holder or shared.own_name
            if count == 1 and self._is_plain(state, lane):
                taken = [self._lease_next(state, lane, now_us, lease_us, pop, holder, token)]
                if log.show is not None:
                    log.show(state.next)
                return taken
            request = _Request(lane, now_us, now_us + lease_us, pop, holder, token)
            taken = []
            # Frames of an archive have holes, so their messages are looked at.
            is_live = state.next >= log.start
            if whole and is_live and self._is_fresh_only(state, request):
                taken, end = self._lease_slices(state, log, count, request)
            if not taken:
                batches, end = self._lease_messages(state, count, request)
                taken = [Taken(self._settlement, lane, lease, records) for lease, records in batches]
            if log.show is not None and taken:
                # Some may have been read long ago, and at less than `fsync` nothing else waits for them.
                log.show(state.next)
        if end:
            shared.sync(end)
        return taken

    def expire(self, now_us: int) -> None:
        """Let go of the leases that have run out. The caller holds the lock."""
        shared = self._shared
        released = 0
        given_up: dict[int, dict[int, Verdict]] = {}
        for lane, lease, offsets in shared.deadlines.take_due(now_us):
            shared.meter.leases_expired.add(len(offsets))
            if shared.is_last(lease.attempt):
                verdict = Verdict(lease.attempt, "lease_expired")
                given_up.setdefault(lane, {}).update(dict.fromkeys(offsets, verdict))
                # Until the dead letter is written: it may take more than one attempt.
                shared.deadlines.watch(lane, lease, offsets, now_us + DEAD_LETTER_RETRY_US)
                continue
            wait = Wait(lease.attempt, lease.deadline)
            for offset in offsets:
                shared.lanes[lane].wait(offset, wait, is_its_turn=shared.is_first(lane, offset))
            released += len(offsets)
        for lane, verdicts in given_up.items():
            self._dead_letters.try_dead_letter(lane, verdicts, now_us)
        if released:
            shared.on_ready(released)

    # A single message.

    def _is_plain(self, state: LaneState, lane: int) -> bool:
        """Whether the next message is in memory, and nothing has to be asked before it is handed out."""
        shared = self._shared
        return (
            state.ahead_index < len(state.ahead)
            and not state.due_heap
            and not state.imported_attempts
            and not state.has_conditions
            and shared.order is None
            and not shared.partition.removals.lanes[lane]
            and shared.settings.durability != "fsync"
        )

    def _lease_next(
        self,
        state: LaneState,
        lane: int,
        now_us: int,
        lease_us: int,
        pop: bool,
        holder: str,
        token: int | None,
    ) -> Taken:
        """As `_lease_messages`, for a single message of the plainest kind: the hot path of `get`."""
        shared = self._shared
        deadline = now_us + lease_us
        index = state.ahead_index + 1
        record = state.ahead[index - 1]
        offset = record.offset
        next_offset = offset + 1 if index < len(state.ahead) else state.ahead_end
        lease = Lease(1, deadline, token, holder, now_us)
        taken = Taken(self._settlement, lane, lease, [record])
        if pop:
            shared.append(journal.moved(lane, next_offset))
        else:
            number = shared.holders.get(holder) or shared.holder_number(holder)
            shared.append(
                journal.granted_one(lane, next_offset, lease.token, deadline, now_us, number, offset)
            )
        state.ahead_index, state.next = index, next_offset
        if not pop:
            state.leases[offset] = lease
            shared.deadlines.watch(lane, lease, (offset,))
        if shared.journal.wants_snapshot:
            shared.keep_short()
        next(shared.meter.delivered.ones)
        if not offset % _AGE_SAMPLED:
            shared.meter.age.observe(max(0, now_us - record.timestamp) / 1_000_000)
        return taken

    # Parts of frames.

    def _is_fresh_only(self, state: LaneState, request: _Request) -> bool:
        """Whether nothing is due again, and no message has to be looked at before it is handed out."""
        shared = self._shared
        due = state.next_due()
        is_nothing_due = (due is None or due > request.now_us) and not state.imported_attempts
        return is_nothing_due and shared.order is None and not shared.partition.removals.lanes[request.lane]

    def _lease_slices(
        self, state: LaneState, log: Log, count: int, request: _Request
    ) -> tuple[list[Taken], int]:
        """Hand out what nobody had, without a look at each message, if that is possible."""
        shared, lane = self._shared, request.lane
        slices, next_offset = fresh_slices(state, log, count)
        if not slices:
            return [], 0
        lease = request.lease(1)
        taken = Taken(self._settlement, lane, lease, [], slices)
        offsets: list[int] = []
        if request.pop:
            change = journal.moved(lane, next_offset)
        else:
            flat = merged((start, end) for _, start, end in slices)
            change = journal.granted(lane, next_offset, lease, flat, shared.holder_number(request.holder))
            offsets = list(offsets_of(flat))
        end = shared.append(change)
        try:
            state.go_to(next_offset)
            state.grant(lease, offsets)
        except BaseException:
            # As in `_note`.
            state.go_to(next_offset)
            state.grant(lease, offsets)
            raise
        if offsets:
            shared.deadlines.watch(lane, lease, offsets)
        shared.keep_short()
        shared.meter.delivered.add(message_count([taken]))
        age_us = shared.clock.now_us() - slices[0].frame.header.timestamp_min
        shared.meter.age.observe(max(0, age_us) / 1_000_000)
        return [taken], end

    # Any messages.

    def _lease_messages(
        self, state: LaneState, count: int, request: _Request
    ) -> tuple[list[LeasedRecords], int]:
        """Batches of messages, and the end of the journal that has them.

        Passing over a message may make another one of its key ready, so that has to be looked at, too.
        """
        shared = self._shared
        while True:
            due = state.take_due(count, request.now_us) if state.due_heap else []
            try:
                records, taken = _as_many_as_fit(shared.partition, request.lane, due)
                found = self._find(state, count if taken is due else len(taken), request, taken, records)
                end = self._note(state, request, found)
                self._count(found, request)
            except BaseException:
                state.put_back(due)
                state.forget_ahead()
                if shared.order is not None:
                    shared.rebuild_order()
                raise
            if taken is not due:
                state.put_back(set(due).difference(taken))
            if found.batches or not taken:
                return found.batches, end

    def _find(
        self,
        state: LaneState,
        count: int,
        request: _Request,
        due: list[tuple[int, Wait]],
        records: dict[int, Record],
    ) -> _Found:
        """Up to `count` messages: those that are `due`, of which there are `records`, then fresh ones."""
        partition, lane, now_us = self._shared.partition, request.lane, request.now_us
        removed = partition.removals.lanes[lane]
        by_attempt: dict[int, list[Record]] = {}
        gone: list[int] = []
        expired: list[tuple[int, int]] = []
        for offset, wait in due:
            record = records.get(offset)
            if record is None or offset in removed:
                gone.append(offset)
            elif record.expires_at is not None and record.expires_at <= now_us:
                expired.append((offset, wait.attempt))
            else:
                attempts = wait.attempt or state.imported_attempts.get(offset, 0)
                by_attempt.setdefault(attempts + 1, []).append(record)
                count -= 1
                if request.pop:
                    gone.append(offset)
        batches = [(request.lease(attempt), again) for attempt, again in by_attempt.items()]
        fresh = fresh_messages(
            state,
            partition.readable(lane),
            count,
            now_us=now_us,
            removed=removed,
            order=self._shared.order,
            lane=lane,
        )
        if fresh.records:
            batches += _by_attempt(fresh.records, state, request)
        expired += [(offset, state.imported_attempts.get(offset, 0)) for offset in fresh.expired]
        return _Found(batches, gone, expired, fresh)

    def _note(self, state: LaneState, request: _Request, found: _Found) -> int:
        """Journal what is handed out, change the state, and return the end of the journal."""
        shared, lane = self._shared, request.lane
        batches, gone, expired, fresh = found
        changes: list[bytes] = []
        leased: list[tuple[Lease, Sequence[int]]] = []
        number = shared.holder_number(request.holder) if batches and not request.pop else 0
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
            if not request.pop:
                changes.append(journal.granted(lane, fresh.next, lease, flat, number))
        if fresh.waiting_for_key:
            changes.append(journal.waiting(lane, FOR_ITS_KEY, runs(fresh.waiting_for_key)))
        if self._keeps_expired and expired:
            changes += [journal.waiting(lane, Wait(n, 0), [o, o + 1]) for o, n in expired]
        else:
            gone += [offset for offset, _ in expired if offset in state.waiting]
        if gone:
            changes.append(journal.finished(lane, runs(gone)))
        if changes or leased:
            if request.pop or not leased:
                changes.append(journal.moved(lane, fresh.next))
            end = shared.append(b"".join(changes))
            state.passed_over = False
        else:
            end = 0
            state.passed_over |= fresh.next != state.next
        change = partial(self._change, state, request, found, leased)
        try:
            change()
        except BaseException:
            # A signal handler has raised, and the journal has it: half of it would lose messages.
            change()
            raise
        shared.keep_short()
        return end

    def _change(
        self,
        state: LaneState,
        request: _Request,
        found: _Found,
        leased: list[tuple[Lease, Sequence[int]]],
    ) -> None:
        """Bring the state to what is noted. Twice is the same as once."""
        shared, lane, fresh = self._shared, request.lane, found.fresh
        state.next = fresh.next
        state.ahead_index = fresh.ahead_index
        for offset in fresh.waiting_for_key:
            state.wait(offset, FOR_ITS_KEY, is_its_turn=False)
        if state.imported_attempts:
            for offset in (offset for _, offsets in leased for offset in offsets):
                state.imported_attempts.pop(offset, None)
        for lease, offsets in leased:
            if request.pop:
                shared.free_keys(lane, offsets)
                continue
            for offset in offsets if lease.attempt > 1 or state.waiting else ():
                state.stop_waiting(offset)
            state.grant(lease, offsets)
            shared.deadlines.watch(lane, lease, offsets)
        if found.gone:
            shared.finish(lane, found.gone)
        if self._keeps_expired:
            # Until they are dead letters, which may take more than one attempt.
            for offset, attempt in found.expired:
                state.wait(offset, Wait(attempt, request.now_us + DEAD_LETTER_RETRY_US))

    def _count(self, found: _Found, request: _Request) -> None:
        """Count what was handed out, and be done with what has expired."""
        shared, lane, now_us = self._shared, request.lane, request.now_us
        for _, records in found.batches:
            shared.meter.delivered.add(len(records))
            shared.meter.age.observe(max(0, now_us - records[0].timestamp) / 1_000_000)
        if not found.expired:
            return
        shared.meter.expired.add(len(found.expired))
        if self._keeps_expired:
            verdicts = {offset: Verdict(attempt, "expired") for offset, attempt in found.expired}
            self._dead_letters.try_dead_letter(lane, verdicts, now_us)
        else:
            shared.free_keys(lane, [offset for offset, _ in found.expired])

    @property
    def _keeps_expired(self) -> bool:
        """Whether messages that expire become dead letters."""
        settings = self._shared.settings
        return (
            settings.dead_letter_expired and settings.dead_letters and not self._shared.is_dead_letter_topic
        )


def _as_many_as_fit(
    partition: Partition, lane: int, due: list[tuple[int, Wait]]
) -> tuple[dict[int, Record], list[tuple[int, Wait]]]:
    """The messages that are due again, by offset, and which of them one call gives: they may be large.

    Those that are given include those that are gone, of which there is no message.
    """
    records: dict[int, Record] = {}
    size = 0
    for record in messages_at(partition, lane, {offset for offset, _ in due}):
        records[record.offset] = record
        size += len(record.value)
        if size >= GIVEN_BYTES:
            return records, [(offset, wait) for offset, wait in due if offset <= record.offset]
    return records, due


def _by_attempt(records: list[Record], state: LaneState, request: _Request) -> Iterator[LeasedRecords]:
    """Messages that nobody had here, in order, each with the number of its attempt."""
    if not state.imported_attempts:
        yield request.lease(1), records
        return
    for attempts, each in groupby(
        records, key=lambda record: state.imported_attempts.get(record.offset, 0)
    ):
        yield request.lease(attempts + 1), list(each)
