"""The queue against its model: whatever is asked of it, whatever the clock does, wherever it dies.

QUIVER_EXAMPLES says how many lives to try, QUIVER_STEPS how long each may get.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.faulty_disk import FaultyDisk, Keep, PowerCut
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler
from support.queue_model import (
    Doomed,
    Finished,
    GroupModel,
    Leased,
    Place,
    Rules,
    Sent,
    TopicModel,
    Waiting,
    look,
)

import quivermq
from quivermq.clock import SteadyClock
from quivermq.delivery.taken import deliveries_of
from quivermq.engine import engine_of

pytestmark = pytest.mark.fault("clock", "engine")

EXAMPLES = int(os.environ.get("QUIVER_EXAMPLES", "150"))
STEPS = int(os.environ.get("QUIVER_STEPS", "50"))

DATA = Path("/data")
TOPIC = "orders"
GROUPS = ("billing", "audit")
KEEPS: tuple[Keep, ...] = ("nothing", "random", "everything")
SECOND = 1_000_000
FAR_AWAY_STEPS = 1_000_000_000


class Wish(NamedTuple):
    """A message to be put, in small numbers: zero is the plainest there is."""

    key: int
    headers: int
    priority: int
    partition: int
    ttl_s: int
    delay_s: int
    dedup: int


wishes = st.builds(
    Wish,
    key=st.integers(0, 2),
    headers=st.integers(0, 2),
    priority=st.sampled_from([0, 0, 1, 2]),
    partition=st.integers(0, 2),
    ttl_s=st.sampled_from([0, 0, 0, 7, 100]),
    delay_s=st.sampled_from([0, 0, 0, 3, 20, 5000]),
    dedup=st.sampled_from([0, 0, 1, 2]),
)
groups = st.integers(0, 1)
choices = st.integers(0, 5)


class QueueMachine(RuleBasedStateMachine):
    """One topic, two groups, a disk that may stop at any step, and a clock that anybody may set."""

    engine: Any
    has_failed = False

    @initialize(
        partitions=st.integers(1, 2),
        is_ordered=st.booleans(),
        durability=st.sampled_from(["fsync", "os"]),
        segment_messages=st.sampled_from([1000, 3]),
        deletes_finished=st.booleans(),
        dead_letters_expired=st.booleans(),
        attempts_max=st.sampled_from([3, 1, 2]),
    )
    def begin(
        self,
        partitions: int,
        is_ordered: bool,
        durability: str,
        segment_messages: int,
        deletes_finished: bool,
        dead_letters_expired: bool,
        attempts_max: int,
    ) -> None:
        self.rules_ = Rules(
            attempts_max=attempts_max,
            is_ordered_by_key=is_ordered,
            dead_letters_expired=dead_letters_expired,
        )
        self.topic_settings: dict[str, Any] = {
            "partitions": partitions,
            "durability": durability,
            "ordering": "key" if is_ordered else "none",
            "segment_messages": segment_messages,
            "delete_finished": deletes_finished,
            "dead_letter_expired": dead_letters_expired,
            "attempts_max": attempts_max,
            "lease_ms": self.rules_.lease // 1000,
            "backoff_ms": self.rules_.backoff // 1000,
            "backoff_ms_max": self.rules_.backoff_max // 1000,
            "dedup_window_ms": self.rules_.dedup_window // 1000,
        }
        self.model = TopicModel(GROUPS, self.rules_)
        self.disk = FaultyDisk()
        self.clock = ManualClock()
        self.in_hand: list[tuple[int, str]] = []
        self.number = 0
        self.batch = 0
        self.changing: dict[str, Any] = {}
        self.power: tuple[Keep, int] | None = None
        self.second_stop = 0
        self.open()
        self.engine.create_topic(TOPIC, **self.topic_settings)

    @property
    def now(self) -> int:
        return self.steady.now_us()

    def queue(self, group: int = 0) -> Any:
        return self.engine.queue(TOPIC, group=GROUPS[group])

    def group(self, number: int) -> GroupModel:
        return self.model.groups[GROUPS[number]]

    def open(self) -> None:
        self.scheduler = ManualScheduler(self.clock)
        self.steady = SteadyClock(self.clock)
        self.engine = quivermq.open(DATA, disk=self.disk, clock=self.clock, scheduler=self.scheduler)

    @contextmanager
    def dying(self, interrupted: Callable[[], object] = lambda: None) -> Iterator[None]:
        """If the process dies in this block, what it was about to do may have happened or not."""
        self.has_failed = True
        try:
            yield
        except PowerCut:
            interrupted()
            self.restart()
        self.has_failed = False

    def restart(self) -> None:
        """Open what the dead process left, again if that dies as well."""
        then = self.now
        while True:
            if self.power is None:
                self.disk = self.disk.after_kill()
            else:
                keep, seed = self.power
                self.disk = self.disk.after_power_loss(seed, keep=keep)
            if self.second_stop:
                self.disk.stop_at(self.second_stop)
                self.second_stop = 0
            try:
                self.open()
                self.adopt_settings()
                self.model.opened_again(then, self.now)
                if self.power is not None and self.topic_settings["durability"] == "os":
                    # Of what was promised, a loss of power may take anything.
                    self.model.lost_certainty(look(self.engine, TOPIC, self.model, everything=True))
                self.settle()
                return
            except PowerCut:
                continue

    def adopt_settings(self) -> None:
        """Go on with the settings that the topic has, which may be those of an interrupted change."""
        found = {name: getattr(self.engine.topic(TOPIC).settings, name) for name in self.topic_settings}
        assert found in (self.topic_settings, self.topic_settings | self.changing)
        self.topic_settings, self.changing = found, {}
        self.rules_.attempts_max = found["attempts_max"]
        self.rules_.lease = found["lease_ms"] * 1000

    def settle(self) -> None:
        """Let the queue do what is due, then look at everything it shows."""
        engine_of(self.engine).maintain()
        self.look(is_settled=True)

    def look(self, *, is_settled: bool = False) -> None:
        shown = look(self.engine, TOPIC, self.model)
        self.model.show(shown, self.now, is_settled=is_settled)

    def sent(self, wish: Wish, batch: int | None = None) -> Sent:
        self.number += 1
        due_at = self.now + wish.delay_s * SECOND if wish.delay_s else None
        partitions = self.topic_settings["partitions"]
        return Sent(
            self.number,
            key=b"key %d" % wish.key if wish.key else None,
            headers={"a": b"1", "b": b""} if wish.headers == 2 else {"a": b"2"} if wish.headers else {},
            priority=("normal", "high", "low")[wish.priority],
            partition=(wish.partition - 1) % partitions if wish.partition else None,
            due_at=due_at,
            expires_at=(due_at or self.now) + wish.ttl_s * SECOND if wish.ttl_s else None,
            dedup_id=f"id {wish.dedup}" if wish.dedup else None,
            batch=batch,
        )

    @rule(wish=wishes)
    def put(self, wish: Wish) -> None:
        sent = self.sent(wish)
        with self.dying(lambda: self.model.interrupted_put([sent], self.now)):
            self.put_done(sent, self.queue().put(sent.value, **_options(sent, wish, self.clock)))
            self.look()

    @rule(several=st.lists(wishes, min_size=1, max_size=5))
    def put_many(self, several: list[Wish]) -> None:
        self.batch += 1
        batch = [self.sent(wish, self.batch) for wish in several]
        messages = [
            quivermq.Message(sent.value, **_options(sent, wish, self.clock))
            for sent, wish in zip(batch, several, strict=True)
        ]
        with self.dying(lambda: self.model.interrupted_put(batch, self.now)):
            for sent, put in zip(batch, self.queue().put_many(messages), strict=True):
                self.put_done(sent, put)
            self.look()

    def put_done(self, sent: Sent, put: Any) -> None:
        first, is_certain = self.model.first_with(sent.dedup_id, self.now)
        place = None if put.offset is None else Place(put.partition, put.priority, put.offset)
        if put.duplicate:
            assert first is not None, f"taken for a duplicate of nothing: {sent}"
            if is_certain:
                self.model.was_duplicate(first, place, put.scheduled_id)
        else:
            assert first is None or not is_certain, f"not taken for a duplicate of {first}: {sent}"
            self.model.was_put(sent, self.now, place, put.scheduled_id)

    def take(
        self, group: int, take: Callable[[Any], list[Any]], lease_s: int, *, pops: bool = False
    ) -> None:
        model, lease = self.group(group), lease_s * SECOND or self.rules_.lease
        with self.dying(lambda: model.interrupted_delivery(self.now, lease, finished=pops)):
            # First, so that the model knows what fell due, and what died, before this.
            self.settle()
            model.may_exist = True
            taken = take(self.queue(group))
            model.exists = True
            # A message that fell due, or was appended, in the same call is in the log by now.
            self.look()
            for delivery in taken:
                self.delivered(group, delivery, lease, pops=pops)
            if not taken:
                model.nothing_delivered(self.now)

    def delivered(self, group: int, delivery: Any, lease: int, *, pops: bool) -> None:
        model = self.group(group)
        place = Place(delivery.partition, delivery.priority, delivery.offset)
        assert place in self.model.log, f"delivered, but not in the log: {place}"
        self.model.log[place].check(delivery.value, delivery.key, dict(delivery.headers))
        if pops:
            model.popped(place, delivery.attempt, self.now)
        else:
            model.delivered(place, delivery.attempt, delivery.receipt, self.now, lease)
            self.in_hand.append((group, delivery.receipt))

    @rule(group=groups, lease_s=st.sampled_from([0, 0, 5]))
    def get(self, group: int, lease_s: int) -> None:
        def take(queue: Any) -> list[Any]:
            delivery = queue.get(lease=lease_s or None)
            return [] if delivery is None else [delivery]

        self.take(group, take, lease_s)

    @rule(group=groups, count=st.integers(1, 6), lease_s=st.sampled_from([0, 0, 5]))
    def get_many(self, group: int, count: int, lease_s: int) -> None:
        self.take(group, lambda queue: queue.get_many(count, lease=lease_s or None), lease_s)

    @rule(group=groups, count=st.integers(1, 6), pops=st.booleans())
    def take_whole(self, group: int, count: int, pops: bool) -> None:
        """As the broker does it, which hands on whole frames where it can."""

        def take(queue: Any) -> list[Any]:
            return deliveries_of(queue._backend.take_batches(count, whole=True, pop=pops))

        self.take(group, take, 0, pops=pops)

    @rule(group=groups)
    def pop(self, group: int) -> None:
        def take(queue: Any) -> list[Any]:
            delivery = queue.pop()
            return [] if delivery is None else [delivery]

        self.take(group, take, 0, pops=True)

    @rule(group=groups, limit=st.integers(1, 5))
    def peek(self, group: int, limit: int) -> None:
        with self.dying():
            self.settle()
            for record in self.queue(group).peek(limit):
                places = self.model.places_of(record.value)
                self.model.log[places[0]].check(record.value, record.key, dict(record.headers))
                is_plausible = any(self.group(group).is_plausible(place, self.now) for place in places)
                assert is_plausible, f"{record} is not pending"

    def settlement(
        self, choice: int, settle: Callable[[Any, str], None], become: Callable[[Any, int], Any]
    ) -> None:
        """Use a receipt once, which may be long expired."""
        group, receipt = self.in_hand.pop(choice % len(self.in_hand))
        model = self.group(group)

        def interrupted() -> None:
            with model.maybe():
                if model.is_live(receipt, self.now):
                    model.settled(receipt, self.now, lambda attempts: become(model, attempts))

        with self.dying(interrupted):
            # Not all at once, so that a lease is also found expired by the one who comes with it.
            self.look()
            try:
                settle(self.queue(group), receipt)
            except quivermq.LeaseExpired:
                model.refused(receipt, self.now)
            else:
                model.settled(receipt, self.now, lambda attempts: become(model, attempts))
            self.look()

    has_receipt = precondition(lambda self: self.in_hand)

    @has_receipt
    @rule(choice=choices)
    def ack(self, choice: int) -> None:
        self.settlement(choice, lambda queue, receipt: queue.ack(receipt), lambda *_: Finished())

    @has_receipt
    @rule(choice=choices, delay_s=st.sampled_from([None, 0, 4]), is_told=st.booleans())
    def nack(self, choice: int, delay_s: int | None, is_told: bool) -> None:
        reason = "no luck" if is_told else None
        delay = None if delay_s is None else delay_s * SECOND
        self.settlement(
            choice,
            lambda queue, receipt: queue.nack(receipt, delay=delay_s, reason=reason),
            lambda model, attempts: model.failed(attempts, self.now, delay=delay, reason=reason),
        )

    @has_receipt
    @rule(choice=choices)
    def release(self, choice: int) -> None:
        self.settlement(
            choice,
            lambda queue, receipt: queue.release(receipt),
            lambda _, attempts: Waiting(attempts - 1),
        )

    @has_receipt
    @rule(choice=choices, is_told=st.booleans())
    def reject(self, choice: int, is_told: bool) -> None:
        reason, error = ("no use", "ValueError") if is_told else (None, None)
        self.settlement(
            choice,
            lambda queue, receipt: queue.reject(receipt, reason=reason, error=error),
            lambda _, attempts: Doomed(attempts, reason or "rejected", error or ""),
        )

    @has_receipt
    @rule(choice=choices, seconds=st.sampled_from([1, 60]))
    def extend(self, choice: int, seconds: int) -> None:
        group, receipt = self.in_hand[choice % len(self.in_hand)]
        self.settlement(
            choice,
            lambda queue, receipt: queue.extend(receipt, seconds),
            lambda _, attempts: Leased(attempts, self.now + seconds * SECOND, receipt),
        )
        self.in_hand.append((group, receipt))

    @rule(group=groups, outcomes=st.lists(st.integers(0, 5), min_size=1, max_size=6))
    def work(self, group: int, outcomes: list[int]) -> None:
        """Take one message after the other and settle it: most of what a queue does all day."""
        for outcome in outcomes:
            before = len(self.in_hand)
            self.get(group, 0)
            if len(self.in_hand) == before:
                return
            match outcome:
                case 0:
                    self.ack(before)
                case 1:
                    self.nack(before, 0, False)
                case 2:
                    self.nack(before, None, True)
                    self.advance(5, True)
                case 3:
                    self.advance(30, False)
                case 4:
                    self.reject(before, True)
                case 5:
                    self.release(before)

    @has_receipt
    @rule(group=groups)
    def ack_all(self, group: int) -> None:
        """Many at once: the valid ones are settled, the others named."""
        mine = [receipt for whose, receipt in self.in_hand if whose == group]
        self.in_hand = [pair for pair in self.in_hand if pair[0] != group]
        model = self.group(group)

        def finished(receipts: list[str]) -> None:
            for receipt in receipts:
                model.settled(receipt, self.now, lambda _: Finished())

        def interrupted() -> None:
            with model.maybe():
                finished([receipt for receipt in mine if model.is_live(receipt, self.now)])

        with self.dying(interrupted):
            refused: list[str] = []
            try:
                self.queue(group).ack(mine)
            except quivermq.LeaseExpired as error:
                refused = list(error.receipts)
            for receipt in refused:
                model.refused(receipt, self.now)
            finished([receipt for receipt in mine if receipt not in refused])

    @rule(group=groups, to=st.sampled_from(["earliest", "latest"]))
    def seek(self, group: int, to: str) -> None:
        model = self.group(group)
        lanes = set(self.model.ends)
        offset = 0 if to == "earliest" else None
        with self.dying(lambda: self.maybe_sought(model, lanes, offset)):
            self.settle()
            lanes = set(self.model.ends)
            model.may_exist = True
            self.queue(group).seek(to)
            model.exists = True
            model.sought(lanes, offset)

    @rule(group=groups, lane=choices, offset=st.integers(0, 8))
    def seek_offset(self, group: int, lane: int, offset: int) -> None:
        model = self.group(group)
        lanes = sorted(self.model.ends)
        if not lanes:
            return
        partition, priority = lanes[lane % len(lanes)]
        place = offset % (self.model.ends[partition, priority] + 1)
        place = max(self.model.starts[partition, priority], place)
        with self.dying(lambda: self.maybe_sought(model, {(partition, priority)}, place)):
            self.settle()
            model.may_exist = True
            try:
                self.queue(group).seek(offset=place, partition=partition, priority=priority)
            except quivermq.OffsetOutOfRange as error:
                if place >= error.start:
                    raise
                # Retention was here since the model last looked.
                return
            model.exists = True
            model.sought({(partition, priority)}, place)

    def maybe_sought(self, model: Any, lanes: Any, offset: int | None) -> None:
        with model.maybe():
            model.sought(lanes, offset)

    @rule(limit=st.sampled_from([None, 1]), parity=st.integers(0, 2))
    def redrive(self, limit: int | None, parity: int) -> None:
        """Send dead letters back: all, or those of every other source offset."""

        def wanted(dead: Any) -> bool:
            return parity == 2 or int(dead.offset) % 2 == parity

        with self.dying(lambda: setattr(self.model, "is_redriving", True)):
            self.settle()
            before = len(self.model.dead)
            self.model.is_redriving = True
            moved = self.queue().redrive(None if parity == 2 else wanted, limit)
            self.look()
            assert before - len(self.model.dead) == moved
            assert limit is None or moved <= limit
            if parity == 2:
                assert moved == (before if limit is None else min(before, limit))
        self.model.is_redriving = False

    @precondition(lambda self: self.model.delayed)
    @rule(choice=choices)
    def cancel(self, choice: int) -> None:
        scheduled_id = sorted(self.model.delayed)[choice % len(self.model.delayed)]
        with self.dying(lambda: self.model.interrupted_cancel(scheduled_id)):
            self.look()
            is_there = scheduled_id in self.model.delayed
            answer = self.queue().cancel(scheduled_id)
            if answer:
                self.model.cancelled(scheduled_id)
            else:
                # It may have fallen due, and be in its lane, before anybody looked.
                assert not is_there or self.model.is_late(scheduled_id, self.now)
            assert not self.queue().cancel(scheduled_id), "cancelled twice"
            self.look()

    @rule(
        lease_s=st.sampled_from([0, 10, 30]), attempts_more=st.integers(0, 1), partitions=st.integers(1, 2)
    )
    def alter_topic(self, lease_s: int, attempts_more: int, partitions: int) -> None:
        changed: dict[str, Any] = {
            "lease_ms": lease_s * 1000 or 30_000,
            "attempts_max": self.rules_.attempts_max + attempts_more,
            "partitions": max(partitions, self.topic_settings["partitions"]),
        }
        with self.dying():
            # What died at the old limit has to be seen before there is a new one.
            self.settle()
            self.changing = changed
            self.engine.alter_topic(TOPIC, **changed)
            self.topic_settings |= changed
            self.adopt_settings()

    @rule()
    def compact(self) -> None:
        with self.dying():
            self.engine.compact()
            self.look()

    @rule(seconds=st.sampled_from([1, 2, 5, 30, 700]), is_maintained=st.booleans())
    def advance(self, seconds: int, is_maintained: bool) -> None:
        self.clock.advance(seconds)
        # The queue's own thread may be late: whoever comes first has to notice what has expired.
        if is_maintained:
            with self.dying():
                self.scheduler.run_due()
                self.settle()

    @rule(hours=st.sampled_from([1, -1]))
    def set_the_clock(self, hours: int) -> None:
        """Somebody sets the machine's clock, which an open queue does not care about."""
        self.clock.jump(hours * 3600)

    @rule()
    def reopen(self) -> None:
        then = self.now
        with self.dying():
            self.engine.close()
            self.open()
            self.model.opened_again(then, self.now)
            self.settle()

    @rule(
        steps=st.integers(0, 15),
        keep=st.sampled_from([None, *KEEPS]),
        seed=st.integers(0, 3),
        second_stop=st.sampled_from([0, 0, 1, 4, 9]),
    )
    def crash(self, steps: int, keep: Keep | None, seed: int, second_stop: int) -> None:
        """Let the process die now or at one of the next steps of its disk, by a kill or a power loss."""
        self.disk.seed = seed
        self.power = None if keep is None else (keep, seed)
        self.second_stop = second_stop
        if steps:
            self.disk.stop_at(self.disk.steps + steps)
            return
        self.disk.stop()
        with self.dying():
            raise PowerCut("between two steps")

    @rule(
        act=st.integers(0, 4),
        group=groups,
        steps=st.integers(1, 12),
        keep=st.sampled_from([None, *KEEPS]),
        seed=st.integers(0, 3),
    )
    def crash_in(self, act: int, group: int, steps: int, keep: Keep | None, seed: int) -> None:
        """Die in the middle of what takes several writes, some of them in different logs."""
        if act in (0, 1):
            self.get(group, 0)
        if not self.in_hand and act < 3:
            return
        self.crash(steps, keep, seed, 0)
        match act:
            case 0:
                self.reject(len(self.in_hand) - 1, True)
            case 1:
                self.nack(len(self.in_hand) - 1, 0, False)
            case 2:
                self.ack_all(group)
            case 3:
                self.redrive(None, 2)
            case 4:
                self.advance(30, True)

    def teardown(self) -> None:
        if not hasattr(self, "engine") or self.has_failed:
            return
        self.disk.stop_at(FAR_AWAY_STEPS)
        self.second_stop = 0
        self.settle()
        # First what can be had now, then what had to wait, was leased, or fell due since.
        for seconds in (0, 100, 24 * 3600, 24 * 3600):
            self.clock.advance(seconds)
            self.scheduler.run_due()
            for group in range(len(GROUPS)):
                self.drain(group)
        self.settle()
        for model in self.model.groups.values():
            model.check_finished(self.now)
        report = self.engine.verify()
        assert report.is_sound, report
        self.reopen()
        for group in range(len(GROUPS)):
            assert self.queue(group).get() is None
        self.engine.close()
        assert quivermq.verify(DATA, disk=self.disk).is_sound

    def drain(self, group: int) -> None:
        while True:
            before = len(self.in_hand)
            self.get_many(group, 100, 0)
            if len(self.in_hand) == before:
                return
            self.in_hand, mine = self.in_hand[:before], self.in_hand[before:]
            for _, receipt in mine:
                self.queue(group).ack(receipt)
                self.group(group).settled(receipt, self.now, lambda _: Finished())


def _options(sent: Sent, wish: Wish, clock: ManualClock) -> dict[str, Any]:
    """The arguments of put and of Message alike. Every other delay is given as a moment in wall time."""
    at = sent.number % 2 == 0 and wish.delay_s
    return {
        "key": sent.key,
        "headers": sent.headers or None,
        "priority": sent.priority,
        "ttl": wish.ttl_s or None,
        "delay": wish.delay_s if wish.delay_s and not at else None,
        "deliver_at": clock.now_us() + wish.delay_s * SECOND if at else None,
        "dedup_id": sent.dedup_id,
        "partition": sent.partition,
    }


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    max_examples=EXAMPLES,
    # The normal run tries the same lives every time; asked for a number, it goes where it has not been.
    derandomize="QUIVER_EXAMPLES" not in os.environ,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
