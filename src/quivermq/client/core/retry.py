"""When a call is made again, and after which wait."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import random

from quivermq.client.core.call import Answer, Broken, Call, Flow, Outcome, Pause
from quivermq.client.core.failure import failure_of
from quivermq.errors import (
    Closing,
    DiskRefused,
    Overloaded,
    QuiverError,
    RateLimited,
    Unavailable,
)
from quivermq.model.checks import check_number

_RETRY_AFTER_S_MAX = 60.0
# A broker of a cluster says where the shard is: for those who know the cluster by one broker, an error.
_ELSEWHERE = 307


@dataclass(frozen=True, slots=True)
class Retry:
    """Growing waits with jitter, so that a broker that comes back is not met by everybody at once."""

    retries: int = 8
    first_s: float = 0.05
    longest_s: float = 5.0
    is_patient: bool = False
    """Whether a full backlog and a full disk are waited for. A `put` tells its caller at once, as it does
    embedded; a producer has promised to deliver."""

    def __post_init__(self) -> None:
        check_number("retries", self.retries, 0, 2**31)

    def wait_s(self, attempt: int) -> float:
        """How long to wait after the attempt of that number, counted from 0."""
        longest = min(self.longest_s, self.first_s * 2.0 ** min(attempt, 30))
        return longest * (0.5 + random() / 2)

    def may_repeat(self, call: Call, outcome: Answer | Broken, error: QuiverError) -> bool:
        """Whether the same call may be made again without doing anything twice."""
        if isinstance(outcome, Broken):
            return call.is_repeatable or not outcome.was_sent
        if isinstance(error, Overloaded | DiskRefused):
            return self.is_patient
        # The broker said that it did nothing; whatever stands before it cannot know.
        if isinstance(error, RateLimited | Closing):
            return True
        return isinstance(error, Unavailable) and call.is_repeatable


def asked(
    call: Call, retry: Retry, anew: Callable[[Answer | Broken], Flow[Call]] | None = None
) -> Flow[Answer]:
    """The answer to a call, made again as often as that is safe and may help. Raises what it answers.

    What is made again is the same call, or what `anew` makes of the outcome.
    """
    for attempt in count():
        outcome: Outcome = yield call
        assert outcome is not None, "a call has an outcome"
        if isinstance(outcome, Answer) and (outcome.status < _ELSEWHERE or outcome.status in call.takes):
            return outcome
        error = failure_of(outcome)
        if attempt >= retry.retries or not retry.may_repeat(call, outcome, error):
            raise error
        yield Pause(max(retry.wait_s(attempt), retry_after_s(outcome)))
        if anew is not None:
            call = yield from anew(outcome)
    raise AssertionError("the count has no end")


def retry_after_s(outcome: Answer | Broken) -> float:
    """How long the broker asks to be left alone."""
    text = "" if isinstance(outcome, Broken) else outcome.headers.get("retry-after", "")
    return min(float(text), _RETRY_AFTER_S_MAX) if text.isascii() and text.isdigit() else 0.0
