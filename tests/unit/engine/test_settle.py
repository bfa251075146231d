"""Settling: ack, nack, reject, extend, and what an expired receipt is told."""

import tracemalloc
from typing import Any

import pytest
from unit.engine.store import Store, drain, values

import quivermq
from quivermq.delivery.taken import deliveries_of
from quivermq.engine import engine_of
from quivermq.model.deliveries import Held, parse_receipt
from quivermq.model.operations import Settle, Settled


def get(queue: quivermq.Queue) -> quivermq.Delivery:
    message = queue.get()
    assert message is not None
    return message


def test_an_acked_message_never_comes_back(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    get(queue).ack()
    store.pass_time(1000)
    assert queue.get() is None
    assert store.reopen().queue("orders").get() is None


@pytest.mark.parametrize("how", ["delivery", "receipt", "list", "receipts", "tuple", "generator", "queue"])
def test_every_way_to_ack(store: Store, how: str) -> None:
    queue = store.queue(partitions=2)
    queue.put_many([b"a", b"b", b"c", b"d"])
    messages = queue.get_many(4)
    if how == "delivery":
        for message in messages:
            message.ack()
    elif how in {"receipt", "queue"}:
        for message in messages:
            queue.ack(message.receipt if how == "receipt" else message)
    else:
        held: Any = {
            "list": messages,
            "receipts": [message.receipt for message in messages],
            "tuple": (messages[0], *[message.receipt for message in messages[1:]]),
            "generator": iter(messages),
        }[how]
        queue.ack(held)
    assert queue.stats().in_flight == 0
    store.pass_time(100)
    assert queue.get() is None


@pytest.mark.parametrize("again", ["ack", "nack", "reject"])
@pytest.mark.parametrize("first", ["ack", "nack", "reject"])
def test_a_message_is_settled_once(store: Store, first: str, again: str) -> None:
    queue = store.queue()
    queue.put(b"x")
    message = get(queue)
    getattr(message, first)()
    with pytest.raises(quivermq.LeaseExpired) as caught:
        getattr(message, again)()
    assert caught.value.receipts == (message.receipt,)
    with pytest.raises(quivermq.LeaseExpired):
        getattr(queue, again)(message.receipt)


def test_nothing_is_settled_by_an_empty_list(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    get(queue)
    for settle in (queue.ack, queue.nack, queue.reject):
        settle([])
    queue.extend([], 5)
    assert queue.stats().in_flight == 1


def test_the_same_message_twice_in_one_call_is_settled_once(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"a", b"b"])
    messages = queue.get_many(2)
    queue.ack([*messages, *messages, messages[0].receipt])
    assert queue.stats().in_flight == 0


@pytest.mark.parametrize("settle", ["ack", "nack", "reject", "extend"])
def test_an_expired_receipt_is_refused(store: Store, settle: str) -> None:
    queue = store.queue(lease_ms=1000)
    queue.put(b"x")
    message = get(queue)
    store.clock.advance(1)
    arguments = [5] if settle == "extend" else []
    with pytest.raises(quivermq.LeaseExpired):
        getattr(message, settle)(*arguments)
    with pytest.raises(quivermq.LeaseExpired) as caught:
        getattr(queue, settle)([message.receipt], *arguments)
    assert caught.value.receipts == (message.receipt,)
    again = get(queue)
    assert (again.value, again.attempt) == (b"x", 2)
    assert again.receipt != message.receipt
    with pytest.raises(quivermq.LeaseExpired):
        getattr(message, settle)(*arguments)
    again.ack()


def test_a_lease_lasts_until_its_last_moment(store: Store) -> None:
    queue = store.queue(lease_ms=1000)
    queue.put(b"x")
    message = get(queue)
    store.clock.advance(0.999_999)
    assert queue.get() is None
    message.ack()


@pytest.mark.parametrize("settle", ["ack", "nack", "reject", "extend"])
@pytest.mark.parametrize("as_receipts", [True, False])
def test_those_that_hold_are_settled_and_the_others_named(
    store: Store, settle: str, as_receipts: bool
) -> None:
    queue = store.queue(partitions=2)
    queue.put_many(
        [quivermq.Message(b"x", partition=n % 2, priority=p) for n in range(4) for p in ("high", "low")]
    )
    late = queue.get_many(3, lease=1)
    store.clock.advance(1)
    good = queue.get_many(5)
    assert {m.receipt for m in good}.isdisjoint(m.receipt for m in late)
    held: list[Any] = [*late[:2], *good, late[2]]
    if as_receipts:
        held = [message.receipt for message in held]
    arguments = [60] if settle == "extend" else []
    with pytest.raises(quivermq.LeaseExpired) as caught:
        getattr(queue, settle)(held, *arguments)
    assert sorted(caught.value.receipts) == sorted(message.receipt for message in late)
    stats = queue.stats()
    if settle == "ack":
        assert (stats.in_flight, stats.pending + stats.retrying) == (0, 3)
    elif settle == "nack":
        assert stats.in_flight == 0
    elif settle == "reject":
        assert stats.dead_letters == 5
    else:
        store.clock.advance(40)
        queue.ack(good)


def test_an_expired_lease_counts_as_an_attempt(store: Store) -> None:
    queue = store.queue(lease_ms=1000)
    queue.put(b"x")
    for attempt in (1, 2, 3):
        message = get(queue)
        assert message.attempt == attempt
        store.pass_time(1)
    assert queue.get() is None
    [letter] = queue.dead_letters()
    assert (letter.attempts, letter.reason, letter.error) == (3, "lease_expired", "")


def test_a_nacked_message_waits_for_its_delay(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"x", b"y"])
    get(queue).nack(delay=5)
    assert get(queue).value == b"y"
    store.clock.advance(4.999_999)
    assert queue.get() is None
    store.clock.advance(0.000_001)
    again = get(queue)
    assert (again.value, again.attempt) == (b"x", 2)


