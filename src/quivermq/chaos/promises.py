"""What a worker was told, every answer held against what it was told before, and the logs against both."""

from collections import Counter, defaultdict
from itertools import groupby
from typing import Any, NamedTuple

from quivermq.chaos.expectation import expect
from quivermq.chaos.numbered import NUMBERS_PER_LIFE, is_deduplicated, is_delayed, key_of, number_in
from quivermq.chaos.scheduled_ids import ScheduledIds
from quivermq.chaos.trial import read_all
from quivermq.chaos.worker import (
    ATTEMPTS_MAX,
    GROUPS,
    PARTITIONS,
    SEGMENT_MESSAGES,
    TOPIC,
    Errand,
    delivery_facts,
)
from quivermq.disk import Disk
from quivermq.engine import Engine, Queue
from quivermq.log import LogFollower
from quivermq.settings import StorageSettings

LANES = [(partition, priority) for partition in range(PARTITIONS) for priority in ("high", "normal", "low")]
_RECEIPTS_HANDED_ON = 20


class Place(NamedTuple):
    """Where a message lies."""

    partition: int
    priority: str
    offset: int


class Promises:
    """All that was promised to one worker after the other."""

    def __init__(self) -> None:
        self.put: set[int] = set()
        self.tried: set[int] = set()
        self.cancelled: set[int] = set()
        self.in_hand: dict[str, tuple[str, Place]] = {}
        self.acked: set[tuple[str, Place]] = set()
        self.maybe_acked: set[tuple[str, Place]] = set()
        self.dead: set[tuple[str, Place]] = set()
        self.attempts: dict[tuple[str, Place], int] = defaultdict(int)
        self.released: set[tuple[str, Place]] = set()
        self.first: dict[tuple[str, int, str, bytes | None], int] = {}
        self.numbers: dict[Place, int] = {}
        self.scheduled_ids = ScheduledIds()
        self.interrupted_pops: Counter[str] = Counter()
        self.disk_fails = False
        """Whether a pop may finish a message of a partition that fails, and then return one of another."""
        self.deaths: dict[tuple[int, int], tuple[str, Place]] = {}
        """What the log of dead letters tells of, by partition and offset; most of it nobody was told."""
        self.deaths_gone = 0
        """How many it told of when nobody looked."""
        self._segment_messages = {SEGMENT_MESSAGES[0]}
        self._sequence = 0
        self._frame: list[int] = []
        self._trying: list[Any] = []

    # What a worker tells.

    def note(self, word: str, *rest: Any) -> None:
        """Take a line of a worker in. Raises Unkept for an answer that breaks a promise."""
        if word == "try":
            self._trying = list(rest)
            self._tries(*rest)
        elif word == "did":
            self._trying = []
            self._did(*rest)
        elif word == "refused":
            step, self._trying = self._trying, []
            if step:
                self._was_refused(*step)
        elif word == "failed":
            self._may_have_happened()

    def stopped(self) -> Errand:
        """A worker is gone: the step it was at may have happened or not. The next one is told of it."""
        self._may_have_happened()
        retries = [n for n in sorted(self.tried - self.put - self.cancelled) if is_deduplicated(n)]
        receipts = [(group, receipt) for receipt, (group, _) in self.in_hand.items()]
        return Errand(0, retries, receipts[-_RECEIPTS_HANDED_ON:], self._sequence, self._frame)

    def _may_have_happened(self) -> None:
        step, self._trying = self._trying, []
        is_settling = step and step[0] in ("ack", "nack", "release", "reject", "extend")
        if is_settling and (held := self.in_hand.pop(step[2], None)) is not None:
            self.maybe_acked.add(held)
            if step[0] == "release":
                self._was_released(held)
        if step and step[0] == "pop":
            self.interrupted_pops[step[1]] += 1
        if step and step[0] == "cancel":
            self.put.discard(step[1])

    def _was_refused(self, step: str, *rest: Any) -> None:
        """Nothing of it may be there. Of many puts at once, some lanes may have theirs."""
        match step, rest:
            case "put", ([number],) if number not in self.put:
                self.tried.discard(number)

    def _tries(self, step: str, *rest: Any) -> None:
        match step, rest:
            case "put", (numbers,):
                self.tried.update(numbers)
                self.cancelled.difference_update(numbers)
            case "send", (numbers,):
                self.tried.update(numbers)
                self._frame = numbers
            case "alter", (messages,):
                self._segment_messages.add(messages)

    def _did(self, step: str, *rest: Any) -> None:
        match step, rest:
            case "put", (numbers, places):
                for number, (*place, scheduled_id) in zip(numbers, places, strict=True):
                    self._was_put(number, Place(*place))
                    self.scheduled_ids.note(number, scheduled_id)
            case "send", (numbers, offset):
                for place, number in enumerate(numbers, offset):
                    self._was_put(number, Place(0, "normal", place))
                self._sequence += len(numbers)
                self._frame = []
            case (("get" | "pop"), (group, taken)):
                for *place, attempt, receipt, number in taken:
                    name = group, Place(*place)
                    self._was_delivered(name, attempt, number)
                    if step == "pop":
                        self.acked.add(name)
                        self.interrupted_pops[group] += self.disk_fails
                    else:
                        self.in_hand[receipt] = name
            case (("ack" | "nack" | "release" | "reject" | "lose"), (_, receipt)):
                held = self.in_hand.pop(receipt, None)
                # What was never durable, and is gone, is nobody's any more.
                expect(held is not None or step == "lose", f"{receipt} was settled, and is not there")
                if held is not None:
                    self._was_settled(step, held)
            case "cancel", (number, True):
                self.put.discard(number)
                self.cancelled.add(number)
            case "alter", (messages,):
                self._segment_messages = {messages}

    def _was_put(self, number: int, place: Place) -> None:
        self.put.add(number)
        if not is_delayed(number):
            self._is_at(place, number)

    def _is_at(self, place: Place, number: int) -> None:
        known = self.numbers.setdefault(place, number)
        expect(known == number, f"{place} is message {number}, and was message {known} before")

    def _was_delivered(self, name: tuple[str, Place], attempt: int, number: int) -> None:
        group, place = name
        self._is_at(place, number)
        expect(name not in self.acked, f"{name} was acknowledged, and delivered again")
        expect(name not in self.dead, f"{name} is a dead letter, and was delivered again")
        expect(number not in self.cancelled, f"{name}, message {number}, was cancelled, and delivered")
        before = self.attempts[name]
        expect(before < attempt <= ATTEMPTS_MAX, f"{name}: attempt {attempt} follows attempt {before}")
        self.attempts[name] = attempt
        if attempt == 1 and name not in self.released:
            lane = group, place.partition, place.priority, key_of(number)
            expect(self.first.get(lane, -1) < place.offset, f"{name} was overtaken")
            self.first[lane] = place.offset

    def _was_settled(self, step: str, name: tuple[str, Place]) -> None:
        expect(step == "lose" or name not in self.acked, f"{name} was settled twice")
        if step == "ack":
            self.acked.add(name)
        elif step == "release":
            self._was_released(name)
        elif step == "reject" or (step == "nack" and self.attempts[name] == ATTEMPTS_MAX):
            self.dead.add(name)

    def _was_released(self, name: tuple[str, Place]) -> None:
        """The same attempt comes again, or, when nobody knows whether it was released, the next one."""
        self.attempts[name] -= 1
        self.released.add(name)

    def cut(self, ends: dict[tuple[int, str], int]) -> None:
        """Forget what was told of messages behind the ends of lanes: never durable, and read all the same.

        Somebody may be handed a message whose put has failed, or not returned yet. What was acknowledged is
        known by its number, and has to be there.
        """

        def is_gone(place: Place) -> bool:
            return place.offset >= ends.get((place.partition, place.priority), 0)

        self.numbers = {place: n for place, n in self.numbers.items() if not is_gone(place)}
        self.in_hand = {r: name for r, name in self.in_hand.items() if not is_gone(name[1])}
        for names in (self.acked, self.maybe_acked, self.dead, self.released):
            names.difference_update([name for name in names if is_gone(name[1])])
        for name in [name for name in self.attempts if is_gone(name[1])]:
            del self.attempts[name]
        for lane, offset in self.first.items():
            self.first[lane] = min(offset, ends.get(lane[1:3], 0) - 1)

    # What the logs say.

    def check(self, engine: Engine, disk: Disk | None = None) -> None:
        """Everything in the logs was put, everything that was put is there, and as often as it should."""
        if TOPIC not in engine.topics():
            expect(not self.put, "the topic is gone")
            return
        settings = engine.topic(TOPIC).settings
        expect(settings.segment_messages in self._segment_messages, "the topic is set otherwise")
        queue = engine.queue(TOPIC)
        # First, because what is due goes to its lane when somebody asks for what is not.
        waiting = [number_in(scheduled.value) for scheduled in queue.scheduled()]
        copies: Counter[int] = Counter()
        for partition, priority in LANES:
            found = self._read(queue, partition, priority)
            self._check_order_of_puts(found, copies)
            copies.update(found)
        there = {*copies, *waiting}
        expect(self.put <= there, f"lost: {sorted(self.put - there)[:10]}")
        expect(there <= self.tried, f"never put: {sorted(there - self.tried)[:10]}")
        expect(there.isdisjoint(self.cancelled), "what was cancelled is there")
        self._check_dead_letters(engine, disk, copies, waiting)

    def _read(self, queue: Queue, partition: int, priority: str) -> list[int]:
        found: list[int] = []
        for record in read_all(queue, partition, priority):
            place = Place(partition, priority, len(found))
            expect(record.offset == place.offset, f"offset {record.offset} stands at {place}")
            found.append(number_in(record.value))
            self._is_at(place, found[-1])
            self.scheduled_ids.check(found[-1], record.scheduled_id)
        return found

    def _check_order_of_puts(self, found: list[int], before: Counter[int]) -> None:
        """What one worker put into a lane is there in that order, unless it was delayed or redriven."""
        first = [number for number in dict.fromkeys(found) if not before[number]]
        in_order = [n for n in first if not is_delayed(n) and not is_deduplicated(n)]
        for _, life in groupby(in_order, key=lambda number: number // NUMBERS_PER_LIFE):
            numbers = list(life)
            expect(numbers == sorted(numbers), "messages of one lane are out of order")

    def _check_dead_letters(
        self, engine: Engine, disk: Disk | None, copies: Counter[int], waiting: list[int]
    ) -> None:
        """Each death is in the log of dead letters once; it is still shown, or the message went back."""
        name = f"{TOPIC}.dlq"
        if name not in engine.topics():
            expect(not self.dead, "the dead letters are gone")
            return
        shown = buried = gone = 0
        for partition in range(engine.topic(name).partitions):
            directory = engine.path / "topics" / name / f"p{partition}" / "normal"
            log = LogFollower(directory, StorageSettings(), disk=disk)
            # What was redriven may be gone for good, together with its segment.
            gone, buried = gone + log.start, buried + log.end
            shown += len(engine.queue(name).read(partition, None, 100_000))
            for record in log.records():
                self._note_death(partition, record)
        times = Counter(self.deaths.values())
        expect(not times or max(times.values()) == 1, f"died twice: {times.most_common(3)}")
        expect(len(self.dead - times.keys()) <= gone, "dead letters are missing")
        expect(self.acked.isdisjoint(times), "something was acknowledged, and is a dead letter")
        self.deaths_gone = buried - len(self.deaths)
        twice = sum(copies.values()) + len(waiting) - len({*copies, *waiting})
        expect(
            twice == buried - shown,
            f"{twice} messages are there twice, and {buried - shown} were redriven:"
            " each has to be in one of the two topics, and only there",
        )

    def _note_death(self, partition: int, record: Any) -> None:
        death = _death(record)
        known = self.deaths.setdefault((partition, record.offset), death)
        expect(known == death, f"a dead letter has changed: {known}, {death}")
        expect(
            int(record.headers["quiver-dlq-attempts"]) >= self.attempts[death],
            f"{death} forgot an attempt",
        )
        expect(number_in(record.value) == self.numbers[death[1]], f"{death} has another value")
        self.scheduled_ids.check(number_in(record.value), record.scheduled_id)

    # The end.

    def drain(self, engine: Engine) -> None:
        """When no lease holds any more, everything that is not finished comes out once more."""
        for group in GROUPS:
            queue = engine.queue(TOPIC, group=group)
            while taken := queue.get_many(1000):
                for *place, attempt, _, number in map(delivery_facts, taken):
                    self._was_delivered((group, Place(*place)), attempt, number)
                    self.acked.add((group, Place(*place)))
                queue.ack(taken)

    def check_finished(self) -> None:
        """Every message was acknowledged or died, in every group, as far as a worker could be told."""
        for group in GROUPS:
            names = {(group, place) for place in self.numbers}
            missing = names - self.acked - self.maybe_acked - self.dead - set(self.deaths.values())
            unseen = self.interrupted_pops[group] + self.deaths_gone
            expect(len(missing) <= unseen, f"never delivered: {sorted(missing)[:10]}")


def _death(record: Any) -> tuple[str, Place]:
    told = {
        key.removeprefix("quiver-dlq-"): value.decode(errors="replace")
        for key, value in record.headers.items()
    }
    return told["group"], Place(int(told["partition"]), told["priority"], int(told["offset"]))
