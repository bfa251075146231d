"""Settling messages: done, failed, released, given up, or not finished yet.

Only whoever holds the lease may say.
"""

from collections import deque
from collections.abc import Sequence
from itertools import repeat

from quivermq.delivery import journal
from quivermq.delivery.cursor_state import CursorState
from quivermq.delivery.dead_letter_transfer import DeadLetterWriter
from quivermq.delivery.dead_letters import Verdict
from quivermq.delivery.state import Wait, backoff_us, released
from quivermq.errors import InvalidRequest, LeaseExpired
from quivermq.model.checks import Period, seconds_us
from quivermq.model.deliveries import Claim, Lease, Receipt, check_reason
from quivermq.reentry import entered
from quivermq.topic.offsets import runs


class Settlement:
    """The part of a cursor that takes messages back: the settler of every delivery of its partition.

    The methods that take claims settle those that hold. With `raises` they then raise LeaseExpired for the
    others, without it they return them.
    """

    def __init__(self, shared: CursorState, dead_letters: DeadLetterWriter) -> None:
        self.group = shared.group
        self.topic = shared.partition.topic
        self.partition = shared.partition.number
        self._shared = shared
        self._dead_letters = dead_letters

    def is_last_attempt(self, lease: Lease) -> bool:
        """Whether a delivery that fails becomes a dead letter."""
        return self._shared.is_last(lease.attempt)

    @entered
    def ack_one(self, lane: int, offset: int, token: int) -> None:
        """A message is done with. Raises LeaseExpired."""
        shared = self._shared
        with shared.lock:
            if shared.is_closed:
                self._check_holds(lane, [(offset, token)])
            state = shared.lanes[lane]
            lease = state.leases.get(offset)
            if lease is None or lease.token != token or lease.deadline <= shared.clock.now_us():
                shared.meter.refused.add(1)
                raise self._refusal(lane, [(offset, token)])
            end = shared.append(journal.finished_one(lane, offset))
            del state.leases[offset]
            if state.times:
                state.times.pop(offset, None)
            if shared.order is not None:
                shared.free_keys(lane, (offset,))
            shared.deadlines.sweep()
        next(shared.meter.acked.ones)
        shared.sync(end)

    @entered
    def ack_batch(self, lane: int, token: int, offsets: list[int]) -> bool:
        """Messages of one lease are done with, if it holds for all of them; otherwise nothing is done."""
        shared = self._shared
        with shared.lock:
            if shared.is_gone:
                return False
            shared.check_open()
            state = shared.lanes[lane]
            held = list(map(state.leases.get, offsets))
            lease = held[0]
            if lease is None or lease.token != token or lease.deadline <= shared.clock.now_us():
                return False
            if held.count(lease) < len(held):
                return False
            first, behind = offsets[0], offsets[-1] + 1
            is_run = behind - first == len(offsets) and offsets == list(range(first, behind))
            if not is_run and len(set(offsets)) < len(offsets):
                return False
            end = shared.append(journal.finished(lane, (first, behind) if is_run else runs(offsets)))
            deque(map(state.leases.pop, offsets), maxlen=0)
            if state.times:
                deque(map(state.times.pop, offsets, repeat(None)), maxlen=0)
            shared.free_keys(lane, offsets)
            shared.deadlines.sweep()
        shared.meter.acked.add(len(offsets))
        shared.sync(end)
        return True

    @entered
    def ack(self, lane: int, claims: Sequence[Claim]) -> list[Claim]:
        """Messages are done with. Returns the claims that do not hold any more."""
        shared = self._shared
        with shared.lock:
            offsets, refused = self._valid(lane, claims)
            if not offsets:
                return refused
            end = shared.append(journal.finished(lane, runs(offsets)))
            shared.finish(lane, offsets)
            shared.deadlines.sweep()
        shared.meter.acked.add(len(offsets))
        shared.sync(end)
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
        check_reason(reason, error)
        delay_us = None if delay is None else seconds_us("delay", delay, lowest=0)
        shared = self._shared
        with shared.lock:
            offsets, refused = self._valid(lane, claims)
            now_us = shared.clock.now_us()
            leases = shared.lanes[lane].leases
            verdicts: dict[int, Verdict] = {}
            waits: dict[Wait, list[int]] = {}
            for offset in offsets:
                attempt = leases[offset].attempt
                if shared.is_last(attempt):
                    verdicts[offset] = Verdict(attempt, reason or "attempts", error or "")
                else:
                    wait_us = backoff_us(attempt, shared.settings) if delay_us is None else delay_us
                    waits.setdefault(Wait(attempt, now_us + wait_us), []).append(offset)
            end = shared.wait(lane, waits) if waits else 0
            if verdicts:
                self._dead_letters.dead_letter(lane, verdicts, now_us)
        if waits:
            # Also for one that is not due yet: whoever waits has to know when to look again.
            shared.on_ready(len(offsets))
        shared.meter.nacked.add(len(offsets))
        shared.sync(end)
        return self._refused(lane, refused, raises=raises)

    @entered
    def release(self, lane: int, claims: Sequence[Claim], *, raises: bool = True) -> list[Claim]:
        """Messages are given back as if they had not been handed out: at once, and no attempt counts."""
        shared = self._shared
        with shared.lock:
            offsets, refused = self._valid(lane, claims)
            leases = shared.lanes[lane].leases
            waits: dict[Wait, list[int]] = {}
            for offset in offsets:
                waits.setdefault(released(leases[offset].attempt), []).append(offset)
            end = shared.wait(lane, waits, journal.given_back) if waits else 0
            # What a signal handler struck is released, and may be in the journal alone.
            shared.keep_short()
        if offsets:
            shared.on_ready(len(offsets))
        shared.meter.released.add(len(offsets))
        shared.sync(end)
        return self._refused(lane, refused, raises=raises)

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
        check_reason(reason, error)
        shared = self._shared
        if shared.is_dead_letter_topic:
            raise InvalidRequest(f"{self.topic} holds dead letters already: ack the message, or redrive it")
        with shared.lock:
            offsets, refused = self._valid(lane, claims)
            leases = shared.lanes[lane].leases
            verdicts = {o: Verdict(leases[o].attempt, reason or "rejected", error or "") for o in offsets}
            if verdicts:
                self._dead_letters.dead_letter(lane, verdicts, shared.clock.now_us())
        return self._refused(lane, refused, raises=raises)

    @entered
    def extend(
        self, lane: int, claims: Sequence[Claim], seconds: Period, *, raises: bool = True
    ) -> list[Claim]:
        """Leases end so many seconds from now."""
        lease_us = seconds_us("the lease", seconds, lowest=0.001)
        shared = self._shared
        with shared.lock:
            offsets, refused = self._valid(lane, claims)
            deadline = shared.clock.now_us() + lease_us
            held = shared.lanes[lane].leases
            end = 0
            if offsets:
                leases = {offset: _prolonged(held[offset], deadline) for offset in offsets}
                end = shared.append(
                    b"".join(
                        journal.extended(lane, lease, (offset, offset + 1))
                        for offset, lease in leases.items()
                    )
                )
                shared.deadlines.sweep()
                for offset, lease in leases.items():
                    held[offset] = lease
                    shared.deadlines.watch(lane, lease, (offset,))
        shared.sync(end)
        return self._refused(lane, refused, raises=raises)

    def _check_holds(self, lane: int, claims: Sequence[Claim]) -> None:
        """Before anything is settled: what was deleted is nobody's any more."""
        if self._shared.is_gone:
            raise self._refusal(lane, claims)
        self._shared.check_open()

    def _valid(self, lane: int, claims: Sequence[Claim]) -> tuple[list[int], list[Claim]]:
        """The offsets of the claims that hold, and the claims that do not."""
        shared = self._shared
        self._check_holds(lane, claims)
        leases, now_us = shared.lanes[lane].leases, shared.clock.now_us()
        offsets = [offset for offset, _ in claims]
        found = list(map(leases.get, offsets))
        first = found[0] if found else None
        if (
            first is not None
            and first.deadline > now_us
            and found.count(first) == len(found)
            and all(token == first.token for _, token in claims)
            and len(set(offsets)) == len(offsets)
        ):
            return offsets, []
        valid: dict[int, None] = {}
        refused: list[Claim] = []
        for claim, lease in zip(claims, found, strict=True):
            if lease is None or lease.token != claim[1] or lease.deadline <= now_us:
                refused.append(claim)
            else:
                valid[claim[0]] = None
        shared.meter.refused.add(len(refused))
        return list(valid), refused

    def _refused(self, lane: int, refused: list[Claim], *, raises: bool) -> list[Claim]:
        if refused and raises:
            raise self._refusal(lane, refused)
        return refused

    def _refusal(self, lane: int, claims: Sequence[Claim]) -> LeaseExpired:
        receipts = [Receipt(self.topic, self.partition, lane, offset, token) for offset, token in claims]
        return LeaseExpired(receipts=list(map(str, receipts)))


def _prolonged(lease: Lease, deadline: int) -> Lease:
    return Lease(lease.attempt, deadline, lease.token, lease.holder, lease.since)