def test_a_nack_without_a_delay_backs_off_with_jitter(store: Store) -> None:
    queue = store.queue(backoff_ms=1000, backoff_ms_max=4000, attempts_max=10)
    count = 200
    queue.put_many([b"%d" % n for n in range(count)])
    for attempt, most in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 4)):
        messages = queue.get_many(1000)
        assert [m.attempt for m in messages] == [attempt] * count
        for message in messages:
            message.nack()
        store.clock.advance(most * 0.499)
        assert queue.get_many(1000) == []
        store.clock.advance(most * 0.251)
        early = queue.get_many(1000)
        assert 40 < len(early) < 160
        store.clock.advance(most * 0.25)
        rest = queue.get_many(1000)
        assert len(early) + len(rest) == count
        queue.nack([*early, *rest], delay=0)
        # The attempt that only measured is not to count.
        assert {m.attempt for m in early + rest} == {attempt + 1}
        if attempt + 2 > 5:
            break
        queue.seek("earliest")
        for _ in range(attempt):
            queue.nack(queue.get_many(1000), delay=0)


def test_a_nack_without_delay_of_zero_comes_back_at_once(store: Store) -> None:
    queue = store.queue()
    queue.put(b"x")
    get(queue).nack(delay=0)
    assert get(queue).attempt == 2


def test_a_message_that_failed_goes_before_those_that_nobody_had(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"1", b"2", b"3"])
    get(queue).nack(delay=0)
    assert drain(queue) == [b"1", b"2", b"3"]


def test_an_extension_counts_from_now(store: Store) -> None:
    queue = store.queue(lease_ms=10_000)
    queue.put(b"x")
    message = get(queue)
    store.pass_time(8)
    message.extend(10)
    store.pass_time(9)
    assert queue.get() is None
    message.extend(1)
    store.pass_time(1)
    assert get(queue).attempt == 2
    with pytest.raises(quivermq.LeaseExpired):
        message.extend(10)


def test_an_extension_by_receipt_of_many(store: Store) -> None:
    queue = store.queue(lease_ms=1000, partitions=2)
    queue.put_many([b"a", b"b", b"c"])
    messages = queue.get_many(3)
    queue.extend([message.receipt for message in messages], 100)
    store.pass_time(99)
    queue.ack(messages)
    assert queue.stats().backlog == 0


def test_attempts_without_a_limit(store: Store) -> None:
    queue = store.queue(attempts_max=None)
    queue.put(b"x")
    for attempt in range(1, 20):
        message = get(queue)
        assert message.attempt == attempt
        message.nack(delay=0)
    assert queue.dead_letters() == []


def test_a_single_attempt(store: Store) -> None:
    queue = store.queue(attempts_max=1)
    queue.put(b"x")
    get(queue).nack()
    assert values(queue.dead_letters()) == [b"x"]


def test_a_pattern_queue_settles_what_it_got(store: Store) -> None:
    store.queue("a.b").put(b"1")
    store.queue("a.c").put(b"2")
    queue = store.queue("a.*")
    messages = queue.get_many(5)
    assert sorted(m.topic for m in messages) == ["a.b", "a.c"]
    queue.ack([messages[0], messages[1].receipt])
    assert queue.stats().backlog == 0


