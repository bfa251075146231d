"""The position of a group in a partition."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.queues import HOUR, SECOND, START_US, Parts
from support.threads import PATIENCE_S, start

from quivermq.delivery import leasing, state
from quivermq.delivery.cursor import Cursor
from quivermq.delivery.taken import deliveries_of
from quivermq.errors import Closing, DiskFull, InvalidRequest, LeaseExpired
from quivermq.model.deliveries import Claim, Delivery
from quivermq.model.lanes import NORMAL
from quivermq.topic import state_log

LEASE_US = 30 * SECOND


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.close()


class Place:
    """A cursor and its partition, which can be opened again."""

    def __init__(self, parts: Parts, **settings: Any) -> None:
        self.parts, self.settings = parts, settings
        self.partition = parts.partition(segment_messages=4)
        self.cursor: Cursor = parts.cursor(self.partition, **settings)

    def put(self, *values: bytes, lane: int = NORMAL, **rest: Any) -> None:
        for value in values:
            self.partition.log(lane).append(value, **rest)

    def take(self, count: int = 1, lane: int = NORMAL, *, pop: bool = False) -> list[Delivery]:
        return deliveries_of(self.cursor.take(lane, count, LEASE_US, pop=pop))

    def values(self, count: int = 100, lane: int = NORMAL) -> list[bytes]:
        return [delivery.value for delivery in self.take(count, lane)]

    def counts(self, lane: int = NORMAL) -> tuple[int, int, int]:
        """Pending, in flight, retrying."""
        return self.cursor.counts()[lane][:3]

    def letters(self) -> list[tuple[bytes, bytes, bytes]]:
        headers = [(r.value, r.headers) for r in self.parts.grave().log(1).records()]
        return [(value, h["quiver-dlq-attempts"], h["quiver-dlq-reason"]) for value, h in headers]

    def reopened(self) -> "Place":
        return Place(self.parts.killed(), **self.settings)


def claims(deliveries: list[Delivery]) -> list[Claim]:
    return [(delivery.offset, int(delivery.receipt.rpartition(":")[2], 16)) for delivery in deliveries]


@pytest.fixture
def place(parts: Parts) -> Place:
    """Six messages that nobody has had."""
    place = Place(parts)
    place.put(b"0", b"1", b"2", b"3", b"4", b"5")
    return place


def test_a_lane_that_nobody_uses_gives_nothing(place: Place) -> None:
    assert place.take(5, lane=0) == []
    assert place.cursor.ready(0, START_US) == 0
    assert place.cursor.has_one_lane
    place.put(b"high", lane=0)
    assert not place.cursor.has_one_lane
    assert place.cursor.ready(0, START_US) == 1
    assert place.values(lane=0) == [b"high"]


@pytest.mark.parametrize("count", [1, 2, 4, 100])
def test_each_message_is_handed_out_once_and_in_order(place: Place, count: int) -> None:
    found: list[Delivery] = []
    while more := place.take(count):
        assert len(more) <= count
        found += more
    assert [(d.value, d.offset, d.attempt) for d in found] == [(b"%d" % n, n, 1) for n in range(6)]
    assert place.counts() == (0, 6, 0)
    assert place.cursor.ready(NORMAL, START_US) == 0


def test_acked_messages_are_done(place: Place) -> None:
    deliveries = place.take(4)
    assert place.cursor.settlement.ack(NORMAL, claims(deliveries[1:3])) == []
    assert place.cursor.floors() == [0, 0, 0]
    deliveries[0].ack()
    assert place.cursor.floors()[NORMAL] == 3
    assert place.counts() == (2, 1, 0)
    after = place.reopened()
    assert after.counts() == (2, 1, 0)
    assert after.cursor.floors()[NORMAL] == 3


def test_claims_that_do_not_hold_are_told_and_the_others_settled(place: Place) -> None:
    one, two, three = claims(place.take(3))
    wrong = [(one[0], one[1] ^ 1), (5, 7), (99, 7)]
    assert place.cursor.settlement.ack(NORMAL, [wrong[0], one, wrong[1], wrong[2]]) == wrong
    assert place.cursor.settlement.ack(NORMAL, [one, two, two]) == [one]
    assert place.cursor.settlement.nack(NORMAL, [two, three], 0, None, None, raises=False) == [two]
    with pytest.raises(LeaseExpired) as raised:
        place.cursor.settlement.extend(NORMAL, [three], 5)
    assert len(raised.value.receipts) == 1
    assert place.counts() == (3, 0, 1)


def test_one_claim_twice_is_settled_once(place: Place) -> None:
    [claim] = claims(place.take())
    assert place.cursor.settlement.nack(NORMAL, [claim, claim], 0, None, None) == []
    assert place.counts() == (5, 0, 1)


def test_a_lease_runs_out_at_its_deadline(place: Place) -> None:
    [delivery] = place.take()
    place.parts.wall.advance(29.999999)
    delivery.extend(30)
    place.parts.wall.advance(29.999999)
    assert place.values(9) == [b"1", b"2", b"3", b"4", b"5"]
    place.parts.wall.advance(0.000001)
    with pytest.raises(LeaseExpired):
        delivery.ack()
    [again] = place.take()
    assert (again.value, again.attempt) == (b"0", 2)
    with pytest.raises(LeaseExpired):
        delivery.ack()
    again.ack()


@pytest.mark.parametrize("how", ["take", "expire", "ready"])
def test_whoever_looks_lets_go_of_what_ran_out(place: Place, how: str) -> None:
    place.take(6)
    place.parts.wall.advance(30)
    if how == "take":
        assert [d.attempt for d in place.take(6)] == [2] * 6
    elif how == "expire":
        place.cursor.expire(place.parts.now)
        assert place.counts() == (0, 0, 6)
        assert 6 in place.parts.rings
    else:
        assert place.cursor.ready(NORMAL, place.parts.now) == 6


def test_failed_messages_come_first_and_in_the_order_of_their_time(place: Place) -> None:
    one, two, three, *_ = place.take(3)
    one.nack(2)
    two.nack(1)
    three.nack(0)
    assert place.cursor.next_event() == START_US
    assert place.values(1) == [b"2"]
    place.parts.wall.advance(2)
    assert place.values(9) == [b"1", b"0", b"3", b"4", b"5"]


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_batch_whose_ends_look_like_a_run_is_leased_as_it_is(place: Place, is_reopened: bool) -> None:
    taken = place.take(5)
    for milliseconds, offset in enumerate([0, 4, 2, 1, 3]):
        taken[offset].nack(milliseconds / 1000)
    place.parts.wall.advance(0.002)
    again = place.take(3)
    assert [delivery.offset for delivery in again] == [0, 4, 2]
    if is_reopened:
        place = place.reopened()
    place.parts.wall.advance(1)
    assert place.values(2) == [b"1", b"3"]
    assert place.cursor.settlement.ack(NORMAL, claims(again)) == []


@pytest.mark.parametrize("pop", [False, True])
def test_large_messages_that_failed_come_again_a_few_at_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, pop: bool
) -> None:
    taken = place.take(5)
    place.cursor.settlement.nack(NORMAL, claims(taken), 0, None, None)
    monkeypatch.setattr(leasing, "GIVEN_BYTES", 2)
    came = [[delivery.value for delivery in place.take(100, pop=pop)] for _ in range(4)]
    assert came == [[b"0", b"1"], [b"2", b"3"], [b"4", b"5"], []]


def test_what_does_not_fit_stays_due_when_handing_out_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.cursor.settlement.nack(NORMAL, claims(place.take(5)), 0, None, None)
    monkeypatch.setattr(leasing, "GIVEN_BYTES", 2)
    place.parts.disk.fill_after(0)
    with pytest.raises(DiskFull):
        place.take(100)
    place.parts.disk.fill_after(None)
    came = [[delivery.value for delivery in place.take(100)] for _ in range(4)]
    assert came == [[b"0", b"1"], [b"2", b"3"], [b"4", b"5"], []]


def test_a_failed_message_waits_longer_each_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "random", lambda: 1.0)
    for wait_s in (1, 2):
        [delivery] = [d for d in place.take(9) if d.value == b"0"]
        delivery.nack()
        place.parts.wall.advance(wait_s - 0.000001)
        assert b"0" not in place.values(9)
        place.parts.wall.advance(0.000001)


def test_the_last_attempt_ends_among_the_dead_letters(place: Place) -> None:
    for attempt in (1, 2, 3):
        deliveries = place.take(2)
        assert [d.attempt for d in deliveries] == [attempt] * 2
        place.cursor.settlement.nack(NORMAL, claims(deliveries), 0, "no luck", "E")
    assert place.letters() == [(b"0", b"3", b"no luck"), (b"1", b"3", b"no luck")]
    assert place.parts.letters == [2]
    assert place.values(9) == [b"2", b"3", b"4", b"5"]
    assert place.reopened().counts() == (0, 4, 0)


def test_without_a_limit_a_message_comes_again_and_again(parts: Parts) -> None:
    place = Place(parts, attempts_max=None)
    place.put(b"a")
    for attempt in range(1, 20):
        [delivery] = place.take()
        assert delivery.attempt == attempt
        delivery.nack(0)
    assert place.letters() == []


def test_the_last_lease_that_runs_out_ends_among_the_dead_letters(parts: Parts) -> None:
    place = Place(parts, attempts_max=1)
    place.put(b"a", b"b")
    place.take(2)
    parts.wall.advance(30)
    place.cursor.expire(parts.now)
    assert place.letters() == [(b"a", b"1", b"lease_expired"), (b"b", b"1", b"lease_expired")]
    assert place.counts() == (0, 0, 0)
    place.cursor.expire(parts.now + HOUR)
    assert len(place.letters()) == 2


def test_dead_letters_that_do_not_fit_on_the_disk_wait(parts: Parts) -> None:
    place = Place(parts, attempts_max=1)
    place.put(b"a")
    [delivery] = place.take()
    parts.disk.fill_after(0)
    with pytest.raises(DiskFull):
        delivery.reject()
    parts.wall.advance(30)
    place.cursor.expire(parts.now)
    assert place.take() == []
    parts.disk.fill_after(None)
    parts.wall.advance(1)
    place.cursor.expire(parts.now)
    assert [value for value, *_ in place.letters()] == [b"a"]
    assert place.counts() == (0, 0, 0)


def test_rejected_messages_are_dead_letters_at_once(place: Place) -> None:
    assert place.cursor.settlement.reject(NORMAL, claims(place.take(2)), None, None) == []
    assert place.letters() == [(b"0", b"1", b"rejected"), (b"1", b"1", b"rejected")]


def test_dead_letters_never_die_again(parts: Parts) -> None:
    partition = parts.partition(0, "orders.dlq")
    partition.log(NORMAL).append(b"a")
    cursor = parts.cursor(partition, attempts_max=1)
    for _ in range(3):
        [delivery] = deliveries_of(cursor.take(NORMAL, 1, LEASE_US))
        with pytest.raises(InvalidRequest, match="holds dead letters already"):
            delivery.reject()
        delivery.nack(0)
    [delivery] = deliveries_of(cursor.take(NORMAL, 1, LEASE_US))
    parts.wall.advance(30)
    [delivery] = deliveries_of(cursor.take(NORMAL, 1, LEASE_US))
    assert delivery.attempt == 5


def test_expired_messages_are_never_handed_out(parts: Parts) -> None:
    place = Place(parts)
    place.put(b"0", b"1", expires_at=START_US + SECOND)
    place.put(b"2")
    [delivery] = place.take()
    delivery.nack(0)
    parts.wall.advance(1)
    assert place.values(1) == [b"2"]
    assert place.take(9) == []
    assert place.counts() == (0, 1, 0)
    assert place.letters() == []


def test_expired_messages_are_dead_letters_where_the_topic_says_so(parts: Parts) -> None:
    place = Place(parts, dead_letter_expired=True)
    place.put(b"0", b"1", expires_at=START_US + SECOND)
    place.put(b"2")
    [delivery] = place.take()
    delivery.nack(0)
    parts.wall.advance(1)
    assert place.values(9) == [b"2"]
    assert sorted(place.letters()) == [(b"0", b"1", b"expired"), (b"1", b"0", b"expired")]
    assert place.reopened().counts() == (0, 1, 0)


def test_a_retry_that_has_expired_does_not_hide_the_next(parts: Parts) -> None:
    place = Place(parts)
    place.put(b"0", expires_at=START_US + SECOND)
    place.put(b"1")
    place.cursor.settlement.nack(NORMAL, claims(place.take(2)), 0, None, None)
    parts.wall.advance(1)
    assert place.values(1) == [b"1"]


def test_removed_messages_are_not_handed_out(place: Place) -> None:
    place.take()[0].nack(0)
    place.partition.removals.remove(NORMAL, [0, 2, 4])
    assert place.values(9) == [b"1", b"3", b"5"]
    assert place.counts() == (0, 3, 0)


def test_messages_that_retention_took_are_done(place: Place) -> None:
    place.cursor.settlement.nack(NORMAL, claims(place.take(2)), 0, None, None)
    place = place.reopened()
    place.partition.log(NORMAL).retain(finished=4)
    assert place.counts() == (2, 0, 2)
    assert place.values(9) == [b"4", b"5"]
    assert place.counts() == (0, 2, 0)


def test_popped_messages_are_done(place: Place) -> None:
    [delivery] = place.take()
    delivery.nack(0)
    assert [d.value for d in place.take(3, pop=True)] == [b"0", b"1", b"2"]
    assert place.counts() == (3, 0, 0)
    assert place.reopened().values() == [b"3", b"4", b"5"]


def test_taking_nothing_writes_nothing(place: Place) -> None:
    place.take(9)
    steps = place.parts.disk.steps
    for pop in (False, True):
        assert place.take(5, pop=pop) == []
    assert place.parts.disk.steps == steps


@pytest.mark.parametrize("position", [0, 2, 4, 6])
def test_a_seek_begins_anew(place: Place, position: int) -> None:
    held, failed, *_ = place.take(3)
    failed.nack(0)
    place.cursor.seek(NORMAL, position)
    with pytest.raises(LeaseExpired):
        held.ack()
    assert place.counts() == (6 - position, 0, 0)
    assert [(d.offset, d.attempt) for d in place.take(9)] == [(o, 1) for o in range(position, 6)]
    assert place.reopened().counts() == (0, 6 - position, 0)


def test_a_seek_to_where_the_group_is_writes_nothing(place: Place) -> None:
    place.cursor.seek(NORMAL, 3)
    before = place.parts.disk.files()
    place.cursor.seek(NORMAL, 3)
    assert place.parts.disk.files() == before
    place.take()
    place.cursor.seek(NORMAL, 4)
    assert place.counts() == (2, 0, 0)


def test_where_a_group_was_never_it_has_no_position(place: Place) -> None:
    assert place.cursor.committed() == [None, None, None]
    # The log begins where it did: nothing is dropped.
    place.cursor.drop_to(NORMAL, 0)
    assert place.cursor.committed() == [None, None, None]
    place.cursor.seek(NORMAL, 0)
    assert place.cursor.committed() == [None, 0, None]
    place.take(2)
    assert place.cursor.committed() == [None, 0, None]


def test_dropped_messages_are_not_handed_out(place: Place) -> None:
    place.take()
    place.cursor.drop_to(NORMAL, 4)
    place.cursor.drop_to(NORMAL, 2)
    assert place.counts() == (2, 1, 0)
    assert place.reopened().values() == [b"4", b"5"]


@pytest.mark.parametrize("is_reopened", [False, True])
def test_of_each_key_one_message_is_in_flight(parts: Parts, is_reopened: bool) -> None:
    place = Place(parts, ordering="key")
    for key, value in ((b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1"), (b"a", b"a3"), (None, b"n1")):
        place.put(value, key=key)
    first, *_ = place.take(9)
    assert place.cursor.counts()[NORMAL] == (0, 3, 0, 2)
    assert place.take(9) == []
    first.nack(5)
    if is_reopened:
        place = place.reopened()
    assert place.take(9) == []
    place.parts.wall.advance(5)
    [again] = place.take(9)
    assert (again.value, again.attempt) == (b"a1", 2)
    again.ack()
    [second] = place.take(9)
    assert (second.value, second.attempt) == (b"a2", 1)
    second.reject()
    assert place.values(9) == [b"a3"]


def test_a_key_waits_across_lanes_and_openings(parts: Parts) -> None:
    place = Place(parts, ordering="key")
    place.put(b"first", key=b"k")
    [first] = place.take()
    place.put(b"second", key=b"k", lane=0)
    assert place.take(9, lane=0) == []
    first.nack(0)
    place = place.reopened()
    assert place.take(9, lane=0) == []
    [first] = place.take(9)
    assert first.value == b"first"
    first.ack()
    assert place.values(lane=0) == [b"second"]


def test_a_message_whose_turn_came_needs_no_clock(parts: Parts) -> None:
    place = Place(parts, ordering="key")
    place.put(b"first", b"second", key=b"k")
    [first] = place.take(9)
    first.ack()
    place.cursor.compact()
    parts.wall.jump(-3600)
    assert place.reopened().values(9) == [b"second"]


def test_a_message_of_a_key_that_is_gone_lets_the_next_one_go(parts: Parts) -> None:
    place = Place(parts, ordering="key")
    place.put(b"first", key=b"k", expires_at=START_US + SECOND)
    place.put(b"second", b"third", key=b"k")
    place.take(1)[0].nack(0)
    parts.wall.advance(1)
    assert place.values(9) == [b"second"]


def test_the_order_can_be_changed(place: Place) -> None:
    for value in (b"a1", b"a2"):
        place.put(value, key=b"a")
    place.take(6)
    ordered = place.cursor.settings.changed({"ordering": "key"})
    place.cursor.configure(ordered)
    assert place.values(9) == [b"a1"]
    place.cursor.configure(ordered.changed({"ordering": "none"}))
    assert place.values(9) == [b"a2"]


def test_what_a_full_disk_refuses_was_not_handed_out(place: Place) -> None:
    place.take()[0].nack(0)
    place.parts.disk.fill_after(0)
    for _ in range(2):
        with pytest.raises(DiskFull):
            place.take(3)
    assert place.counts() == (5, 0, 1)
    place.parts.disk.fill_after(None)
    assert [(d.value, d.attempt) for d in place.take(3)] == [(b"0", 2), (b"1", 1), (b"2", 1)]


def test_an_ack_that_a_full_disk_refuses_can_be_made_again(place: Place) -> None:
    one, two = place.take(2)
    place.parts.disk.fill_after(0)
    with pytest.raises(DiskFull):
        one.ack()
    with pytest.raises(DiskFull):
        place.cursor.settlement.ack(NORMAL, claims([one, two]))
    with pytest.raises(DiskFull):
        two.nack(0)
    place.parts.disk.fill_after(None)
    assert place.cursor.settlement.ack(NORMAL, claims([one, two])) == []


def test_a_long_journal_becomes_a_snapshot(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "_SNAPSHOT_BYTES_MIN", 2000)
    place.put(*[b"more"] * 94)
    for _ in range(50):
        place.take(2)[0].ack()
    after = place.reopened()
    assert after.counts() == (0, 50, 0)
    assert len(after.cursor._shared.journal.replay()) < 80, "150 changes and no snapshot"


def test_compacting_changes_nothing(place: Place) -> None:
    one, two, three, *_ = place.take(4)
    one.ack()
    two.nack(0)
    place.cursor.compact()
    assert place.counts() == (2, 2, 1)
    after = place.reopened()
    assert after.counts() == (2, 2, 1)
    assert after.cursor.settlement.ack(NORMAL, claims([three])) == []


def test_a_closed_cursor_does_nothing_more(place: Place) -> None:
    [delivery] = place.take()
    place.cursor.close()
    for act in (delivery.ack, delivery.nack, delivery.reject, place.take, place.cursor.compact):
        with pytest.raises(Closing):
            act()
    with pytest.raises(Closing):
        place.cursor.seek(NORMAL, 0)
    place.cursor.expire(START_US + HOUR)
    assert place.reopened().counts() == (5, 1, 0)


def test_the_next_event_is_the_first_of_all(place: Place) -> None:
    assert place.cursor.next_event() is None
    one, two = place.take(2)
    assert place.cursor.next_event() == START_US + LEASE_US
    one.nack(5)
    assert place.cursor.next_event() == START_US + 5 * SECOND
    two.ack()
    assert place.cursor.next_event() == START_US + 5 * SECOND


def test_what_happens_is_counted(place: Place) -> None:
    meter = place.cursor.meter
    one, two, three, four = place.take(4)
    one.ack()
    two.nack(0)
    three.reject()
    with pytest.raises(LeaseExpired):
        one.ack()
    place.parts.wall.advance(30)
    place.cursor.expire(place.parts.now)
    counted = (
        meter.delivered,
        meter.acked,
        meter.nacked,
        meter.refused,
        meter.leases_expired,
        meter.dead_lettered,
    )
    assert [counter.value for counter in counted] == [4, 1, 1, 1, 1, 1]
    assert four.attempt == 1


def test_many_leases_that_were_settled_are_swept(place: Place) -> None:
    place.put(*[b"m"] * 3000)
    while deliveries := place.take(1):
        deliveries[0].ack()
    assert len(place.cursor._shared.deadlines) < 1500


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_no_two_threads_get_the_same_message(parts: Parts, durability: str) -> None:
    place = Place(parts, durability=durability)
    place.put(*[b"%d" % number for number in range(200)])

    def consume() -> list[bytes]:
        found: list[bytes] = []
        while deliveries := place.take(3):
            found += [delivery.value for delivery in deliveries]
            place.cursor.settlement.ack(NORMAL, claims(deliveries))
        return found

    threads = [start(consume) for _ in range(4)]
    found = [value for thread in threads for value in thread.result(PATIENCE_S)]
    assert sorted(map(int, found)) == list(range(200))
    assert place.counts() == (0, 0, 0)


def test_groups_are_independent(place: Place) -> None:
    other = place.parts.cursor(place.partition, group="audit")
    place.cursor.settlement.ack(NORMAL, claims(place.take(6)))
    assert len(deliveries_of(other.take(NORMAL, 9, LEASE_US))) == 6
    assert place.counts() == (0, 0, 0)
