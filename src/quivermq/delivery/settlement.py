"""Settling messages: done, failed, given back, given up, or not finished yet.

Only whoever holds the lease may say.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat

from quivermq.delivery import journal
from quivermq.delivery.cursor_state import CursorState
from quivermq.delivery.dead_letters import Verdict
from quivermq.delivery.lease import Lease, Receipt
from quivermq.delivery.state import PendingRetry, backoff_us, is_last, released
from quivermq.errors import InvalidRequest, LeaseExpired
from quivermq.reentry import entered
from quivermq.topic.incoming import Period, seconds_us
from quivermq.topic.offsets import runs

Claim = tuple[int, int]  # An offset and the token of its lease.


class Settlement(CursorState):
    """The part of a cursor that takes back."""

    def is_last_attempt(self, lease: Lease) -> bool:
        """Whether a delivery that fails becomes a dead letter."""
        return not self._keeps_dead and is_last(lease.attempt, self.settings)

    @entered
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
            if state.times:
                state.times.pop(offset, None)
            if self._order is not None:
                self._leave(lane, (offset,))
            self._deadlines.sweep()
        self._meter.acked.add(1)
        self._sync(end)

    @entered
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
            if state.times:
                deque(map(state.times.pop, offsets, repeat(None)), maxlen=0)
            self._leave(lane, offsets)
            self._deadlines.sweep()
        self._meter.acked.add(len(offsets))
        self._sync(end)
        return True

    @entered
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

    @entered
    def nack(
        self,
        lane: int,
        claims: Sequence[Claim],
        delay: Period | None,
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
            waits: dict[PendingRetry, list[int]] = {}
            for offset in offsets:
                attempt = state.leases[offset].attempt
                if not self._keeps_dead and is_last(attempt, settings):
                    doomed[offset] = Verdict(attempt, reason or "attempts", error or "")
                else:
                    wait_us = backoff_us(attempt, settings) if delay_us is None else delay_us
                    waits.setdefault(PendingRetry(attempt, now_us + wait_us), []).append(offset)
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

    @entered
    def release(self, lane: int, claims: Sequence[Claim], *, raises: bool = True) -> list[Claim]:
        """Messages are given back as if they had not been handed out: at once, and no attempt counts."""
        with self._lock:
            offsets, refused = self._valid(lane, claims)
            leases = self.lanes[lane].leases
            waits: dict[PendingRetry, list[int]] = {}
            for offset in offsets:
                waits.setdefault(released(leases[offset].attempt), []).append(offset)
            end = self._wait(lane, waits, journal.given_back) if waits else 0
            # What a signal handler struck is given back, and may be in the journal alone.
            self._keep_short()
        if offsets:
            self._on_ready(len(offsets))
        self._meter.released.add(len(offsets))
        self._sync(end)
        if refused and raises:
            raise self._refusal(lane, refused)
        return refused

    @entered
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

    @entered
    def extend(
        self, lane: int, claims: Sequence[Claim], seconds: Period, *, raises: bool = True
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

    def _check_holds(self, lane: int, claims: Sequence[Claim]) -> None:
        """Before anything is settled: what was deleted is nobody's any more."""
        if self._is_gone:
            raise self._refusal(lane, claims)
        self._check_open()

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

    def _wait(
        self,
        lane: int,
        waits: dict[PendingRetry, list[int]],
        note: Callable[[int, PendingRetry, Sequence[int]], bytes] = journal.waiting,
    ) -> int:
        record = b"".join(note(lane, retry, runs(offsets)) for retry, offsets in waits.items())
        end = self._append(record)
        state = self.lanes[lane]
        self._deadlines.sweep()
        for retry, offsets in waits.items():
            for offset in offsets:
                state.wait(offset, retry, is_its_turn=self._is_first(lane, offset))
        return end


def _prolonged(lease: Lease, deadline: int) -> Lease:
    return Lease(lease.attempt, deadline, lease.token, lease.owner, lease.since)


def _check_texts(*texts: object) -> None:
    for text in texts:
        if text is not None and not isinstance(text, str):
            raise InvalidRequest(f"a reason and an error are texts, not a {type(text).__name__}")
