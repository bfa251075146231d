"""What a group does, in one word, by rules that are the same for people and for programs.

| state | when |
|---|---|
| paused | somebody has paused it |
| idle | nothing is unfinished |
| stalled | some are pending, the oldest for over a minute; none is in hand, none was taken for a minute |
| catching_up | it takes messages, more than a minute's work is pending, and that becomes less |
| falling_behind | it takes messages, more than a minute's work is pending, and that does not become less |
| consuming | it takes messages, or has some in hand |
| waiting | what is unfinished came less than a minute ago, or is not due yet |

In queue mode to take a message is to be handed it, in stream mode to commit an offset behind it.
"""

from dataclasses import dataclass

from quivermq.model.stats import GroupState

MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """How a group has moved lately, as far as anybody has watched."""

    moved_us: int | None = None
    """When it was last seen to take or finish a message; None when never since the queue was opened."""
    taken: int = 0
    """How many it took since the mark."""
    mark_us: int = 0
    """When that mark was set: some time of the last minute."""
    mark_pending: int = 0
    """How many messages were pending then."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a group has before it."""

    pending: int
    in_flight: int
    retrying: int
    waiting_for_key: int
    oldest_us: int
    """When the oldest unfinished message came in; 0 when there is none."""


def state_of(load: Load, pace: Pace, now_us: int, *, is_paused: bool = False) -> GroupState:
    """The state of a group."""
    if is_paused:
        return "paused"
    if not (load.pending or load.in_flight or load.retrying or load.waiting_for_key):
        return "idle"
    has_moved = pace.moved_us is not None and now_us - pace.moved_us < MINUTE_US
    if load.pending and not (has_moved or load.in_flight):
        is_old = bool(load.oldest_us) and now_us - load.oldest_us > MINUTE_US
        return "stalled" if is_old else "waiting"
    if has_moved and _is_behind(load, pace, now_us):
        return "catching_up" if load.pending < pace.mark_pending else "falling_behind"
    return "consuming" if has_moved or load.in_flight else "waiting"


def _is_behind(load: Load, pace: Pace, now_us: int) -> bool:
    """Whether more is pending than it takes in a minute."""
    passed_us = now_us - pace.mark_us
    return passed_us > 0 and pace.taken > 0 and load.pending > pace.taken * MINUTE_US / passed_us
