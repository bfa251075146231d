"""Handing messages out: which ones are next, under which lease, and the note of it in the journal."""

import logging
from collections.abc import Sequence
from functools import partial

from quivermq.delivery import journal
from quivermq.delivery.adoption import leased_by_attempt
from quivermq.delivery.arriving import arrives
from quivermq.delivery.cursor_state import BURIAL_RETRY_US
from quivermq.delivery.dead_letters import Verdict
from quivermq.delivery.delivery import Taken, message_count
from quivermq.delivery.fresh import (
    GIVEN_BYTES,
    Fresh,
    append_time_at,
    fresh_messages,
    fresh_slices,
    messages_at,
    waiting_since,
)
from quivermq.delivery.lease import Lease
from quivermq.delivery.settlement import Settlement
from quivermq.delivery.state import FOR_ITS_TURN, LaneState, PendingRetry
from quivermq.errors import QuiverError
from quivermq.frame import Record
from quivermq.log import Log
from quivermq.topic.offsets import merged, offsets_of, runs
from quivermq.topic.partition import Partition

logger = logging.getLogger(__name__)

# Of messages that are handed out one by one, every so many'th tells its age.
_AGE_SAMPLED = 16


class LeaseGranter(Settlement):
    """The part of a cursor that gives."""

    @property
    def has_one_lane(self) -> bool:
        """Whether nobody has used any priority but the normal one."""
        high, _, low = self._partition.logs
        return high is None and low is None

    def ready(self, lane: int, now_us: int) -> int:
        """About how many messages a lane could give now."""
        state, log = self.lanes[lane], self._partition.logs[lane]
        if log is None or self.is_paused:
            return 0
        with self._lock:
            if self._deadlines.is_due(now_us):
                self._expire(now_us)
            fresh = max(0, log.end - self._partition.first_told(lane, state.next))
            due = state.next_ready()
        return fresh + (len(state.ready) if due is not None and due <= now_us else 0)

    def overdue(self, lane: int, before_us: int, now_us: int, count: int) -> tuple[int, int]:
        """When the first message of a lane came in, if before a moment, and how many did, up to `count`.

        Those that are tried again are all as old as the first of them: nobody looks at each.
        """
        state, log = self.lanes[lane], self._partition.logs[lane]
        if log is None:
            return 0, 0
        with self._lock:
            since, found = waiting_since(state, log, before_us, count)
            due = state.next_ready()
            if due is not None and due <= now_us:
                came = append_time_at(state, log, state.ready[0][1])
                if came is not None and came <= before_us:
                    since = min(since or came, came)
                    found = min(found + len(state.ready), count)
        return since, found

    def take(
        self,
        lane: int,
        count: int,
        lease_us: int,
        *,
        pop: bool = False,
        whole: bool = False,
        owner: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """Lease up to `count` messages of a lane to `owner`, those that failed before first.

        With `pop` they are finished at once, and nobody has to settle them. With `whole` they come as parts
        of frames wherever nothing has to be asked of each. Leases have the `token`, or one of their own.
        """
        with self._lock:
            self._check_open()
            now_us = self._clock.now_us()
            if self._deadlines.is_due(now_us):
                self._expire(now_us)
            state, log = self.lanes[lane], self._partition.logs[lane]
            if log is None or self.is_paused:
                return []
            if count == 1 and self._is_plain(state, lane):
                owner = owner or self._own_name
                return [self._hand_out_next(state, lane, now_us, lease_us, pop, owner, token)]
            taken: list[Taken] = []
            # Frames of an archive have holes, so their messages are looked at.
            is_live = state.next >= log.start
            if whole and is_live and self._is_fresh_only(state, lane, now_us):
                taken, end = self._hand_out_slices(
                    state, log, lane, count, now_us, lease_us, pop, owner or self._own_name, token
                )
            if not taken:
                batches, end = self._take(
                    state, lane, count, now_us, lease_us, pop, owner or self._own_name, token
                )
                taken = [Taken(self, lane, lease, records) for lease, records in batches]
        if end:
            self._sync(end)
        return taken

    def _take(
        self,
        state: LaneState,
        lane: int,
        count: int,
        now_us: int,
        lease_us: int,
        pop: bool,
        owner: str,
        token: int | None,
    ) -> tuple[list[tuple[Lease, list[Record]]], int]:
        """Batches of messages, and the end of the journal that has them.

        Passing over a message may make another one of its key ready, so that has to be looked at, too.
        """
        while True:
            due = state.take_ready(count, now_us) if state.ready else []
            try:
                found, taken = _as_many_as_fit(self._partition, lane, due)
                most = count if taken is due else len(taken)
                batches, end = self._hand_out(
                    state, lane, most, now_us, lease_us, taken, found, pop, owner, token
                )
            except BaseException:
                state.put_back(due)
                state.forget_ahead()
                if self._order is not None:
                    self._build_order()
                raise
            if taken is not due:
                state.put_back(set(due).difference(taken))
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

    def _hand_out_next(
        self,
        state: LaneState,
        lane: int,
        now_us: int,
        lease_us: int,
        pop: bool,
        owner: str,
        token: int | None,
    ) -> Taken:
        """What `_hand_out` does, for a single message of the plainest kind: the hot path of `get`."""
        deadline = now_us + lease_us
        place = state.place + 1
        record = state.ahead[place - 1]
        offset = record.offset
        next_offset = offset + 1 if place < len(state.ahead) else state.ahead_end
        lease = Lease(1, deadline, token, owner, now_us)
        taken = Taken(self, lane, lease, [record])
        if pop:
            self._append(journal.moved(lane, next_offset))
        else:
            arrives(taken)
            holder = self._holders.get(owner) or self._number_of(owner)
            self._append(
                journal.granted_one(lane, next_offset, lease.token, deadline, now_us, holder, offset)
            )
        state.place, state.next = place, next_offset
        if not pop:
            state.leases[offset] = lease
            self._deadlines.watch(lane, lease, (offset,))
        if self._journal.wants_snapshot:
            self._keep_short()
        self._meter.delivered.add(1)
        if not offset % _AGE_SAMPLED:
            self._meter.age.observe(max(0, now_us - record.timestamp) / 1_000_000)
        return taken

    def _is_fresh_only(self, state: LaneState, lane: int, now_us: int) -> bool:
        """Whether nothing is due again, and no message has to be looked at before it is handed out."""
        due = state.next_ready()
        is_nothing_due = (due is None or due > now_us) and not state.tried
        return is_nothing_due and self._order is None and not self._partition.removals.lanes[lane]

    def _hand_out_slices(
        self,
        state: LaneState,
        log: Log,
        lane: int,
        count: int,
        now_us: int,
        lease_us: int,
        pop: bool,
        owner: str,
        token: int | None,
    ) -> tuple[list[Taken], int]:
        """Hand out what nobody had, without a look at each message, if that is possible."""
        slices, next_offset = fresh_slices(state, log, count)
        if not slices:
            return [], 0
        lease = Lease(1, now_us + lease_us, token, owner, now_us)
        flat = merged((start, end) for _, start, end in slices)
        if pop:
            note = journal.moved(lane, next_offset)
        else:
            note = journal.granted(lane, next_offset, lease, flat, self._number_of(owner))
        taken = Taken(self, lane, lease, [], slices)
        if not pop:
            arrives(taken)
        offsets = [] if pop else list(offsets_of(flat))
        end = self._append(note)
        try:
            state.go_to(next_offset)
            state.grant(lease, offsets)
        except BaseException:
            # As in `_note`.
            state.go_to(next_offset)
            state.grant(lease, offsets)
            raise
        if offsets:
            self._deadlines.watch(lane, lease, offsets)
        self._keep_short()
        self._meter.delivered.add(message_count([taken]))
        age_us = self._clock.now_us() - slices[0].frame.header.timestamp_min
        self._meter.age.observe(max(0, age_us) / 1_000_000)
        return [taken], end

    def _hand_out(
        self,
        state: LaneState,
        lane: int,
        count: int,
        now_us: int,
        lease_us: int,
        taken: list[tuple[int, PendingRetry]],
        found: dict[int, Record],
        pop: bool,
        owner: str,
        token: int | None,
    ) -> tuple[list[tuple[Lease, list[Record]]], int]:
        deadline = now_us + lease_us
        batches: list[tuple[Lease, list[Record]]] = []
        gone: list[int] = []
        expired: list[tuple[int, int]] = []
        if taken:
            batches, gone, expired = self._again(lane, taken, found, now_us, deadline, owner, token)
            again = [record.offset for _, records in batches for record in records]
            count -= len(again)
            if pop:
                gone += again
        log, removed = self._partition.readable(lane), self._partition.removals.lanes[lane]
        fresh = fresh_messages(state, log, count, now_us, removed, self._order, lane)
        if fresh.records:
            batches += leased_by_attempt(fresh.records, state.tried, deadline, token, owner, now_us)
        expired += [(offset, state.tried.get(offset, 0)) for offset in fresh.expired]
        end = self._note(state, lane, batches, gone, expired, fresh, pop, now_us, owner)
        for _, records in batches:
            self._meter.delivered.add(len(records))
            self._meter.age.observe(max(0, now_us - records[0].timestamp) / 1_000_000)
        if expired:
            self._drop_expired(lane, expired, now_us)
        return batches, end

    def _again(
        self,
        lane: int,
        taken: list[tuple[int, PendingRetry]],
        found: dict[int, Record],
        now_us: int,
        deadline: int,
        owner: str,
        token: int | None,
    ) -> tuple[list[tuple[Lease, list[Record]]], list[int], list[tuple[int, int]]]:
        """The messages of an earlier attempt, those that are gone, and those that expired meanwhile."""
        removed = self._partition.removals.lanes[lane]
        by_attempt: dict[int, list[Record]] = {}
        gone: list[int] = []
        expired: list[tuple[int, int]] = []
        for offset, retry in taken:
            record = found.get(offset)
            if record is None or offset in removed:
                gone.append(offset)
            elif record.expires_at is not None and record.expires_at <= now_us:
                expired.append((offset, retry.attempt))
            else:
                attempts = retry.attempt or self.lanes[lane].tried.get(offset, 0)
                by_attempt.setdefault(attempts + 1, []).append(record)
        batches = [
            (Lease(attempt, deadline, token, owner, now_us), records)
            for attempt, records in by_attempt.items()
        ]
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
        owner: str,
    ) -> int:
        """Journal what is handed out, change the state, and return the end of the journal."""
        changes: list[bytes] = []
        leased: list[tuple[Lease, Sequence[int]]] = []
        holder = self._number_of(owner) if batches and not pop else 0
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
                arrives(Taken(self, lane, lease, records))
                changes.append(journal.granted(lane, fresh.next, lease, flat, holder))
        if fresh.held:
            changes.append(journal.waiting(lane, FOR_ITS_TURN, runs(fresh.held)))
        if self._buries_expired and expired:
            changes += [
                journal.waiting(lane, PendingRetry(attempt, 0), [o, o + 1]) for o, attempt in expired
            ]
        else:
            gone += [offset for offset, _ in expired if offset in state.retries]
        if gone:
            changes.append(journal.finished(lane, runs(gone)))
        if changes or leased:
            if pop or not leased:
                changes.append(journal.moved(lane, fresh.next))
            end = self._append(b"".join(changes))
            state.passed_over = False
        else:
            end = 0
            state.passed_over |= fresh.next != state.next
        change = partial(self._change, state, lane, leased, gone, expired, fresh, pop, now_us)
        try:
            change()
        except BaseException:
            # A signal handler has raised, and the journal has it: half of it would lose messages.
            change()
            raise
        self._keep_short()
        return end

    def _change(
        self,
        state: LaneState,
        lane: int,
        leased: list[tuple[Lease, Sequence[int]]],
        gone: list[int],
        expired: list[tuple[int, int]],
        fresh: Fresh,
        pop: bool,
        now_us: int,
    ) -> None:
        """Bring the state to what is noted. Twice is the same as once."""
        state.next = fresh.next
        state.place = fresh.place
        for offset in fresh.held:
            state.wait(offset, FOR_ITS_TURN, is_its_turn=False)
        if state.tried:
            for offset in (offset for _, offsets in leased for offset in offsets):
                state.tried.pop(offset, None)
        for lease, offsets in leased:
            if pop:
                self._leave(lane, offsets)
                continue
            for offset in offsets if lease.attempt > 1 or state.retries else ():
                state.stop_waiting(offset)
            state.grant(lease, offsets)
            self._deadlines.watch(lane, lease, offsets)
        if gone:
            self._finish(lane, gone)
        if self._buries_expired:
            # Until they are dead letters, which may take more than one attempt.
            for offset, attempt in expired:
                state.wait(offset, PendingRetry(attempt, now_us + BURIAL_RETRY_US))

    @property
    def _buries_expired(self) -> bool:
        settings = self.settings
        return settings.dead_letter_expired and settings.dead_letters and not self._keeps_dead

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


def _as_many_as_fit(
    partition: Partition, lane: int, due: list[tuple[int, PendingRetry]]
) -> tuple[dict[int, Record], list[tuple[int, PendingRetry]]]:
    """The messages that are due again, by offset, and which of them one call gives: they may be large.

    Those that are given include those that are gone, of which there is no message.
    """
    records: dict[int, Record] = {}
    size = 0
    for record in messages_at(partition, lane, {offset for offset, _ in due}):
        records[record.offset] = record
        size += len(record.value)
        if size >= GIVEN_BYTES:
            return records, [(offset, retry) for offset, retry in due if offset <= record.offset]
    return records, due
