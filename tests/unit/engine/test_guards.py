"""Guards against what happens at the wrong moment: each has a test that fails without it.

There is no second thread here: the other one is let in at the very place where it would do harm.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.engine.store import DATA, Store, drain, refused, values

import quivermq
from quivermq.delivery import deadlines
from quivermq.engine import engine_of
from quivermq.engine.waiting import WatchedGroup, wait_for
from quivermq.group.group import Group
from quivermq.group.waiters import Waiter
from quivermq.model.names import Pattern
from quivermq.reentry import outside
from quivermq.topic.records import pack

Look = Callable[[], list[quivermq.Delivery]]

SETTINGS_FILE = DATA / "topics" / "orders" / "topic.json"


@pytest.fixture
def events(store: Store) -> Store:
    """Two topics, for those who wait for both."""
    store.engine.create_topic("e.a", durability="os")
    store.engine.create_topic("e.b", durability="os")
    return store


def wait(store: Store, *looks: Look) -> list[quivermq.Delivery]:
    """Wait for all of `e.*`. The second look comes when others can ring already, the third after a ring."""
    left = iter(looks)
    topics = engine_of(store.engine).catalog.find_matching(Pattern("e.*"))
    groups = [WatchedGroup(topic, topic.group("default")) for topic in topics]

    def look() -> list[quivermq.Delivery]:
        return next(left)()

    return wait_for(look, 600, engine_of(store.engine), lambda: groups)


def line_up(store: Store, topic: str) -> list[str]:
    """Let somebody wait for a topic, behind those who do already. The list tells when it is woken."""
    woken: list[str] = []
    engine_of(store.engine).catalog.get(topic).group("default").waiters.waiting.append(
        Waiter(lambda: woken.append(topic))
    )
    return woken


# Wake-ups.


def test_who_is_woken_for_one_topic_and_served_by_another_wakes_the_next(events: Store) -> None:
    woken = []

    def in_vain() -> list[quivermq.Delivery]:
        # The put comes right behind the look, and wakes the one who looked.
        woken.append(line_up(events, "e.a"))
        events.queue("e.a").put(b"a")
        assert woken == [[]]
        return []

    def elsewhere() -> list[quivermq.Delivery]:
        events.queue("e.b").put(b"b")
        return events.queue("e.b").get_many(1)

    assert values(wait(events, list, in_vain, elsewhere)) == [b"b"]
    assert woken == [["e.a"]]


def test_nobody_is_woken_for_what_was_taken(events: Store) -> None:
    woken = []

    def in_vain() -> list[quivermq.Delivery]:
        woken.append(line_up(events, "e.a"))
        woken.append(line_up(events, "e.b"))
        events.queue("e.a").put(b"a")
        return []

    assert values(wait(events, list, in_vain, lambda: events.queue("e.a").get_many(1))) == [b"a"]
    assert woken == [[], []]


def test_who_finds_something_while_lining_up_wakes_the_next(events: Store) -> None:
    woken = []
    events.queue("e.b").put(b"b")

    def elsewhere() -> list[quivermq.Delivery]:
        found = events.queue("e.b").get_many(1)
        woken.append(line_up(events, "e.a"))
        events.queue("e.a").put(b"a")
        return found

    assert values(wait(events, list, elsewhere)) == [b"b"]
    assert woken == [["e.a"]]


@pytest.mark.parametrize("looks", [0, 1])
def test_who_fails_wakes_the_next(events: Store, looks: int) -> None:
    woken = []

    def put() -> list[quivermq.Delivery]:
        woken.append(line_up(events, "e.a"))
        events.queue("e.a").put(b"a")
        if looks == 0:
            raise KeyboardInterrupt
        return []

    def fail() -> list[quivermq.Delivery]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait(events, list, put, fail)
    assert woken == [["e.a"]]


def test_an_alteration_wakes_those_for_whom_there_is_something_now(store: Store) -> None:
    queue = store.queue(ordering="key", durability="os")
    queue.put_many([quivermq.Message(b"1", key=b"k"), quivermq.Message(b"2", key=b"k")])
    assert values(queue.get_many(2)) == [b"1"]
    woken = line_up(store, "orders")
    store.engine.alter_topic("orders", ordering="none")
    assert woken == ["orders"]
    assert values(queue.get_many(2)) == [b"2"]


# Altering and deleting.


class Turnstile:
    """A lock that somebody else had first: whoever comes finds done what that one did."""

    def __init__(self, lock: Any, others: Callable[[], object]) -> None:
        self._lock = lock
        self._others: Callable[[], object] | None = others

    def __enter__(self) -> None:
        others, self._others = self._others, None
        if others is not None:
            others()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def let_first(store: Store, others: Callable[[], object]) -> None:
    """Let others be first where topics are altered and deleted."""
    engine: Any = store.engine

    def go() -> None:
        # They stand for another thread, which interrupts nobody.
        with outside():
            others()

    catalog: Any = engine_of(engine).catalog
    catalog._changing = Turnstile(engine_of(engine).catalog._changing, go)


def make_anew(store: Store) -> None:
    store.engine.delete_topic("orders")
    store.engine.create_topic("orders", partitions=2)


def test_an_alteration_is_one_of_the_topic_that_is_there_by_then(store: Store) -> None:
    queue = store.queue(partitions=1)
    let_first(store, lambda: make_anew(store))
    store.engine.alter_topic("orders", lease_ms=5000)
    settings = store.engine.topic("orders").settings
    assert (settings.partitions, settings.lease_ms) == (2, 5000)
    queue.put(b"x", partition=1)
    store.reopen()
    assert store.engine.topic("orders").settings == settings
    assert drain(store.queue()) == [b"x"]


def test_an_alteration_does_not_bring_a_deleted_topic_back(store: Store) -> None:
    store.queue(partitions=2).put(b"x")
    let_first(store, lambda: store.engine.delete_topic("orders"))
    with pytest.raises(quivermq.TopicNotFound):
        store.engine.alter_topic("orders", lease_ms=5000)
    assert not [path for path in store.files() if "orders" in path.parts]
    assert store.reopen().topics() == []


def test_two_alterations_keep_what_the_other_one_did(store: Store) -> None:
    store.queue(partitions=1)
    let_first(store, lambda: store.engine.alter_topic("orders", partitions=3))
    store.engine.alter_topic("orders", lease_ms=5000)
    assert store.engine.topic("orders").partitions == 3
    assert store.reopen().topic("orders").partitions == 3


def test_a_deletion_is_one_of_the_topic_that_is_there_by_then(store: Store) -> None:
    queue = store.queue(partitions=1)
    queue.put(b"old")
    deleted = []

    def others() -> None:
        make_anew(store)
        queue.put(b"newer")
        deleted.append(engine_of(store.engine).catalog.get("orders"))

    let_first(store, others)
    store.engine.delete_topic("orders")
    assert store.engine.topics() == []
    # Whoever has it in hand has to notice.
    assert [topic.is_gone for topic in deleted] == [True]
    assert queue.put(b"newest").offset == 0
    assert drain(queue) == [b"newest"]


def test_of_two_deletions_the_second_finds_nothing(store: Store) -> None:
    store.queue(partitions=1).put(b"x")
    let_first(store, lambda: store.engine.delete_topic("orders"))
    with pytest.raises(quivermq.TopicNotFound):
        store.engine.delete_topic("orders")
    assert store.reopen().topics() == []


# Deletions that got stuck half-way.


@pytest.mark.parametrize(
    "stuck_at", ["/data/groups/default", "/data/topics/orders", "/data/topics/orders/p1"]
)
@pytest.mark.parametrize("how", ["create", "put"])
@pytest.mark.parametrize("reopens", [False, True])
def test_nothing_of_a_topic_that_was_deleted_half_way_comes_back(
    store: Store, stuck_at: str, how: str, reopens: bool
) -> None:
    queue = store.queue(partitions=2)
    queue.put_many([b"old"] * 4)
    queue.put(b"old", delay=5)
    assert queue.pop() is not None

    def get_stuck(operation: str, _: Path) -> None:
        # Only now, when it is written down that the topic is to go.
        if operation == "remove_directory":
            store.disk.before_step = None
            store.disk.fail_sync(stuck_at)

    store.disk.before_step = get_stuck
    with pytest.raises(quivermq.FsyncFailed):
        store.engine.delete_topic("orders")
    assert SETTINGS_FILE in store.files()
    assert store.engine.topics() == []
    if how == "create":
        store.engine.create_topic("orders", partitions=2)
    queue = store.queue()
    assert queue.put(b"new", partition=0).offset == 0
    if reopens:
        store.reopen()
        queue = store.queue()
    store.pass_time(10)
    assert drain(queue) == [b"new"]


def test_the_next_opening_takes_away_what_a_deletion_left(store: Store) -> None:
    queue = store.queue(partitions=2)
    queue.put_many([b"old"] * 4)
    assert queue.pop() is not None

    def die(operation: str, path: Path) -> None:
        if operation == "remove" and path.is_relative_to(SETTINGS_FILE.parent):
            store.disk.stop()

    store.disk.before_step = die
    with pytest.raises(BaseException, match="dead"):
        store.engine.delete_topic("orders")
    assert SETTINGS_FILE in store.files()
    assert store.kill().topics() == []
    assert not [path for path in store.files() if "orders" in path.parts]


def test_a_topic_of_which_nobody_knows_whether_it_is_deleted_takes_no_messages(store: Store) -> None:
    queue = store.queue(partitions=1)
    queue.put(b"x")
    store.disk.fail_sync("/data/topics/orders", keep="everything")
    with pytest.raises(quivermq.FsyncFailed):
        store.engine.delete_topic("orders")
    for call in (lambda: queue.put(b"y"), queue.get, lambda: store.engine.create_topic("orders")):
        with pytest.raises(quivermq.FsyncFailed):
            call()
    assert store.engine.topics() == []
    store.reopen()
    assert store.queue().put(b"z").offset == 0
    assert drain(store.queue()) == [b"z"]


def test_a_deletion_needs_no_room(store: Store) -> None:
    """On a full disk, deleting is what makes some."""
    queue = store.queue(partitions=1)
    queue.put(b"x")
    store.disk.fill_after(0)
    store.engine.delete_topic("orders")
    assert store.engine.topics() == []
    store.disk.fill_after(None)
    store.reopen()
    assert store.engine.topics() == []
    assert store.queue().put(b"y").offset == 0
    assert drain(store.queue()) == [b"y"]


# Growing.


def while_growing(
    store: Store, monkeypatch: pytest.MonkeyPatch, topic: str, call: Callable[[], object]
) -> None:
    """Give a topic a second partition, and call before and after each of its groups learns of it."""
    configure = Group.configure

    def watched(group: Group, settings: quivermq.TopicSettings) -> None:
        with outside():
            call()
        configure(group, settings)
        with outside():
            call()

    with monkeypatch.context() as patch:
        patch.setattr(Group, "configure", watched)
        store.engine.alter_topic(topic, partitions=2)


def look_everywhere(store: Store, topic: str) -> None:
    """Whatever walks over the partitions finds all of them in all groups."""
    hosted = engine_of(store.engine).catalog.get(topic)
    used = {number for number, _ in hosted.topic.lanes()}
    assert all(used <= group.cursors.keys() for group in hosted.groups.values())
    for group in hosted.groups:
        store.queue(topic, group).peek(100)
        store.queue(topic, group).stats()
    store.engine.compact()


def put_in_every_way(queue: quivermq.Queue) -> int:
    """Put what may go to any partition, and return how much that was."""
    for _ in range(2):
        queue.put(b"x")
        queue.put_many([b"x"])
    queue.put_many([b"x"] * 4)
    queue.put_many([quivermq.Message(b"x", key=b"%d" % n) for n in range(4)])
    try:
        queue.put(b"x", partition=1)
    except quivermq.InvalidRequest:
        return 12
    return 13


@pytest.mark.parametrize("settings", [{}, {"backlog_bytes_max": 2**20}, {"ttl_ms": 60_000}])
def test_nobody_puts_where_a_group_does_not_look_yet(
    store: Store, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    queues = [store.queue(durability="os", **settings), store.queue(group="other")]
    assert [queue.get() for queue in queues] == [None, None]
    count = 0

    def put() -> None:
        nonlocal count
        count += put_in_every_way(queues[0])
        look_everywhere(store, "orders")

    while_growing(store, monkeypatch, "orders", put)
    assert count == 4 * 12
    put()
    assert count == 4 * 12 + 13
    assert [len(drain(queue)) for queue in queues] == [count, count]
    assert {number for number, _ in engine_of(store.engine).catalog.get("orders").topic.lanes()} == {0, 1}


def test_no_dead_letter_goes_where_a_group_does_not_look_yet(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, graves = store.queue(partitions=1), store.queue("orders.dlq")
    store.engine.create_topic("orders.dlq")
    assert queue.get() is graves.get() is None

    def reject() -> None:
        partitions = store.engine.topic("orders").partitions
        queue.put(b"x", partition=partitions - 1)
        queue.reject(queue.get_many(1))
        look_everywhere(store, "orders.dlq")

    # Its partitions come with those of its topic, and before them.
    while_growing(store, monkeypatch, "orders", reject)
    reject()
    assert {letter.partition for letter in graves.get_many(5)} == {0, 1}


def test_no_dead_letter_goes_back_where_a_group_does_not_look_yet(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, graves = store.queue(partitions=1), store.queue("orders.dlq")
    assert queue.get() is None

    def redrive() -> None:
        if not graves.dead_letters():
            graves.put(b"x")
        assert queue.redrive() == 1
        look_everywhere(store, "orders")

    store.engine.create_topic("orders.dlq", partitions=2)
    graves.put(b"x", partition=1)
    while_growing(store, monkeypatch, "orders", redrive)
    graves.put(b"x", partition=1)
    redrive()
    assert {message.partition for message in queue.get_many(5)} == {0, 1}


# Trouble with one of many.


def cursor_of(store: Store, topic: str = "orders") -> Any:
    [cursor] = engine_of(store.engine).catalog.get(topic).group("default").cursors.values()
    return cursor


def test_what_one_topic_gave_reaches_the_caller_when_another_has_no_room(store: Store) -> None:
    both, outcomes = store.queue("e.*"), set()
    for name in ("e.a", "e.b"):
        store.queue(name).put_many([b"x"] * 2)
    for room in range(0, 600, 20):
        store.disk.fill_after(room)
        try:
            taken = len(both.get_many(10))
        except quivermq.DiskFull:
            taken = 0
        store.disk.fill_after(None)
        assert both.stats().in_flight == taken
        outcomes.add(taken)
        for name in ("e.a", "e.b"):
            store.queue(name).seek("earliest")
    assert outcomes == {0, 2, 4}


def test_one_topic_that_fails_keeps_no_other_from_being_settled(events: Store) -> None:
    both = events.queue("e.*")
    for name in ("e.a", "e.b"):
        events.engine.alter_topic(name, durability="fsync")
        events.queue(name).put(b"x")
    deliveries = both.get_many(2)
    events.disk.fail_sync(f"/data/groups/default/{deliveries[0].topic}/*")
    with pytest.raises(quivermq.FsyncFailed):
        both.ack(deliveries)
    assert [delivery.is_settled for delivery in deliveries] == [False, True]
    assert events.queue(deliveries[1].topic).stats().in_flight == 0


def test_a_receipt_of_a_deleted_topic_keeps_no_other_from_being_settled(events: Store) -> None:
    both = events.queue("e.*")
    for name in ("e.a", "e.b"):
        events.queue(name).put(b"x")
    receipts = [delivery.receipt for delivery in both.get_many(2)]
    events.engine.delete_topic("e.a")
    with pytest.raises(quivermq.LeaseExpired) as caught:
        both.ack(receipts)
    assert [receipt.split(":")[0] for receipt in caught.value.receipts] == ["e.a"]
    assert events.queue("e.b").stats().in_flight == 0


def test_where_one_lane_has_no_room_the_other_takes_nothing_and_knows_no_ids(store: Store) -> None:
    messages = [quivermq.Message(b"1", dedup_id="1"), quivermq.Message(b"2", dedup_id="2", priority="low")]
    outcomes = set()
    for room in range(0, 1000, 20):
        queue = store.queue(f"t{room}", durability="os")
        store.disk.fill_after(room)
        try:
            queue.put_many(messages)
            outcomes.add("taken")
        except quivermq.DiskFull:
            outcomes.add("refused")
            assert queue.stats().pending == 0, room
        store.disk.fill_after(None)
        queue.put_many(messages)
        assert sorted(drain(queue)) == [b"1", b"2"], room
    assert outcomes == {"taken", "refused"}


@pytest.mark.parametrize("place", ["seen", "removals"])
def test_the_state_of_somebody_else_stops_its_topic_alone(store: Store, place: str) -> None:
    queue = store.queue()
    queue.put(b"x", dedup_id="x")
    store.queue("other").put(b"y")
    topic: Any = engine_of(store.engine).catalog.get("orders").topic
    if place == "seen":
        topic.dedup._log.append(pack(77, 1, [1]))
    else:
        topic.partitions[0].removals.remove(1, [0])
        topic.partitions[0].removals._log.append(pack(77, 1, [1]))
    store.reopen()
    with pytest.raises(quivermq.StorageFailed, match="does not understand"):
        store.queue().get()
    assert drain(store.queue("other")) == [b"y"]


# Dead letters.


def test_nothing_is_promised_to_dead_letters_that_take_nothing(store: Store) -> None:
    queue = store.queue()
    queue.put_many([b"0", b"1", b"2"])
    zero, one, two = queue.get_many(3)
    zero.reject()
    store.disk.fail_sync("/data/topics/orders.dlq/*")
    with pytest.raises(quivermq.FsyncFailed):
        one.reject()
    assert isinstance(refused(store, two.reject), quivermq.FsyncFailed)


def test_a_burial_without_room_is_not_kept_in_mind(store: Store) -> None:
    queue = store.queue(durability="os")
    failures = 0
    for room in range(0, 1500, 50):
        queue.put(b"x")
        message = queue.get()
        assert message is not None
        store.disk.fill_after(room)
        try:
            message.reject()
        except quivermq.DiskFull:
            failures += "orders.dlq" in store.engine.topics()
        store.disk.fill_after(None)
        assert cursor_of(store)._shared.open_transfers == {}, room
        queue.seek("latest")
    assert failures > 0


# Odds and ends.


def test_one_topic_in_trouble_keeps_no_other_from_being_looked_after(
    events: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("e.a", "e.b"):
        events.queue(name).put(b"x", delay=5)
    broken: Any = engine_of(events.engine).catalog.get("e.a")

    def stumble(_: int) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(broken, "maintain", stumble)
    events.pass_time(6)
    assert engine_of(events.engine).catalog.get("e.b").topic.delays.pending == 0
    assert "maintenance of e.a failed" in caplog.text


@pytest.mark.parametrize("name", ["p²", "p12345678", "p-1", "p"])
def test_a_directory_that_is_no_partition_is_not_taken_for_one(store: Store, name: str) -> None:
    store.queue(partitions=2, durability="os").put(b"x", partition=1)
    store.engine.close()
    store.disk.make_directory(SETTINGS_FILE.parent / name)
    store.disk.remove(SETTINGS_FILE)
    assert store.open_again(store.disk).topic("orders").partitions == 2
    assert drain(store.queue()) == [b"x"]


def test_whole_seconds_are_not_taken_for_microseconds(store: Store) -> None:
    queue = store.queue(partitions=1)
    calls: list[Callable[[], object]] = [
        lambda: queue.put(b"x", timestamp=1_700_000_000),
        lambda: queue.put(b"x", deliver_at=1_700_000_000),
        lambda: queue.seek(timestamp=1_700_000_000),
    ]
    for call in calls:
        assert "looks like seconds" in str(refused(store, call))


def test_a_message_that_expires_frees_one_of_its_key_in_a_lane_that_seemed_empty(store: Store) -> None:
    queue = store.queue(ordering="key", durability="os")
    queue.put(b"first", key=b"k", ttl=10)
    message = queue.get()
    assert message is not None
    message.nack(delay=5)
    queue.put(b"next", key=b"k", priority="high")
    store.clock.advance(20)
    assert values(queue.get_many(5)) == [b"next"]


@pytest.mark.parametrize("how", ["extend", "nack", "ack"])
def test_leases_that_are_over_are_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(deadlines, "_SETTLED_MAX", 10)
    queue = store.queue(durability="os", attempts_max=None)
    queue.put_many([b"x"] * 100)
    for _ in range(100):
        message = queue.get()
        assert message is not None
        if how == "extend":
            message.extend(30)
            queue.seek("earliest")
        elif how == "nack":
            message.nack(delay=0)
        else:
            message.ack()
    assert len(cursor_of(store)._shared.deadlines) < 20
