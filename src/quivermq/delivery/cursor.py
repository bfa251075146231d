"""The position of one group in one partition: what it hands out, and what becomes of it."""

import threading
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from quivermq.delivery import journal
from quivermq.delivery.adoption import Progress, adopted_record, check_progress, is_there
from quivermq.delivery.journal import Replay
from quivermq.delivery.leasing import LeaseGranter
from quivermq.delivery.state import PendingRetry, Unfinished, unfinished_after, unfinished_one
from quivermq.topic.offsets import runs
from quivermq.topic.settings import TopicSettings


class LaneCounts(NamedTuple):
    """How many messages of a lane are not finished for a group, by what they wait for."""

    pending: int
    """For a consumer: nobody had them, or they were released."""
    in_flight: int
    retrying: int
    """For another attempt, after one that failed."""
    waiting_for_key: int
    """For the earlier ones of their key, where the topic has `ordering=key`."""


# More than ever wait at a bell.
EVERYBODY = 2**31


class Cursor(LeaseGranter):
    """What a group has had of a partition. Thread-safe."""

    def seek(self, lane: int, position: int) -> None:
        """Let everything from a position on be pending, and everything before it done."""
        self.wait_durable(self.place(lane, position))

    def place(self, lane: int, position: int, *, is_commit: bool = False) -> int:
        """As `seek`, but return what to wait for: so many lanes can be moved before anybody waits.

        A commit says that somebody had everything up to here and finished with it, so it is counted.
        """
        with self._lock:
            self._check_open()
            state = self.lanes[lane]
            if state.is_at(position):
                # Whoever brought it here may not be durable yet.
                return self._journal.log.end
            end = self._append(journal.sought(lane, position))
            if is_commit:
                self._count_commit(lane, position)
            state.seek(position)
            if self._order is not None:
                self._build_order()
            self._keep_short()
        self._on_ready(EVERYBODY)
        return end

    def _count_commit(self, lane: int, position: int) -> None:
        """Whoever reads the log is seen only here: what is committed was delivered, and is done with."""
        state = self.lanes[lane]
        start = self._partition.first_told(lane, state.next)
        fresh = (
            self._partition.removals.lanes[lane].missing_between(start, position) if start < position else 0
        )
        finished = sum(offset < position for held in (state.leases, state.retries) for offset in held)
        if fresh:
            self._meter.delivered.add(fresh)
        if fresh or finished:
            self._meter.acked.add(fresh + finished)

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

    def expire(self, now_us: int) -> None:
        """Let go of the leases that have run out, and wake somebody for what is due by now."""
        with self._lock:
            self._news.tell(now_us)
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

    @property
    def unfinished_count(self) -> int:
        """How many messages were handed out, or wait, and are not finished."""
        return sum(state.unfinished for state in self.lanes)

    @property
    def is_settled(self) -> bool:
        """Whether no message is on its way to the dead letters."""
        return not (self._owed or self._open_burials)

    def next_event(self) -> int | None:
        """When something here becomes ready by time alone: a lease that runs out, a retry that is due."""
        with self._lock:
            times = [self._deadlines.next]
            if not self.is_paused:
                times += [state.next_ready() for state in self.lanes]
        return min((time for time in times if time is not None), default=None)

    def pause(self, is_paused: bool) -> int:
        """Hand nothing out for now, or go on. Returns what to wait for with `wait_durable`."""
        with self._lock:
            self._check_open()
            end = self._append(journal.paused(is_paused))
            self.is_paused = is_paused
        if not is_paused:
            self._on_ready(EVERYBODY)
        return end

    def retry_now(self) -> tuple[int, int]:
        """Let what failed be due at once: how many messages, and what to wait for with `wait_durable`."""
        count = end = 0
        with self._lock:
            self._check_open()
            now_us = self._clock.now_us()
            for lane, state in enumerate(self.lanes):
                waits: dict[PendingRetry, list[int]] = {}
                for offset, retry in state.retries.items():
                    if retry.due > now_us:
                        waits.setdefault(PendingRetry(retry.attempt, now_us), []).append(offset)
                if waits:
                    end = self._wait(lane, waits)
                    count += sum(map(len, waits.values()))
        self._on_ready(count)
        return count, end

    def forget_retries(self, lane: int) -> None:
        """Be done with everything in a lane that waits for another attempt: it was taken out."""
        with self._lock:
            self._check_open()
            offsets = list(self.lanes[lane].retries)
            if offsets:
                end = self._append(journal.finished(lane, runs(offsets)))
                self._finish(lane, offsets)
            self.lanes[lane].forget_ahead()
        if offsets:
            self._sync(end)

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

    def counts(self) -> list[LaneCounts]:
        """How many messages of each lane are in which state."""
        with self._lock:
            return [
                LaneCounts(
                    fresh + state.untried - state.held,
                    len(state.leases),
                    len(state.retries) - state.untried,
                    state.held,
                )
                for state, fresh in zip(self.lanes, self._fresh(), strict=True)
            ]

    def fresh_in_log(self) -> int:
        """How many messages of the logs nobody in the group ever had."""
        with self._lock:
            return sum(self._fresh()) - sum(self._fresh_in_archive())

    def fresh_in_archive(self) -> list[int]:
        """How many messages of each lane nobody in the group ever had that only the archive has."""
        with self._lock:
            return self._fresh_in_archive()

    def held_in_archive(self) -> list[int]:
        """How many messages of each lane that only the archive has were handed out, or wait."""
        with self._lock:
            return [
                sum(offset < start for held in (state.leases, state.retries) for offset in held)
                if log is not None and (start := log.start)
                else 0
                for state, log in zip(self.lanes, self._partition.logs, strict=True)
            ]

    def _fresh(self) -> list[int]:
        partition = self._partition
        return [
            removed.missing_between(partition.first_told(lane, state.next), log.end) if log else 0
            for lane, (state, log, removed) in enumerate(
                zip(self.lanes, partition.logs, partition.removals.lanes, strict=True)
            )
        ]

    def _fresh_in_archive(self) -> list[int]:
        partition = self._partition
        return [
            removed.missing_between(first, log.start)
            if log is not None and (first := partition.first_told(lane, state.next)) < log.start
            else 0
            for lane, (state, log, removed) in enumerate(
                zip(self.lanes, partition.logs, partition.removals.lanes, strict=True)
            )
        ]

    def is_behind_logs(self) -> bool:
        """Whether what comes next in some lane, or again, may have to be read from an archive."""
        return any(
            log is not None and (start := log.start) and (state.next < start or state.retries)
            for state, log in zip(self.lanes, self._partition.logs, strict=True)
        )

    def in_flight(self, limit: int, now_us: int) -> list[tuple[int, Unfinished]]:
        """The first messages that somebody has, or had until now, each with its lane."""
        with self._lock:
            held = (
                (lane, unfinished_one(offset, lease, None, state.times, now_us))
                for lane, state in enumerate(self.lanes)
                for offset, lease in state.leases.items()
            )
            return list(islice(held, limit))

    def unfinished(self, lane: int, now_us: int, after: int, limit: int) -> list[Unfinished]:
        """What was handed out of a lane, or waits, and is not finished: the first ones behind an offset."""
        state = self.lanes[lane]
        with self._lock:
            # No more than copied: whoever takes and settles messages waits for this.
            leases, retries, times = state.leases.copy(), state.retries.copy(), state.times.copy()
        return unfinished_after(leases, retries, times, now_us, after, limit)

    def held(self, lane: int, now_us: int, after: int, limit: int) -> list[Unfinished]:
        """What somebody has of a lane: the first ones behind an offset."""
        state = self.lanes[lane]
        with self._lock:
            # No more than copied: whoever takes and settles messages waits for this.
            leases, times = state.leases.copy(), state.times.copy()
        found = (o for o, lease in leases.items() if o > after and lease.deadline > now_us)
        offsets = nsmallest(limit, found)
        return [unfinished_one(offset, leases[offset], None, times, now_us) for offset in offsets]

    def held_by(self, token: int) -> list[tuple[int, list[int]]]:
        """By lane, the offsets of what is leased with a token."""
        found = []
        for lane, state in enumerate(self.lanes):
            with self._lock:
                leases = state.leases.copy()
            if offsets := [offset for offset, lease in leases.items() if lease.token == token]:
                found.append((lane, offsets))
        return found

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

    def forget_gone(self, lane: int) -> None:
        """Forget what was read ahead and is not in the log any more.

        The position stays: only who reads the archive knows whether it has what comes next.
        """
        with self._lock:
            state, log = self.lanes[lane], self._partition.logs[lane]
            if log is not None and state.next < log.start:
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

    def disown(self) -> None:
        """In a forked child: hand nothing out, and settle nothing, without waiting for anybody."""
        self._is_closed = True
        self._why_closed = "was opened before the fork: open it in the child"
        # A thread of the parent may have held the other one.
        self._lock = threading.Lock()

    def close(self, *, is_gone: bool = False) -> None:
        """Hand nothing out any more. With `is_gone` it was deleted, and no lease holds any more."""
        with self._lock:
            self._news.tell(self._clock.now_us(), is_last=True)
            self._is_closed = True
            self._is_gone = is_gone