def test_acks_out_of_order_leave_nothing_in_memory(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", durability="buffered")
    queue = mq.queue("orders")
    queue.put_many([b"x"] * 60_000)
    kept: list[quivermq.Delivery] = []

    def ack_backwards(batches: int) -> int:
        for _ in range(batches):
            messages = queue.get_many(5_000)
            # The first stays in flight, so nothing behind it is below the floor.
            kept.append(messages[0])
            queue.ack(messages[:0:-2])
            queue.ack(messages[-2:0:-2])
        del messages
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before_bytes, after_bytes = ack_backwards(2), ack_backwards(10)
    finally:
        tracemalloc.stop()
    assert queue.stats().in_flight == len(kept) == 12
    # 50 000 acks: not even ten bytes for each.
    assert after_bytes - before_bytes < 500_000
    queue.ack(kept)
    assert queue.stats().backlog == 0


# Many of one lease at once, as the broker's clients name them.


def held(batch: list[quivermq.Delivery], *offsets: int) -> Held:
    receipt = parse_receipt(batch[0].receipt)
    return Held("orders", 0, receipt.lane, receipt.token, offsets)


def test_messages_of_one_lease_are_settled_like_their_receipts(store: Store) -> None:
    queue, backend = store.queue("orders"), engine_of(store.engine).queue("orders")
    queue.put_many([b"a", b"b", b"c", b"d"])
    batch = queue.get_many(4)
    assert backend.settle(Settle("ack"), [held(batch, 0, 2)]) == Settled([])
    assert queue.stats().in_flight == 2
    assert backend.settle(Settle("nack", 0), [held(batch, 1), held(batch, 3)]) == Settled([])
    assert values(queue.get_many(9)) == [b"b", b"d"]


def test_what_of_a_lease_came_late_is_said(store: Store) -> None:
    queue, backend = store.queue("orders"), engine_of(store.engine).queue("orders")
    queue.put_many([b"a", b"b", b"c"])
    batch = queue.get_many(3)
    queue.ack(batch[1])
    assert backend.settle(Settle("ack"), [held(batch, 0, 1, 2)]).late == [batch[1].receipt]
    assert queue.stats().in_flight == 0
    late = backend.settle(Settle("ack"), [Held("orders", 7, 1, 1, (0, 1))]).late
    assert late == ["orders:7:1:0:1", "orders:7:1:1:1"]


def test_what_is_popped_in_one_go_is_done(store: Store) -> None:
    queue = store.queue("orders")
    queue.put_many([b"a", b"b"])
    taken = engine_of(store.engine).queue("orders").take_batches(9, pop=True)
    assert values(deliveries_of(taken)) == [b"a", b"b"]
    assert queue.stats().backlog == 0


def test_who_watches_is_woken_once(store: Store) -> None:
    queue, backend = store.queue("orders"), engine_of(store.engine).queue("orders")
    queue.put(b"first")
    woken: list[int] = []
    watch = backend.watch(lambda: woken.append(1))
    assert watch.until_next_event() is None
    queue.put(b"a")
    queue.put(b"b")
    assert woken == [1]
    watch.leave()
    queue.put(b"c", delay=5)
    assert backend.watch(lambda: None).until_next_event() == 5


@pytest.mark.parametrize("what", ["topic", "group"])
@pytest.mark.parametrize("how", ["ack", "nack", "reject", "extend"])
def test_what_was_deleted_is_nobodys_any_more(store: Store, what: str, how: str) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    message = get(queue)
    if what == "topic":
        store.engine.delete_topic("orders")
    else:
        store.engine.delete_group("orders", "default")
    call = {"extend": lambda: message.extend(5)}.get(how, getattr(message, how))
    with pytest.raises(quivermq.LeaseExpired):
        call()
    with pytest.raises(quivermq.LeaseExpired):
        queue.ack([message])


def test_a_queue_that_was_closed_says_so_to_who_settles(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    message = get(queue)
    store.engine.close()
    with pytest.raises(quivermq.Closing):
        message.ack()


@pytest.mark.parametrize("receipt", ["orders:00:1:0:1", "orders:0:1:01:1", "orders:0:1:0:0a"])
def test_a_receipt_is_written_in_one_way(store: Store, receipt: str) -> None:
    queue = store.queue("orders")
    with pytest.raises(quivermq.InvalidRequest, match="is not a receipt"):
        queue.ack(receipt)
