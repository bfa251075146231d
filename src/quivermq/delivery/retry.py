"""When a message that failed is tried again."""

from math import log
from random import random
from typing import NamedTuple

from quivermq.topic.settings import TopicSettings

# e**650 is more than any period: to grow further would only overflow.
_GROWTH_MAX = 650


class Retry(NamedTuple):
    """A message that waits: how often it was delivered already, and when it is due."""

    attempt: int
    due: int


# It waits for the earlier ones of its key.
FOR_ITS_TURN = Retry(0, 0)
# When a message that was given back is due: at once, whatever the clock says, and before those that failed.
# So what was given back comes again in the order in which it lies.
_AT_ONCE = 1


def released(attempt: int) -> Retry:
    """What waits after it was given back: the attempt that had begun does not count."""
    return Retry(attempt - 1, _AT_ONCE)


# It waited for the earlier ones of its key, and now it is its turn.
NOW = released(1)


def backoff_us(attempt: int, settings: TopicSettings) -> int:
    """How long to wait after a failed attempt: longer by a factor each time, up to a limit.

    Up to half of it is left to chance, so that what failed together does not come back together.
    """
    multiplier, steps = settings.backoff_multiplier, attempt - 1
    if multiplier > 1:
        steps = min(steps, int(_GROWTH_MAX / log(multiplier)))
    wait_ms = settings.backoff_ms * multiplier**steps
    return int(min(wait_ms, settings.backoff_ms_max) * 1000 * (0.5 + random() / 2))


def is_last(attempt: int, settings: TopicSettings) -> bool:
    """Whether no attempt follows this one."""
    return settings.attempts_max is not None and attempt >= settings.attempts_max
