"""Giving back: what is not settled, once nobody renews it, and never in the middle of another call."""

import pickle
from pathlib import Path
from typing import Any, cast

import pytest

import quivermq
from quivermq.delivery.delivery import release_quietly, release_unsettled
from quivermq.model.deliveries import Delivery
from quivermq.reentry import entering


class Message:
    def __init__(self, is_settled: bool) -> None:
        self.is_settled = is_settled


class Queue:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def release(self, held: list[Delivery]) -> None:
        self.told.append(held)


def messages(*are_settled: bool) -> list[Delivery]:
    return [cast(Delivery, Message(is_settled)) for is_settled in are_settled]


def test_only_what_is_not_settled_is_given_back() -> None:
    queue, held = Queue(), messages(True, False, True)
    release_unsettled(queue, held)
    assert queue.told == [[held[1]]]
    release_unsettled(queue, messages(True))
    assert len(queue.told) == 1


def test_whoever_renews_it_lets_go_first() -> None:
    queue, held = Queue(), messages(False)
    release_unsettled(queue, held, lambda: queue.told.append("let go"))
    assert queue.told == ["let go", held]


def test_another_call_comes_to_its_end_first() -> None:
    queue, held = Queue(), messages(False)
    with entering():
        release_unsettled(queue, held, lambda: queue.told.append("let go"))
        assert queue.told == []
    assert queue.told == ["let go", held]


@pytest.mark.parametrize("attempts_max", [1, 2])
def test_a_pickled_delivery_knows_whether_it_is_the_last_attempt(tmp_path: Path, attempts_max: int) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", attempts_max=attempts_max)
        mq.queue("orders").put(b"x")
        [message] = mq.queue("orders").get_many(1)
        assert pickle.loads(pickle.dumps(message)).is_last_attempt is (attempts_max == 1)


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (quivermq.LeaseExpired(receipts=["orders:0:1:0:1"]), False),
        (quivermq.Closing("closed"), False),
        (quivermq.QuiverError("the disk"), True),
    ],
)
def test_only_what_could_not_be_given_back_is_told(
    caplog: pytest.LogCaptureFixture, error: Exception, is_told: bool
) -> None:
    def release(_: list[int]) -> None:
        raise error

    release_quietly(release, [1])
    assert bool(caplog.records) is is_told
