"""Waiting for something to take without taking it, as whoever asks several backends at once does."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import serving
from support.threads import PATIENCE_S

import quivermq
from quivermq.model.operations import WaitForMessages


@pytest.fixture(params=["open", "connect"])
def mq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quivermq.Connection]:
    if request.param == "open":
        with quivermq.open(tmp_path) as mq:
            yield mq
    else:
        with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
            yield mq


def wait(mq: quivermq.Connection, seconds: float, topic: str = "orders") -> bool:
    return mq.backend.queue(topic, "default").perform(WaitForMessages(seconds))


def test_it_says_whether_there_is_something_and_takes_nothing(mq: quivermq.Connection) -> None:
    orders = mq.queue("orders")
    assert not wait(mq, 0)
    orders.put(b"x")
    assert wait(mq, 0)
    assert wait(mq, 0, "*")
    message = orders.get()
    assert message is not None
    assert message.attempt == 1
    assert not wait(mq, 0)
    message.nack(0)
    assert wait(mq, PATIENCE_S)


def test_everybody_who_waits_is_told_of_one_message(mq: quivermq.Connection) -> None:
    mq.queue("orders").put(b"first")
    mq.queue("orders").pop()
    told: list[bool] = []
    threads = [
        threading.Thread(target=lambda: told.append(wait(mq, PATIENCE_S)), daemon=True) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    mq.queue("orders").put(b"x")
    for thread in threads:
        thread.join(PATIENCE_S)
    assert told == [True] * 3


def test_a_paused_group_has_nothing_to_take(mq: quivermq.Connection) -> None:
    orders = mq.queue("orders")
    orders.put(b"x")
    orders.peek()
    assert wait(mq, 0)
    orders.pause()
    assert not wait(mq, 0)
    orders.resume()
    assert wait(mq, 0)


def test_what_is_delayed_is_there_once_it_is_due(mq: quivermq.Connection) -> None:
    mq.queue("orders").put(b"x", delay=0.05)
    assert wait(mq, PATIENCE_S)
    assert mq.queue("orders").get() is not None
