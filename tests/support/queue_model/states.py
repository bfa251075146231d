"""The states of one message for one group. All times are microseconds of the queue's steady clock."""

from dataclasses import dataclass


@dataclass(slots=True)
class Rules:
    """The settings of a topic that decide what happens to a delivery."""

    attempts_max: int = 3
    lease: int = 30_000_000
    backoff: int = 1_000_000
    backoff_max: int = 60_000_000
    is_ordered_by_key: bool = False
    dead_letters_expired: bool = False
    dedup_window: int = 600_000_000

    def retry(self, attempts: int, now: int) -> "Waiting":
        """Where a nack without a delay leads to: twice as far each time, less up to half of it."""
        longest = min(self.backoff * 2 ** (attempts - 1), self.backoff_max)
        return Waiting(attempts, now + longest // 2, now + longest)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pending, or scheduled for a retry. It must not be delivered before, nor wait after."""

    attempts: int = 0
    earliest: int = 0
    latest: int = 0


@dataclass(frozen=True, slots=True)
class Leased:
    """In flight until the deadline, then pending again. Nobody was told the receipt if it is None."""

    attempts: int
    deadline: int
    receipt: str | None


@dataclass(frozen=True, slots=True)
class Doomed:
    """To be found among the dead letters by whoever looks next."""

    attempts: int
    reason: str
    error: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Acknowledged, a dead letter, or skipped: never to be delivered again."""


@dataclass(frozen=True, slots=True)
class Anything:
    """Nothing is known, because something was lost that nobody had promised to keep."""


State = Waiting | Leased | Doomed | Finished | Anything


def attempt_if_delivered(state: State, now: int, attempts_max: int) -> int | None:
    """Which attempt a delivery at this moment would be, None if there must not be one."""
    match state:
        case Waiting(attempts, earliest, _) if earliest <= now:
            return attempts + 1
        case Leased(attempts, deadline, _) if deadline <= now and attempts < attempts_max:
            return attempts + 1
    return None


def is_ready(state: State, now: int, attempts_max: int) -> bool:
    """Whether the message has to be delivered to whoever asks, if nothing else keeps it."""
    match state:
        case Waiting(_, _, latest):
            return latest <= now
        case Leased(attempts, deadline, _):
            return deadline <= now and attempts < attempts_max
    return False


def death(state: State, now: int, attempts_max: int) -> Doomed | None:
    """The dead letter that this state has become by now, if it has."""
    match state:
        case Doomed():
            return state
        case Leased(attempts, deadline, _) if deadline <= now and attempts >= attempts_max:
            return Doomed(attempts, "lease_expired", "")
    return None


def is_held(state: State, now: int) -> bool:
    """Whether it keeps later messages of its key waiting: in flight, or on its way to a retry."""
    match state:
        case Leased(_, deadline, _):
            return deadline > now
        case Waiting(attempts, _, latest):
            return attempts > 0 and latest > now
    return False
