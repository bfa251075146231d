"""The position of one group in one partition: what it hands out, and what becomes of it."""

from itertools import islice

from quivermq.delivery import journal
from quivermq.delivery.adoption import Progress, adopted_record, check_progress, is_there
from quivermq.delivery.handing_out import HandingOut
from quivermq.delivery.journal import Replay
from quivermq.delivery.lease import Lease
from quivermq.delivery.unfinished import Unfinished, unfinished_after
from quivermq.topic.settings import TopicSettings

# More than ever wait at a bell.
EVERYBODY = 2**31


class Cursor(HandingOut):
    """What a group has had of a partition. Thread-safe."""

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
