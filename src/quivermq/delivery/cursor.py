"""What one group knows of one partition: where it is, what it hands out, and what becomes of it."""

import threading
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from quivermq.delivery import journal
from quivermq.delivery.adoption import adopted_record, check_progress, is_there
from quivermq.delivery.cursor_state import CursorState
from quivermq.delivery.dead_letter_transfer import DeadLetterWriter
from quivermq.delivery.journal import Replay
from quivermq.delivery.leasing import LeaseGranter
from quivermq.delivery.settlement import Settlement
from quivermq.delivery.state import Unfinished, Wait, unfinished_after, unfinished_one
from quivermq.model.adoption import Progress
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic.offsets import runs


class LaneCounts(NamedTuple):
    """How many messages of a lane are not finished for a group, by what they wait for."""

    pending: int
    """For a consumer: nobody had them, or they were released."""
    in_flight: int
    retrying: int
    """For another attempt, after one that failed."""
    waiting_for_key: int
    """For the earlier ones of their key, where the topic has `ordering=key`."""


# More than ever wait for messages.
EVERYBODY = 2**31


class Cursor:
    """What a group has had of a partition. Thread-safe.

    `LeaseGranter` hands messages out, `Settlement` takes them back, and the cursor itself moves the group,
    pauses it and says how far it is. All of them work on one `CursorState`, which has the journal.
    """

    def __init__(self, shared: CursorState) -> None:
        self.group = shared.group
        self.topic = shared.partition.topic
        self.partition = shared.partition.number
        self.lanes = shared.lanes
        self.meter = shared.meter
        """What was counted so far: the same for all partitions of the topic."""
        self._shared = shared
        self._dead_letters = DeadLetterWriter(shared)
        self.settlement = Settlement(shared, self._dead_letters)
        """The settler of everything that is handed out here."""
        self._granter = LeaseGranter(shared, self.settlement, self._dead_letters)
        # Bound once: an extra call would cost every message.
        self.ready, self.overdue, self.take = self._granter.ready, self._granter.overdue, self._granter.take

    @property
    def settings(self) -> TopicSettings:
        return self._shared.settings

    @property
    def is_paused(self) -> bool:
        """Whether nothing is handed out for now."""
        return self._shared.is_paused

    @property
    def freed(self) -> int:
        """How often the end of one message gave another one of its key its turn."""
        return self._shared.freed

    @property
    def has_one_lane(self) -> bool:
        """Whether nobody has used any priority but the normal one."""
        high, _, low = self._shared.partition.logs
        return high is None and low is None

    # Moving.

    def seek(self, lane: int, offset: int) -> None:
        """Let everything from an offset on be pending, and everything before it done."""
        self.wait_durable(self.move_to(lane, offset))

    def move_to(self, lane: int, offset: int, *, is_commit: bool = False) -> int:
        """As `seek`, but return what to wait for: so many lanes can be moved before anybody waits.

        A commit says that somebody had everything up to here and finished with it, so it is counted.
        """
        shared = self._shared
        with shared.lock:
            shared.check_open()
            state = self.lanes[lane]
            if state.is_at(offset):
                # Whoever brought it here may not be durable yet.
                return shared.journal.log.end
            end = shared.append(journal.sought(lane, offset))
            if is_commit:
                self._count_commit(lane, offset)
            state.seek(offset)
            if shared.order is not None:
                shared.rebuild_order()
            shared.keep_short()
        shared.on_ready(EVERYBODY)
        return end

    def _count_commit(self, lane: int, offset: int) -> None:
        """Whoever reads the log is seen only here: what is committed was delivered, and is done with."""
        state, partition = self.lanes[lane], self._shared.partition
        start = partition.first_known(lane, state.next)
        fresh = partition.removals.lanes[lane].missing_between(start, offset) if start < offset else 0
        finished = sum(each < offset for held in (state.leases, state.waiting) for each in held)
        if fresh:
            self.meter.delivered.add(fresh)
        if fresh or finished:
            self.meter.acked.add(fresh + finished)

    def adopt(self, lane: int, progress: Progress, expected: Progress | None) -> bool:
        """Take over how far another queue came with messages that were imported from it.

        With a position, only where the group has never been, or still is exactly where `expected` says;
        False says that it is elsewhere. Raises InvalidRequest, OffsetOutOfRange.
        """
        shared = self._shared
        with shared.lock:
            shared.check_open()
            state = self.lanes[lane]
            check_progress(progress, shared.partition.logs[lane])
            if progress.position is not None:
                if is_there(state, progress):
                    # Whoever brought it here may not be durable yet.
                    shared.sync(shared.journal.log.end)
                    return True
                if not is_there(state, expected):
                    return False
            adopted = adopted_record(lane, state, progress, shared.clock.now_us())
            end = shared.append(adopted) if adopted else 0
            if adopted:
                Replay(self.lanes).apply_record(adopted)
                state.forget_ahead()
                state.forget_imported_attempts()
                shared.rebuild_order()
                shared.keep_short()
        shared.on_ready(EVERYBODY)
        shared.sync(end)
        return True

    def wait_durable(self, end: int) -> None:
        """Return once what `move_to`, `pause` or `retry_now` wrote is as durable as the topic asks for."""
        self._shared.sync(end)

    def retry_now(self) -> tuple[int, int]:
        """Let what failed be due at once: how many messages, and what to wait for with `wait_durable`."""
        count = end = 0
        shared = self._shared
        with shared.lock:
            shared.check_open()
            now_us = shared.clock.now_us()
            for lane, state in enumerate(self.lanes):
                waits: dict[Wait, list[int]] = {}
                for offset, wait in state.waiting.items():
                    if wait.due > now_us:
                        waits.setdefault(Wait(wait.attempt, now_us), []).append(offset)
                if waits:
                    end = shared.wait(lane, waits)
                    count += sum(map(len, waits.values()))
        shared.on_ready(count)
        return count, end

    def forget_waiting(self, lane: int) -> None:
        """Be done with everything in a lane that waits: it was taken out."""
        shared = self._shared
        with shared.lock:
            shared.check_open()
            offsets = list(self.lanes[lane].waiting)
            if offsets:
                end = shared.append(journal.finished(lane, runs(offsets)))
                shared.finish(lane, offsets)
            self.lanes[lane].forget_ahead()
        if offsets:
            shared.sync(end)

    def drop_to(self, lane: int, offset: int) -> None:
        """Never hand out what lies before an offset and has not been handed out yet."""
        shared = self._shared
        with shared.lock:
            state, log = self.lanes[lane], shared.partition.logs[lane]
            if state.next < offset:
                # A group that was never here begins where the log does, and still was never here.
                if state.has_begun or (log is not None and offset > log.start):
                    shared.append(journal.moved(lane, offset))
                    state.next = offset
                state.forget_ahead()

    def forget_gone(self, lane: int) -> None:
        """Forget what was read ahead and is not in the log any more.

        What comes next stays: only who reads the archive knows whether it has what comes next.
        """
        with self._shared.lock:
            state, log = self.lanes[lane], self._shared.partition.logs[lane]
            if log is not None and state.next < log.start:
                state.forget_ahead()

    def read_anew(self, lane: int) -> None:
        """Forget what was read ahead: the log has other frames there now."""
        with self._shared.lock:
            self.lanes[lane].forget_ahead()

    # Time, settings, files.

    def expire(self, now_us: int) -> None:
        """Let go of the leases that have run out, and wake somebody for what is due by now."""
        shared = self._shared
        with shared.lock:
            self._dead_letters.report(now_us)
            if not shared.is_closed and shared.deadlines.is_due(now_us):
                self._granter.expire(now_us)
            due = [time for state in self.lanes if (time := state.next_due()) is not None]
        if due and min(due) <= now_us:
            shared.on_ready(1)

    def has_overdue(self, now_us: int) -> bool:
        """Whether a lease is over, and nobody has looked yet."""
        shared = self._shared
        if not shared.deadlines.is_due(now_us):
            return False
        with shared.lock:
            return shared.deadlines.has_due(now_us)

    def next_event(self) -> int | None:
        """When something here becomes ready by time alone: a lease runs out, or a message is due again."""
        with self._shared.lock:
            times = [self._shared.deadlines.next]
            if not self.is_paused:
                times += [state.next_due() for state in self.lanes]
        return min((time for time in times if time is not None), default=None)

    def pause(self, is_paused: bool) -> int:
        """Hand nothing out for now, or go on. Returns what to wait for with `wait_durable`."""
        shared = self._shared
        with shared.lock:
            shared.check_open()
            end = shared.append(journal.paused(is_paused))
            shared.is_paused = is_paused
        if not is_paused:
            shared.on_ready(EVERYBODY)
        return end

    def configure(self, settings: TopicSettings) -> None:
        """Go on with other settings."""
        shared = self._shared
        with shared.lock:
            shared.settings = settings
            if (settings.ordering == "key") != (shared.order is not None):
                shared.rebuild_order()

    def finish_transfers(self) -> None:
        """Note what became dead letters: then nobody has to look for them. Raises DiskRefused."""
        with self._shared.lock:
            self._shared.finish_transfers()

    @property
    def has_open_transfers(self) -> bool:
        """Whether messages are on their way to the dead letters, or it is not noted that they arrived."""
        return bool(self._shared.pending_transfers or self._shared.open_transfers)

    def compact(self) -> int:
        """Put a snapshot in place of the journal. Returns how many bytes that freed."""
        with self._shared.lock:
            self._shared.check_open()
            return self._shared.compact()

    def disown(self) -> None:
        """In a forked child: hand nothing out, and settle nothing, without waiting for anybody."""
        self._shared.is_closed = True
        self._shared.why_closed = "was opened before the fork: open it in the child"
        # A thread of the parent may have held the other one.
        self._shared.lock = threading.Lock()

    def close(self, *, is_gone: bool = False) -> None:
        """Hand nothing out any more. With `is_gone` it was deleted, and no lease holds any more."""
        shared = self._shared
        with shared.lock:
            self._dead_letters.report(shared.clock.now_us(), is_final=True)
            shared.is_closed = True
            shared.is_gone = is_gone

    # Looking.

    @property
    def unfinished_count(self) -> int:
        """How many messages were handed out, or wait, and are not finished."""
        return sum(state.unfinished for state in self.lanes)

    def floors(self) -> list[int]:
        """For each lane, the first offset that is not finished."""
        with self._shared.lock:
            return [state.floor for state in self.lanes]

    def committed(self) -> list[int | None]:
        """For each lane the same, or None where the group has never been: what a commit would say."""
        with self._shared.lock:
            return [state.floor if state.has_begun else None for state in self.lanes]

    def counts(self) -> list[LaneCounts]:
        """How many messages of each lane are in which state."""
        with self._shared.lock:
            return [
                LaneCounts(
                    fresh + state.untried - state.waiting_for_key,
                    len(state.leases),
                    len(state.waiting) - state.untried,
                    state.waiting_for_key,
                )
                for state, fresh in zip(self.lanes, self._fresh(), strict=True)
            ]

    def fresh_in_log(self) -> int:
        """How many messages of the logs nobody in the group ever had."""
        with self._shared.lock:
            return sum(self._fresh()) - sum(self._fresh(in_archive=True))

    def fresh_in_archive(self) -> list[int]:
        """How many messages of each lane nobody in the group ever had that only the archive has."""
        with self._shared.lock:
            return self._fresh(in_archive=True)

    def _fresh(self, *, in_archive: bool = False) -> list[int]:
        """How many messages of each lane nobody in the group ever had: all, or those before the log."""
        partition = self._shared.partition
        found = []
        for lane, (state, log) in enumerate(zip(self.lanes, partition.logs, strict=True)):
            first = partition.first_known(lane, state.next)
            end = 0 if log is None else log.start if in_archive else log.end
            found.append(partition.removals.lanes[lane].missing_between(first, end) if first < end else 0)
        return found

    def unfinished_in_archive(self) -> list[int]:
        """How many messages of each lane that only the archive has were handed out, or wait."""
        with self._shared.lock:
            return [
                sum(offset < start for held in (state.leases, state.waiting) for offset in held)
                if log is not None and (start := log.start)
                else 0
                for state, log in zip(self.lanes, self._shared.partition.logs, strict=True)
            ]

    def is_behind_logs(self) -> bool:
        """Whether what comes next in some lane, or again, may have to be read from an archive."""
        return any(
            log is not None and (start := log.start) and (state.next < start or state.waiting)
            for state, log in zip(self.lanes, self._shared.partition.logs, strict=True)
        )

    def in_flight(self, limit: int, now_us: int) -> list[tuple[int, Unfinished]]:
        """The first messages that somebody has, or had until now, each with its lane."""
        with self._shared.lock:
            held = (
                (lane, unfinished_one(offset, lease, None, state.times, now_us))
                for lane, state in enumerate(self.lanes)
                for offset, lease in state.leases.items()
            )
            return list(islice(held, limit))

    def unfinished(self, lane: int, now_us: int, after: int, limit: int) -> list[Unfinished]:
        """What was handed out of a lane, or waits, and is not finished: the first ones behind an offset."""
        state = self.lanes[lane]
        with self._shared.lock:
            # No more than copied: whoever takes and settles messages waits for this.
            leases, waiting, times = state.leases.copy(), state.waiting.copy(), state.times.copy()
        return unfinished_after(leases, waiting, times, now_us=now_us, after=after, limit=limit)

    def leased(self, lane: int, now_us: int, after: int, limit: int) -> list[Unfinished]:
        """What somebody has of a lane: the first ones behind an offset."""
        state = self.lanes[lane]
        with self._shared.lock:
            # No more than copied: whoever takes and settles messages waits for this.
            leases, times = state.leases.copy(), state.times.copy()
        found = (o for o, lease in leases.items() if o > after and lease.deadline > now_us)
        offsets = nsmallest(limit, found)
        return [unfinished_one(offset, leases[offset], None, times, now_us) for offset in offsets]

    def leased_with(self, token: int) -> list[tuple[int, list[int]]]:
        """By lane, the offsets of what is leased with a token."""
        found = []
        for lane, state in enumerate(self.lanes):
            with self._shared.lock:
                leases = state.leases.copy()
            if offsets := [offset for offset, lease in leases.items() if lease.token == token]:
                found.append((lane, offsets))
        return found

    def release_token(self, token: int) -> None:
        """Give back whatever is leased with a token. Raises Closing, and what keeps the journal from it."""
        # Also when nothing is: what a signal handler struck may be in the journal alone.
        for lane, offsets in self.leased_with(token) or [(0, [])]:
            self.settlement.release(lane, [(offset, token) for offset in offsets], raises=False)
