"""Calls that interrupt another call of the same thread: those of signal handlers, finalizers, logging.

A signal handler runs in the main thread, between any two steps of whatever that thread does; the garbage
collector closes a generator in whichever thread it happens to run. If that thread is in a call that holds a
lock, a second call that wants the same lock would wait for itself for ever. So each call notes the thread
that it runs in, and a second one in that thread is refused with `Reentered` before it has touched anything.
What has to happen all the same, such as closing and giving back, happens when the first call ends.
"""

import logging
import os
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from quivermq.errors import Reentered

logger = logging.getLogger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])

# The threads that are inside of a call. Adding and discarding are single steps of the interpreter.
inside: set[int] = set()

# Those that are in something made of several calls, whose parts are not refused.
_holding: set[int] = set()

# What waits for the call of a thread to end.
postponed: dict[int, list[Callable[[], object]]] = {}


def entered(method: Method) -> Method:
    """Have a method note its thread, and refuse to interrupt another call.

    It may not call another such method, nor code of users, but for `outside`. The hottest ones write out
    what is here, because a call costs them more than all of this.
    """

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        thread = get_ident()
        if thread in inside:
            raise refusal()
        try:
            # Within the block: an exception of a signal handler may strike right behind this.
            inside.add(thread)
            return method(*args, **kwargs)
        finally:
            # Before anything that is written in Python: there a signal handler may raise.
            inside.discard(thread)
            if postponed:
                finish(thread)

    return cast(Method, call)


@contextmanager
def outside() -> Iterator[None]:
    """Let code of users, which a call has to run, make calls of its own."""
    thread = get_ident()
    inside.discard(thread)
    try:
        yield
    finally:
        inside.add(thread)


def held(method: Method) -> Method:
    """Let a method make calls while it holds a lock: what `soon` is asked for waits for all of it.

    No context manager: a signal that strikes when that is left would leave the thread marked.
    """

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        thread = get_ident()
        if thread in _holding:
            return method(*args, **kwargs)
        try:
            _holding.add(thread)
            return method(*args, **kwargs)
        finally:
            _holding.discard(thread)
            if postponed and thread not in inside:
                finish(thread)

    return cast(Method, call)


def is_inside() -> bool:
    """Whether this thread was interrupted in a call."""
    thread = get_ident()
    return thread in inside or thread in _holding


def soon(act: Callable[[], object]) -> None:
    """Do it now, or, when that would interrupt a call of this thread, as soon as the call has ended."""
    if is_inside():
        postponed.setdefault(get_ident(), []).append(act)
    else:
        act()


def finish(thread: int) -> None:
    """Do what was to wait for the end of this thread's call."""
    if thread in _holding:
        return
    for act in postponed.pop(thread, ()):
        try:
            act()
        except Exception:
            # Whoever asked for it is gone, and the call that was interrupted has its own result.
            logger.exception("what was asked for during another call has failed")


def refusal() -> Reentered:
    """What a call gets that interrupts another."""
    return Reentered(
        "this call interrupts another one of the same thread, which may hold what it would wait for:"
        " in a signal handler set a flag, raise SystemExit, or call close(), which waits its turn"
    )


def _forget() -> None:
    inside.clear()
    _holding.clear()
    postponed.clear()


if hasattr(os, "register_at_fork"):
    # A child has one thread, and nobody is inside of a call that could end.
    os.register_at_fork(after_in_child=_forget)
