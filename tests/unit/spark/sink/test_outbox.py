"""What is given is done in its order, and what goes wrong is heard of."""

import threading

import pytest

from quivermq.spark.sink.sending import Outbox


def test_everything_is_done_in_its_order_by_one_other_thread() -> None:
    done: list[tuple[int, int]] = []
    with Outbox() as outbox:
        for number in range(20):
            outbox.add(lambda number=number: done.append((number, threading.get_ident())))  # type: ignore[misc]
        outbox.finish()
    assert [number for number, _ in done] == list(range(20))
    assert {thread for _, thread in done}.isdisjoint({threading.get_ident()})


def test_an_error_is_raised_and_nothing_is_done_after_it() -> None:
    done: list[int] = []

    def fail() -> None:
        raise RuntimeError("no")

    with Outbox() as outbox:
        outbox.add(fail)
        outbox.add(lambda: done.append(1))
        with pytest.raises(RuntimeError, match="no"):
            outbox.add(lambda: done.append(2))
        outbox.finish()
    with Outbox() as outbox:
        outbox.add(fail)
        with pytest.raises(RuntimeError, match="no"):
            outbox.finish()
    assert done == []
