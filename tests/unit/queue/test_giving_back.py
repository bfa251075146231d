"""Giving back: what is not settled, once nobody renews it, and never in the middle of another call."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from support.entering import entering
from support.manual_clock import ManualClock
from unit.queue.deliveries import delivery

import quivermq
from quivermq.helping import Helper
from quivermq.model.deliveries import Held
from quivermq.model.operations import Settle, Settled
from quivermq.queue.queue import Queue
from quivermq.queue.streaming import Stream


class Told:
    """A backend and a renewer, of which a queue gives messages back."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.told: list[Any] = []
        self.name = "nowhere"
        self.clock = ManualClock()

    def queue(self, *_: object) -> "Told":
        return self

    def settle(self, settle: Settle, held: Sequence[Held]) -> Settled:
        self.told.append([(settle.act, offset) for lease in held for offset in lease.offsets])
        if self.error is not None:
            raise self.error
        return Settled([])

    def release_taken(self, tokens: list[int], retries: int) -> None:
        self.told.append((list(tokens), retries))
        if self.error is not None:
            raise self.error

    def let_go(self, message: quivermq.Delivery) -> None:
        self.told.append(("let go", message.offset))


def queue_of(told: Any) -> Queue:
    renewer: Any = SimpleNamespace(release=told.let_go)
    return Queue(told, renewer, WeakSet[Stream](), "orders", "billing")


def messages(*are_settled: bool) -> list[quivermq.Delivery]:
    found = [delivery(offset) for offset in range(len(are_settled))]
    for message, is_settled in zip(found, are_settled, strict=True):
        message.is_settled = is_settled
    return found


def test_only_what_is_not_settled_is_given_back() -> None:
    told, held = Told(), messages(True, False, True)
    queue_of(told).finish_with(held)
    assert told.told[-1] == [("release", 1)]
    assert all(message.is_settled for message in held)
    told.told.clear()
    queue_of(told).finish_with(messages(True))
    assert told.told == []


def test_whoever_renews_it_lets_go_first() -> None:
    told = Told()
    queue_of(told).finish_with(messages(False, False))
    assert told.told == [("let go", 0), ("let go", 1), [("release", 0), ("release", 1)]]


def test_another_call_comes_to_its_end_first() -> None:
    told = Told()
    with entering():
        queue_of(told).finish_with(messages(False))
        queue_of(told)._give_back([7], KeyboardInterrupt())
        assert told.told == []
    assert told.told == [("let go", 0), [("release", 0)], ([7], 1)]


@pytest.mark.parametrize(("error", "retries"), [(KeyboardInterrupt(), 1), (quivermq.Unreachable("no"), 0)])
def test_what_was_on_its_way_is_asked_for_once_more_by_who_stops(
    error: BaseException, retries: int
) -> None:
    told = Told()
    queue_of(told)._give_back([1, 2], error)
    queue_of(told)._give_back([], error)
    assert told.told == [([1, 2], retries)]


ERRORS = [
    (quivermq.LeaseExpired(receipts=["orders:0:1:0:1"]), False),
    (quivermq.Closing("closed"), False),
    (quivermq.QuiverError("the disk"), True),
]


@pytest.mark.parametrize(("error", "is_told"), ERRORS)
def test_only_what_could_not_be_given_back_is_told(
    caplog: pytest.LogCaptureFixture, error: Exception, is_told: bool
) -> None:
    queue_of(Told(error)).release_quietly(messages(False))
    assert bool(caplog.records) is is_told


@pytest.mark.parametrize("error", [error for error, _ in ERRORS])
def test_giving_back_fails_nobody(error: Exception) -> None:
    told = Told(error)
    queue_of(told).finish_with(messages(False))
    queue_of(told)._give_back([7], KeyboardInterrupt())
    assert told.told == [("let go", 0), [("release", 0)], ([7], 1)]


def test_a_list_that_grows_meanwhile_is_put_as_it_was() -> None:
    class Storing(Told):
        def put_many(self, messages: list[bytes], _: object) -> list[bytes]:
            given.append(b"too late")
            return list(messages)

    given: list[bytes | quivermq.Message] = [b"a", b"b"]
    stored: Any = queue_of(Storing()).put_many(given)
    assert stored == [b"a", b"b"]


def test_a_stream_that_is_struck_while_it_ends_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(_: Helper) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with quivermq.open(tmp_path) as mq:
        orders = mq.queue("orders")
        orders.put_many([b"%d" % number for number in range(10)])
        stream = orders.stream(prefetch=4)
        assert [next(stream).offset, next(stream).offset] == [0, 1]
        monkeypatch.setattr(Helper, "join", strike)
        with pytest.raises(KeyboardInterrupt):
            stream.close()
        # The first was passed, and the second was not.
        stats = orders.stats()
        assert (stats.in_flight, stats.pending) == (0, 9)
        assert {each.attempt for each in orders.get_many(10)} == {1}
