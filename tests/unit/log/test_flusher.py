"""The background thread, by the real clock: what is due is done, in order, and errors end nothing."""

import logging
import threading
from pathlib import Path

import pytest
from support.threads import PATIENCE_S, wait_until

from quivermq.clock import SystemClock
from quivermq.errors import DiskFull
from quivermq.log.flusher import Flusher


class Called:
    """Calls that a flusher makes, in order, and a way to wait for them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._condition = threading.Condition()

    def by(self, name: str) -> None:
        with self._condition:
            self.names.append(name)
            self._condition.notify_all()

    def wait_for(self, count: int) -> list[str]:
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.names) >= count, PATIENCE_S)
            return list(self.names)


@pytest.fixture
def called() -> Called:
    return Called()


def test_a_thread_is_started_only_when_it_is_needed(called: Called) -> None:
    before = threading.active_count()
    flusher = Flusher(SystemClock())
    assert threading.active_count() == before
    flusher.schedule(0, lambda: called.by("a"))
    wait_until(lambda: threading.active_count() == before + 1)
    assert called.wait_for(1) == ["a"]
    flusher.close()
    assert threading.active_count() == before


def test_calls_come_in_the_order_in_which_they_fall_due(called: Called) -> None:
    flusher = Flusher(SystemClock())
    gate = threading.Event()

    def wait() -> None:
        gate.wait(PATIENCE_S)

    flusher.schedule(0, wait)
    for name, after_s in [("c", 0.003), ("a", 0.0), ("b", 0.002), ("d", 0.003)]:
        flusher.schedule(after_s, lambda name=name: called.by(name))  # type: ignore[misc]
    gate.set()
    assert called.wait_for(4) == ["a", "b", "c", "d"]
    flusher.close()


def test_one_that_falls_due_earlier_is_not_kept_waiting_by_a_later_one(called: Called) -> None:
    flusher = Flusher(SystemClock())
    flusher.schedule(10**6, lambda: called.by("late"))
    flusher.schedule(0.0, lambda: called.by("early"))
    assert called.wait_for(1) == ["early"]
    flusher.close()
    assert called.names == ["early"]


def test_an_error_is_noted_and_ends_nothing(called: Called, caplog: pytest.LogCaptureFixture) -> None:
    flusher = Flusher(SystemClock())

    def fail() -> None:
        raise DiskFull(Path("x"), needed_bytes=1)

    with caplog.at_level(logging.ERROR):
        flusher.schedule(0, fail)
        flusher.schedule(0, lambda: called.by("after"))
        assert called.wait_for(1) == ["after"]
    assert "background write failed: no space left" in caplog.text
    flusher.close()


def test_after_closing_nothing_is_called(called: Called) -> None:
    flusher = Flusher(SystemClock())
    flusher.schedule(10**6, lambda: called.by("never"))
    flusher.close()
    flusher.close()
    flusher.schedule(0, lambda: called.by("never"))
    assert called.names == []


def test_closing_waits_for_the_call_that_is_running(called: Called) -> None:
    flusher = Flusher(SystemClock())
    arrived, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        arrived.set()
        go_on.wait(PATIENCE_S)
        called.by("slow")

    flusher.schedule(0, slow)
    assert arrived.wait(PATIENCE_S)
    closing = threading.Thread(target=flusher.close)
    closing.start()
    assert called.names == []
    go_on.set()
    closing.join(PATIENCE_S)
    assert called.names == ["slow"]


def test_a_call_may_close_the_flusher(called: Called) -> None:
    flusher = Flusher(SystemClock())

    def close() -> None:
        flusher.close()
        called.by("closed")

    flusher.schedule(0, close)
    assert called.wait_for(1) == ["closed"]


def test_a_call_may_schedule_the_next(called: Called) -> None:
    flusher = Flusher(SystemClock())

    def again() -> None:
        called.by("again")
        if len(called.names) < 5:
            flusher.schedule(0, again)

    flusher.schedule(0, again)
    assert len(called.wait_for(5)) == 5
    flusher.close()
