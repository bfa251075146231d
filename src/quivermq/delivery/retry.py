"""When a message that failed is tried again."""

from random import random
from typing import NamedTuple

from quivermq.topic.settings import TopicSettings

# 2**40 milliseconds are thirty years: more doubling would only make the numbers large.
_DOUBLINGS_MAX = 40


class Retry(NamedTuple):
    """A message that waits: how often it was delivered already, and when it is due."""

    attempt: int
    due: int


def backoff_us(attempt: int, settings: TopicSettings) -> int:
    """How long to wait after a failed attempt: twice as long each time, up to a limit.

    Up to half of it is left to chance, so that what failed together does not come back together.
    """
    wait_ms = settings.backoff_ms * 2 ** min(attempt - 1, _DOUBLINGS_MAX)
    return int(min(wait_ms, settings.backoff_ms_max) * 1000 * (0.5 + random() / 2))


def is_last(attempt: int, settings: TopicSettings) -> bool:
    """Whether no attempt follows this one."""
    return settings.attempts_max is not None and attempt >= settings.attempts_max
