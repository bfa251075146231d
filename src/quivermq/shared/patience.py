"""Asking a store again that did not answer."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from quivermq.clock import Clock
from quivermq.errors import StoreUnreachable
from quivermq.shared.limits import SharedLimits

logger = logging.getLogger(__name__)

Answered = TypeVar("Answered")


def patiently(act: Callable[[], Answered], limits: SharedLimits, clock: Clock) -> Answered:
    """Do it again while the store does not answer, for as long as a sync would wait."""
    deadline = clock.monotonic() + limits.commit_timeout_s
    backoff_s = limits.backoff_s
    while True:
        try:
            return act()
        except StoreUnreachable as error:
            if clock.monotonic() + backoff_s >= deadline:
                raise
            if backoff_s == limits.backoff_s:
                # Somebody may be waiting at a terminal.
                logger.warning("%s; trying again for %g s", error, limits.commit_timeout_s)
        time.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, limits.backoff_s_max)
