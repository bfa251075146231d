"""Going on where another queue was: positions, attempts, and deduplication ids that are taken over."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from contract.conftest import Ways
from contract.wrong import mistakes

import quivermq
from quivermq import AdoptedId, Progress, Tried


def filled(mq: Any, count: int, **settings: Any) -> Any:
    mq.create_topic("orders", **settings)
    orders = mq.queue("orders", "billing")
    orders.put_many([b"%d" % number for number in range(count)])
    return orders


def taken(orders: Any, count: int = 100) -> list[tuple[int, int]]:
    return [(message.offset, message.attempt) for message in orders.get_many(count)]


def in_an_hour() -> int:
    return round((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1_000_000)


def test_a_group_goes_on_from_a_position_and_has_what_it_did_not_finish(mq: Any) -> None:
    orders = filled(mq, 8)
    progress = Progress(5, [Tried(1, 3, 2), Tried(4, 5, 1)])
    assert mq.adopt("orders", "billing", progress)
    assert sorted(taken(orders)) == [(1, 3), (2, 3), (4, 2), (5, 1), (6, 1), (7, 1)]
    # Another group knows nothing of it.
    assert sorted(taken(mq.queue("orders", "audit"))) == [(offset, 1) for offset in range(8)]


def test_attempts_of_what_nobody_had_count_on_in_the_order_of_the_log(mq: Any) -> None:
    orders = filled(mq, 5, attempts_max=4, backoff_ms=0)
    assert mq.adopt("orders", "billing", Progress(None, [Tried(1, 2, 3), Tried(3, 4, 1)]))
    assert taken(orders) == [(0, 1), (1, 4), (2, 1), (3, 2), (4, 1)]


def test_the_last_attempt_is_the_last_one_wherever_the_others_were(mq: Any) -> None:
    orders = filled(mq, 2, attempts_max=3)
    mq.adopt("orders", "billing", Progress(None, [Tried(0, 1, 2)]))
    message = orders.get()
    assert (message.offset, message.attempt) == (0, 3)
    message.nack(reason="still wrong")
    assert [(d.offset, d.attempts, d.reason) for d in orders.dead_letters()] == [(0, 3, "still wrong")]


def test_attempts_and_positions_survive_a_restart(ways: Ways) -> None:
    mq = ways.open()
    filled(mq, 6)
    assert mq.adopt("orders", "billing", Progress(2, [Tried(0, 1, 1), Tried(4, 5, 2)]))
    mq.close()
    if ways.way not in ("open", "aio.open"):
        return
    orders = ways.open().queue("orders", "billing")
    assert taken(orders) == [(0, 2), (2, 1), (3, 1), (4, 3), (5, 1)]


def test_a_group_that_has_been_elsewhere_is_left_alone(mq: Any) -> None:
    orders = filled(mq, 6)
    orders.ack(orders.get_many(2))
    assert not mq.adopt("orders", "billing", Progress(4, []))
    assert taken(orders) == [(offset, 1) for offset in range(2, 6)]


def test_a_group_goes_on_only_from_where_it_was_put(mq: Any) -> None:
    orders = filled(mq, 6)
    first, second = Progress(2, [Tried(0, 1, 1)]), Progress(4, [Tried(1, 2, 5)])
    assert mq.adopt("orders", "billing", first)
    assert not mq.adopt("orders", "billing", second)
    assert not mq.adopt("orders", "billing", second, expected=Progress(2, []))
    assert mq.adopt("orders", "billing", second, expected=first)
    assert sorted(taken(orders)) == [(1, 6), (4, 1), (5, 1)]
    assert not mq.adopt("orders", "billing", first, expected=second)


def test_what_the_group_had_here_keeps_its_own_count(mq: Any) -> None:
    orders = filled(mq, 3, backoff_ms=0)
    message = orders.get()
    assert mq.adopt("orders", "billing", Progress(None, [Tried(0, 1, 7), Tried(2, 3, 7)]))
    message.nack(delay=0)
    assert sorted(taken(orders)) == [(0, 2), (1, 1), (2, 8)]


def test_a_seek_begins_to_count_anew(mq: Any) -> None:
    orders = filled(mq, 3)
    mq.adopt("orders", "billing", Progress(None, [Tried(1, 2, 2)]))
    orders.seek("earliest")
    assert taken(orders) == [(0, 1), (1, 1), (2, 1)]


def test_attempts_wait_with_their_message_for_its_turn_in_a_key(mq: Any) -> None:
    mq.create_topic("orders", ordering="key")
    orders = mq.queue("orders", "billing")
    orders.put_many([quivermq.Message(b"%d" % n, key=b"k") for n in range(3)])
    mq.adopt("orders", "billing", Progress(None, [Tried(1, 2, 2)]))
    seen = []
    while (message := orders.get()) is not None:
        seen.append((message.offset, message.attempt))
        message.ack()
    assert seen == [(0, 1), (1, 3), (2, 1)]


def test_lanes_are_adopted_one_by_one(mq: Any) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders", "billing")
    for number in (0, 1):
        orders.put_many([quivermq.Message(b"x", partition=number, priority="high")] * 3)
    assert mq.adopt("orders", "billing", Progress(2, []), partition=1, priority="high")
    found = sorted((m.partition, m.offset) for m in orders.get_many(10))
    assert found == [(0, 0), (0, 1), (0, 2), (1, 2)]


def test_an_id_of_another_queue_is_a_duplicate_here(mq: Any) -> None:
    orders = filled(mq, 3)
    ids = [AdoptedId("a", in_an_hour(), 0, "normal", 1), AdoptedId("b", in_an_hour())]
    assert mq.adopt_ids("orders", ids) == 2
    first, second, third = (orders.put(b"x", dedup_id=name) for name in ("a", "b", "c"))
    assert (first.duplicate, first.offset) == (True, 1)
    assert (second.duplicate, second.offset) == (True, None)
    assert (third.duplicate, third.offset) == (False, 3)


def test_the_hash_of_an_id_stands_for_it(mq: Any) -> None:
    orders = filled(mq, 1)
    hashed = "sha256:" + sha256("order-é".encode()).hexdigest()
    assert mq.adopt_ids("orders", [AdoptedId(hashed, in_an_hour())]) == 1
    assert orders.put(b"x", dedup_id="order-é").duplicate
    assert not orders.put(b"x", dedup_id="order-e").duplicate


def test_an_id_that_expired_is_not_adopted(mq: Any) -> None:
    orders = filled(mq, 1)
    assert mq.adopt_ids("orders", [AdoptedId("a", in_an_hour() - 2 * 3_600_000_000)]) == 0
    assert not orders.put(b"x", dedup_id="a").duplicate


WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda mq: mq.adopt("nobody", "billing", Progress(0)), quivermq.TopicNotFound),
    (lambda mq: mq.adopt("orders", "a/b", Progress(0)), quivermq.InvalidName),
    (lambda mq: mq.adopt("orders", "billing", Progress(4)), quivermq.OffsetOutOfRange),
    (lambda mq: mq.adopt("orders", "billing", Progress(-1)), quivermq.InvalidRequest),
    (lambda mq: mq.adopt("orders", "billing", Progress(1), partition=7), quivermq.InvalidRequest),
    (lambda mq: mq.adopt("orders", "billing", Progress(1), partition=None), quivermq.InvalidRequest),
    (lambda mq: mq.adopt("orders", "billing", Progress(1), priority="urgent"), quivermq.InvalidRequest),
    (lambda mq: mq.adopt("orders", "billing", Progress(3, [Tried(2, 4, 1)])), quivermq.OffsetOutOfRange),
    (lambda mq: mq.adopt("orders", "billing", Progress(3, [Tried(1, 2, -1)])), quivermq.InvalidRequest),
    (
        lambda mq: mq.adopt("orders", "billing", Progress(3, [Tried(1, 2, 1), Tried(0, 1, 1)])),
        quivermq.OffsetOutOfRange,
    ),
    (lambda mq: mq.adopt_ids("nobody", [AdoptedId("a", in_an_hour())]), quivermq.TopicNotFound),
    (lambda mq: mq.adopt_ids("orders", [AdoptedId("", in_an_hour())]), quivermq.InvalidRequest),
    (lambda mq: mq.adopt_ids("orders", [AdoptedId("a", in_an_hour(), 3)]), quivermq.InvalidRequest),
    (
        lambda mq: mq.adopt_ids("orders", [AdoptedId("a", in_an_hour(), 0, "normal", 3)]),
        quivermq.OffsetOutOfRange,
    ),
]


def test_what_makes_no_sense_is_refused_and_changes_nothing(mq: Any) -> None:
    orders = filled(mq, 3)
    assert mistakes(WRONG, mq) == []
    assert taken(orders) == [(0, 1), (1, 1), (2, 1)]
