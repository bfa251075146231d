"""Waiting for messages without asking again and again."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from quivermq.delivery.delivery import Delivery
from quivermq.engine.hosted import Hosted
from quivermq.group.bell import Bell, Waiter, leave
from quivermq.group.group import Group

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine

Groups = Callable[[], list[tuple[Hosted, Group]]]


def wait_for(
    take: Callable[[], list[Delivery]], timeout: float | None, engine: "Engine", groups: Groups
) -> list[Delivery]:
    """What `take` finds, as soon as it finds something; nothing after `timeout` seconds."""
    found = take()
    left = timeout
    while not found and (left is None or left > 0):
        waited, found = _wait_once(take, left, engine, groups())
        if left is not None:
            left -= waited
    return found


def _wait_once(
    take: Callable[[], list[Delivery]],
    left: float | None,
    engine: "Engine",
    groups: list[tuple[Hosted, Group]],
) -> tuple[float, list[Delivery]]:
    """Wait for a ring, for something to fall due, or for the time to be over, then look again."""
    bells: list[Bell] = [engine.topic_bell, *(group.bell for _, group in groups)]
    event = threading.Event()
    waiter = Waiter(event.set)
    for bell in bells:
        bell.waiting.append(waiter)
    waited = 0.0
    try:
        # Somebody may have put between the last look and the bells.
        found = take()
        if not found:
            start = engine.clock.monotonic()
            wait_s = _until_next_event(engine, groups, left)
            was_rung = event.wait(wait_s)
            waited = engine.clock.monotonic() - start if was_rung or wait_s is None else wait_s
    except BaseException:
        leave(waiter, bells, pass_on=True)
        raise
    leave(waiter, bells, pass_on=bool(found))
    if found:
        return waited, found
    try:
        found = take()
    except BaseException:
        _wake_next(engine, groups)
        raise
    if len(groups) > 1:
        # Woken for one topic, it may have been served by another: somebody else looks after the first.
        _wake_next(engine, groups)
    return waited, found


def _wake_next(engine: "Engine", groups: list[tuple[Hosted, Group]]) -> None:
    """Wake somebody for what is still there."""
    now_us = engine.clock.now_us()
    for _, group in groups:
        if group.bell.waiting and group.has_ready(now_us):
            group.bell.ring()


def _until_next_event(
    engine: "Engine", groups: list[tuple[Hosted, Group]], left: float | None
) -> float | None:
    """How long nothing can happen by time alone."""
    times = [group.next_event() for _, group in groups]
    times += [hosted.topic.delays.next_due for hosted, _ in groups]
    waits = [max(0.0, (time - engine.clock.now_us()) / 1_000_000) for time in times if time is not None]
    if left is not None:
        waits.append(left)
    return min(*waits, threading.TIMEOUT_MAX) if waits else None
