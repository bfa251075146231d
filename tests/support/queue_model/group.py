"""The messages of a topic as one group sees them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from support.queue_model.messages import DeadRecord, Place, Sent
from support.queue_model.states import (
    Anything,
    Doomed,
    Finished,
    Leased,
    Rules,
    State,
    Waiting,
    attempt_if_delivered,
    death,
    is_held,
    is_ready,
)

States = frozenset[State]
NEW: States = frozenset({Waiting()})
FINISHED: States = frozenset({Finished()})


class GroupModel:
    """What each message may be for this group. Every answer of the queue rules some of it out."""

    def __init__(self, name: str, log: dict[Place, Sent], rules: Rules) -> None:
        self.name = name
        self.exists = False
        """A group comes to be with its first get or seek; until then it keeps nothing alive."""
        self.may_exist = False
        self.receipts: dict[str, Place] = {}
        self._log = log
        self._rules = rules
        self._states: dict[Place, States] = {}

    def states(self, place: Place) -> States:
        return self._states.get(place, NEW)

    @contextmanager
    def maybe(self) -> Iterator[None]:
        """A crash interrupted what happens in this block: it may have happened to any of the messages."""
        before = dict(self._states)
        yield
        for place in self._log:
            self._states[place] = self.states(place) | before.get(place, NEW)

    def delivered(self, place: Place, attempt: int, receipt: str | None, now: int, lease: int) -> None:
        """The queue handed this message out."""
        sent = self._log[place]
        assert not sent.is_expired(now), f"{self.name}: delivered after its time to live: {sent}"
        self._keep(
            place,
            lambda state: state == Anything() or self._attempt(state, now) == attempt,
            f"delivered as attempt {attempt}",
        )
        if attempt == 1:
            self._check_order_in_lane(place, now)
        if self._rules.is_ordered_by_key and sent.key is not None:
            self._check_order_of_key(place, sent.key, now)
        self._states[place] = frozenset({Leased(attempt, now + lease, receipt)})
        if receipt is not None:
            assert receipt not in self.receipts, "two deliveries with one receipt"
            self.receipts[receipt] = place

    def nothing_delivered(self, now: int) -> None:
        """The queue had nothing to hand out: whatever is ready must have a reason to stay."""
        for place, sent in self._log.items():
            if not sent.is_expired(now) and not self._key_may_be_held(place, now):
                self._keep(place, lambda state: not self._is_ready(state, now), "not delivered")

    def interrupted_delivery(self, now: int, lease: int, *, finished: bool = False) -> None:
        """A crash came while the queue was choosing: it may have chosen any of those that it could."""
        for place, sent in self._log.items():
            states = self.states(place)
            attempts = {self._attempt(state, now) for state in states} - {None}
            if not sent.is_expired(now):
                chosen = {Leased(attempt, now + lease, None) for attempt in attempts if attempt}
                done = FINISHED if finished and chosen else frozenset[State]()
                self._states[place] = states | chosen | done

    def is_plausible(self, place: Place, now: int) -> bool:
        """Whether the message could be delivered now, as far as anybody can tell."""
        return any(
            state == Anything() or self._attempt(state, now) is not None for state in self.states(place)
        )

    def popped(self, place: Place, attempt: int, now: int) -> None:
        """The queue handed this message out for good."""
        self.delivered(place, attempt, None, now, lease=0)
        self._states[place] = FINISHED

    def is_live(self, receipt: str, now: int) -> bool:
        """Whether the receipt may be valid, as far as anybody can tell."""
        states = self.states(self.receipts[receipt])
        return any(state == Anything() or self._is_live(state, receipt, now) for state in states)

    def settled(self, receipt: str, now: int, become: Callable[[int], State]) -> None:
        """The queue took an ack, nack, reject or extend; `become` says what becomes of the attempt."""
        place = self.receipts[receipt]
        self._keep(
            place,
            lambda state: state == Anything() or self._is_live(state, receipt, now),
            "settled with a receipt that is no longer valid",
        )
        self._states[place] = frozenset(
            become(state.attempts) if isinstance(state, Leased) else state for state in self.states(place)
        )

    def refused(self, receipt: str, now: int) -> None:
        """The queue said that the lease is over."""
        place = self.receipts[receipt]
        # A message that retention removed is of no interest to anybody.
        if place in self._log:
            self._keep(
                place,
                lambda state: not self._is_live(state, receipt, now),
                "refused, though the receipt is valid",
            )

    def failed(self, attempts: int, now: int, *, delay: int | None, reason: str | None) -> State:
        """What a nack makes of an attempt."""
        if attempts >= self._rules.attempts_max:
            return Doomed(attempts, reason or "attempts", "")
        if delay is None:
            return self._rules.retry(attempts, now)
        return Waiting(attempts, now + delay, now + delay)

    def sought(self, lanes: Iterable[tuple[int, str]], offset: int | None) -> None:
        """Everything from `offset` on is new again, everything before is done. None is the end."""
        for place in self._log:
            if place.lane in lanes:
                is_done = offset is None or place.offset < offset
                self._states[place] = FINISHED if is_done else NEW

    def died(self, record: DeadRecord, now: int) -> None:
        """The queue moved this message to the dead letters."""
        sent = self._log[record.place]
        sent.check(record.value, record.key, record.headers)

        def fits(state: State) -> bool:
            return state == Anything() or (record.attempts, record.reason, record.error) in set(
                self._deaths(state, sent, now)
            )

        self._keep(record.place, fits, f"a dead letter: {record}")
        self._states[record.place] = FINISHED

    def nothing_else_died(self, now: int) -> None:
        """All dead letters were counted: what ought to be one and is not was lost, or is late."""
        for place in self._log:
            self._keep(
                place,
                lambda state: death(state, now, self._rules.attempts_max) is None,
                "missing among the dead letters",
            )

    def _deaths(self, state: State, sent: Sent, now: int) -> Iterator[tuple[int, str, str]]:
        if doomed := death(state, now, self._rules.attempts_max):
            yield doomed.attempts, doomed.reason, doomed.error
        if sent.is_expired(now) and self._rules.dead_letters_expired:
            match state:
                case Waiting(attempts):
                    yield attempts, "expired", ""
                case Leased(attempts, deadline) if deadline <= now:
                    yield attempts, "expired", ""

    def time_went_back(self, then: int) -> None:
        """A queue that was opened again reads an earlier time than it knew: it may have acted on either."""
        for place, sent in self._log.items():
            also: set[State] = set()
            for state in self.states(place):
                # Pending again at that moment, or only once the moment comes a second time.
                match state:
                    case Leased(attempts, deadline) if self._attempt(state, then) is not None:
                        also.add(Waiting(attempts, 0, deadline))
                    case Waiting(attempts, earliest, latest) if earliest <= then:
                        also.add(Waiting(attempts, 0, latest))
                if sent.is_expired(then):
                    also.add(Finished())
            self._states[place] = self.states(place) | also

    def forget(self, gone: Iterable[Place], now: int) -> None:
        """Retention removed these messages, which it may do once the group has finished with them."""
        for place in gone:
            is_over = self.may_have_finished(place) or self._log[place].is_expired(now)
            assert is_over or not self.exists, f"{self.name}: removed unfinished: {place}"
            self._states.pop(place, None)

    def lost_certainty(self) -> None:
        """The power went, and with it what was written but not synced."""
        self._states = dict.fromkeys(self._log, frozenset({Anything()}))

    def check_finished(self, now: int) -> None:
        """Everything was handed out and acknowledged that could be: nothing may be left."""
        for place, sent in self._log.items():
            left = f"{self.name}: {place} was lost, it is {set(self.states(place))}: {sent}"
            assert sent.is_expired(now) or self.may_have_finished(place), left

    def may_have_finished(self, place: Place) -> bool:
        return not self.states(place).isdisjoint({Finished(), Anything()})

    def _check_order_in_lane(self, place: Place, now: int) -> None:
        """First deliveries of a lane come in the order of its log.

        With order inside of keys, one that waited for its turn may be overtaken by other keys, also by
        those of the very call in which its turn came: that is for `_check_order_of_key`.
        """
        for earlier, sent in self._log.items():
            is_before = earlier.lane == place.lane and earlier.offset < place.offset
            had_to_wait = self._rules.is_ordered_by_key and sent.key not in (None, self._log[place].key)
            if had_to_wait:
                continue
            if is_before and not sent.is_expired(now) and not self._key_may_wait(earlier):
                self._keep(earlier, lambda state: state != Waiting(), f"overtaken by {place}")

    def _check_order_of_key(self, place: Place, key: bytes, now: int) -> None:
        """No two of a key are in flight, and none comes before an older one of its lane is finished."""
        for other in self._others_of_key(place, key):
            self._keep(
                other,
                lambda state: not (isinstance(state, Leased) and state.deadline > now),
                f"in flight beside {place}, which has the same key",
            )
            is_older = other.lane == place.lane and other.offset < place.offset
            if is_older and not self._log[other].is_expired(now):
                self._keep(
                    other,
                    lambda state: not isinstance(state, Waiting | Leased),
                    f"unfinished, but {place} of the same key was delivered",
                )

    def _key_may_be_held(self, place: Place, now: int) -> bool:
        """Whether another message of the key may be in flight, or waiting for its retry."""
        return any(
            state == Anything() or is_held(state, now)
            for other in self._others_of_key(place, self._log[place].key)
            for state in self.states(other)
        )

    def _key_may_wait(self, place: Place) -> bool:
        """Whether another message of the key may have to be finished first."""
        return any(
            self.states(other) != FINISHED
            for other in self._others_of_key(place, self._log[place].key)
            if other.lane != place.lane or other.offset < place.offset or self.states(other) != NEW
        )

    def _others_of_key(self, place: Place, key: bytes | None) -> list[Place]:
        if key is None or not self._rules.is_ordered_by_key:
            return []
        return [
            other
            for other, sent in self._log.items()
            if sent.key == key and other.partition == place.partition and other != place
        ]

    def _keep(self, place: Place, fits: Callable[[State], bool], what: str) -> None:
        """Rule out the states that do not fit what the queue just showed. One has to be left."""
        states = self.states(place)
        kept = frozenset(state for state in states if fits(state))
        assert kept, f"{self.name}: {place} {what}, but it is {set(states)}: {self._log[place]}"
        self._states[place] = kept

    def _attempt(self, state: State, now: int) -> int | None:
        return attempt_if_delivered(state, now, self._rules.attempts_max)

    def _is_ready(self, state: State, now: int) -> bool:
        return is_ready(state, now, self._rules.attempts_max)

    def _is_live(self, state: State, receipt: str, now: int) -> bool:
        return isinstance(state, Leased) and state.receipt == receipt and state.deadline > now
