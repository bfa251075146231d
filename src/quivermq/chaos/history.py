"""What a load was answered: each answer is held against those before it, and the logs against all."""

from collections import Counter, defaultdict
from itertools import groupby
from typing import Any, NamedTuple

from quivermq.chaos import expect
from quivermq.chaos.load import (
    ATTEMPTS_MAX,
    GROUPS,
    NUMBERS_PER_RUN,
    PARTITIONS,
    SEGMENT_MESSAGES,
    TOPIC,
    WorkerRun,
    delivery_facts,
    is_deduplicated,
    is_delayed,
    key_of,
    number_in,
)
from quivermq.chaos.trial import read_all
from quivermq.disk import Disk
from quivermq.engine import engine_of
from quivermq.log import LogFollower
from quivermq.model.lanes import PRIORITIES, Priority, priority_of
from quivermq.queue.connection import Connection
from quivermq.queue.queue import Queue
from quivermq.settings import StorageSettings

LANES = [(partition, priority) for partition in range(PARTITIONS) for priority in PRIORITIES]
_RECEIPTS_HANDED_ON = 20


class MessagePlace(NamedTuple):
    """Where a message lies."""

    partition: int
    priority: str
    offset: int


# A message as a group sees it.
Delivered = tuple[str, MessagePlace]


class LoadHistory:
    """All that was acknowledged to one run of a worker after the other."""

    def __init__(self) -> None:
        self.put: set[int] = set()
        self.tried: set[int] = set()
        self.cancelled: set[int] = set()
        self.in_hand: dict[str, Delivered] = {}
        self.acked: set[Delivered] = set()
        self.maybe_acked: set[Delivered] = set()
        self.dead: set[Delivered] = set()
        self.attempts: dict[Delivered, int] = defaultdict(int)
        self.released: set[Delivered] = set()
        self.first: dict[tuple[str, int, str, bytes | None], int] = {}
        self.numbers: dict[MessagePlace, int] = {}
        self.interrupted_pops: Counter[str] = Counter()
        self.disk_fails = False
        """Whether a pop may finish a message of a partition that fails, and then return one of another."""
        self.dead_letters: dict[tuple[int, int], Delivered] = {}
        """What the log of dead letters has, by partition and offset; of most of it no worker knows."""
        self.dead_letters_gone = 0
        """How many of them were gone before anybody looked."""
        self._scheduled_ids: dict[int, str] = {}
        self._segment_messages = {SEGMENT_MESSAGES[0]}
        self._sequence = 0
        self._frame: list[int] = []
        self._trying: list[Any] = []

    # What a worker reports.

    def note(self, word: str, *rest: Any) -> None:
        """Take a line of a worker in. Raises Violation for an answer that breaks a promise."""
        step, self._trying = self._trying, []
        match word:
            case "try":
                self._trying = list(rest)
                self._tries(*rest)
            case "did":
                self._did(*rest)
            case "refused":
                self._was_refused(step)
            case "failed":
                self._may_have_happened(step)
            case _:
                self._trying = step

    def next_run(self, number: int, *, tidies: bool = False) -> WorkerRun:
        """A worker is gone: its last step may have happened or not. The next run goes on from there."""
        step, self._trying = self._trying, []
        self._may_have_happened(step)
        retries = [n for n in sorted(self.tried - self.put - self.cancelled) if is_deduplicated(n)]
        receipts = [(group, receipt) for receipt, (group, _) in self.in_hand.items()]
        receipts = receipts[-_RECEIPTS_HANDED_ON:]
        return WorkerRun(number, retries, receipts, self._sequence, self._frame, tidies)

    def _may_have_happened(self, step: list[Any]) -> None:
        match step:
            case [("ack" | "nack" | "release" | "reject" | "extend") as how, _, receipt]:
                if (held := self.in_hand.pop(receipt, None)) is not None:
                    self.maybe_acked.add(held)
                    if how == "release":
                        self._was_released(held)
            case ["pop", group]:
                self.interrupted_pops[group] += 1
            case ["cancel", number]:
                self.put.discard(number)

    def _was_refused(self, step: list[Any]) -> None:
        """Nothing of it may be there. Of many puts at once, some lanes may have theirs."""
        match step:
            case ["put", [number]] if number not in self.put:
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
            case "put", (numbers, stored):
                for number, (*where, scheduled_id) in zip(numbers, stored, strict=True):
                    self._was_put(number, MessagePlace(*where))
                    if scheduled_id is not None:
                        # Put again after it was cancelled, it is another one.
                        self._scheduled_ids[number] = scheduled_id
            case "send", (numbers, first):
                for offset, number in enumerate(numbers, first):
                    self._was_put(number, MessagePlace(0, "normal", offset))
                self._sequence += len(numbers)
                self._frame = []
            case (("get" | "pop"), (group, taken)):
                for *where, attempt, receipt, number in taken:
                    delivered = group, MessagePlace(*where)
                    self._was_delivered(delivered, attempt, number)
                    if step == "pop":
                        self.acked.add(delivered)
                        self.interrupted_pops[group] += self.disk_fails
                    else:
                        self.in_hand[receipt] = delivered
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

    def _was_put(self, number: int, where: MessagePlace) -> None:
        self.put.add(number)
        if not is_delayed(number):
            self._is_at(where, number)

    def _is_at(self, where: MessagePlace, number: int) -> None:
        known = self.numbers.setdefault(where, number)
        expect(known == number, f"{where} is message {number}, and was message {known} before")

    def _was_delivered(self, delivered: Delivered, attempt: int, number: int) -> None:
        group, where = delivered
        self._is_at(where, number)
        expect(delivered not in self.acked, f"{delivered} was acknowledged, and delivered again")
        expect(delivered not in self.dead, f"{delivered} is a dead letter, and was delivered again")
        expect(number not in self.cancelled, f"{delivered}, message {number}, was cancelled, and delivered")
        before = self.attempts[delivered]
        expect(before < attempt <= ATTEMPTS_MAX, f"{delivered}: attempt {attempt} follows attempt {before}")
        self.attempts[delivered] = attempt
        if attempt == 1 and delivered not in self.released:
            lane = group, where.partition, where.priority, key_of(number)
            expect(self.first.get(lane, -1) < where.offset, f"{delivered} was overtaken")
            self.first[lane] = where.offset

    def _was_settled(self, step: str, delivered: Delivered) -> None:
        expect(step == "lose" or delivered not in self.acked, f"{delivered} was settled twice")
        if step == "ack":
            self.acked.add(delivered)
        elif step == "release":
            self._was_released(delivered)
        elif step == "reject" or (step == "nack" and self.attempts[delivered] == ATTEMPTS_MAX):
            self.dead.add(delivered)

    def _was_released(self, delivered: Delivered) -> None:
        """The same attempt comes again, or, when nobody knows whether it was released, the next one."""
        self.attempts[delivered] -= 1
        self.released.add(delivered)

    def cut(self, ends: dict[tuple[int, str], int]) -> None:
        """Forget messages behind the ends of lanes: never durable, and read all the same.

        Somebody may be handed a message whose put has failed, or not returned yet. What was acknowledged is
        known by its number, and has to be there.
        """

        def is_gone(where: MessagePlace) -> bool:
            return where.offset >= ends.get((where.partition, where.priority), 0)

        self.numbers = {where: n for where, n in self.numbers.items() if not is_gone(where)}
        self.in_hand = {r: held for r, held in self.in_hand.items() if not is_gone(held[1])}
        for group in (self.acked, self.maybe_acked, self.dead, self.released):
            group.difference_update([each for each in group if is_gone(each[1])])
        for gone in [each for each in self.attempts if is_gone(each[1])]:
            del self.attempts[gone]
        for lane, offset in self.first.items():
            self.first[lane] = min(offset, ends.get(lane[1:3], 0) - 1)

    # What the logs say.

    def check(self, engine: Connection, disk: Disk | None = None) -> None:
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
            found = self._read(queue, partition, priority_of(priority))
            self._check_order_of_puts(found, copies)
            copies.update(found)
        there = {*copies, *waiting}
        expect(self.put <= there, f"lost: {sorted(self.put - there)[:10]}")
        expect(there <= self.tried, f"never put: {sorted(there - self.tried)[:10]}")
        expect(there.isdisjoint(self.cancelled), "what was cancelled is there")
        self._check_dead_letters(engine, disk, copies, waiting)

    def _read(self, queue: Queue, partition: int, priority: Priority) -> list[int]:
        found: list[int] = []
        for record in read_all(queue, partition, priority):
            where = MessagePlace(partition, priority, len(found))
            expect(record.offset == where.offset, f"offset {record.offset} stands at {where}")
            found.append(number_in(record.value))
            self._is_at(where, found[-1])
            self.check_scheduled_id(found[-1], record.scheduled_id)
        return found

    def check_scheduled_id(self, number: int, found: str | None) -> None:
        """A delayed message has the id that its put returned, wherever it is; others have none."""
        if not is_delayed(number):
            expect(found is None, f"message {number} was not delayed, and says that it was {found}")
        elif (given := self._scheduled_ids.get(number)) is not None:
            expect(found == given, f"message {number} was delayed as {given}, and says {found}")

    def _check_order_of_puts(self, found: list[int], before: Counter[int]) -> None:
        """What one run put into a lane is there in that order, unless it was delayed or redriven."""
        first = [number for number in dict.fromkeys(found) if not before[number]]
        in_order = [n for n in first if not is_delayed(n) and not is_deduplicated(n)]
        for _, run in groupby(in_order, key=lambda number: number // NUMBERS_PER_RUN):
            numbers = list(run)
            expect(numbers == sorted(numbers), "messages of one lane are out of order")

    def _check_dead_letters(
        self, engine: Connection, disk: Disk | None, copies: Counter[int], waiting: list[int]
    ) -> None:
        """Each is in the log of dead letters once; it is still shown, or the message went back."""
        name = f"{TOPIC}.dlq"
        if name not in engine.topics():
            expect(not self.dead, "the dead letters are gone")
            return
        shown = written = gone = 0
        for partition in range(engine.topic(name).partitions):
            directory = engine_of(engine).path / "topics" / name / f"p{partition}" / "normal"
            log = LogFollower(directory, StorageSettings(), disk=disk)
            # What was redriven may be gone for good, together with its segment.
            gone, written = gone + log.start, written + log.end
            shown += len(engine.queue(name).read(partition, None, 100_000))
            for record in log.records():
                self._note_dead_letter(partition, record)
        times = Counter(self.dead_letters.values())
        expect(not times or max(times.values()) == 1, f"died twice: {times.most_common(3)}")
        expect(len(self.dead - times.keys()) <= gone, "dead letters are missing")
        expect(self.acked.isdisjoint(times), "something was acknowledged, and is a dead letter")
        self.dead_letters_gone = written - len(self.dead_letters)
        twice = sum(copies.values()) + len(waiting) - len({*copies, *waiting})
        expect(
            twice == written - shown,
            f"{twice} messages are there twice, and {written - shown} were redriven:"
            " each has to be in one of the two topics, and only there",
        )

    def _note_dead_letter(self, partition: int, record: Any) -> None:
        letter, attempts = _dead_letter(record)
        known = self.dead_letters.setdefault((partition, record.offset), letter)
        expect(known == letter, f"a dead letter has changed: {known}, {letter}")
        expect(attempts >= self.attempts[letter], f"{letter} forgot an attempt")
        expect(number_in(record.value) == self.numbers[letter[1]], f"{letter} has another value")
        self.check_scheduled_id(number_in(record.value), record.scheduled_id)

    # The end.

    def drain(self, engine: Connection) -> None:
        """When no lease holds any more, everything that is not finished comes out once more."""
        for group in GROUPS:
            queue = engine.queue(TOPIC, group=group)
            while taken := queue.get_many(1000):
                for *where, attempt, _, number in map(delivery_facts, taken):
                    self._was_delivered((group, MessagePlace(*where)), attempt, number)
                    self.acked.add((group, MessagePlace(*where)))
                queue.ack(taken)

    def check_finished(self, engine: Connection, disk: Disk | None = None) -> None:
        """The queue, opened when no lease holds any more, has everything once, and delivers all of it.

        Every message was acknowledged or is a dead letter, in every group, as far as a worker could know.
        """
        engine_of(engine).maintain()
        self.check(engine, disk)
        self.drain(engine)
        self.check(engine, disk)
        for group in GROUPS:
            names = {(group, where) for where in self.numbers}
            missing = names - self.acked - self.maybe_acked - self.dead - set(self.dead_letters.values())
            unseen = self.interrupted_pops[group] + self.dead_letters_gone
            expect(len(missing) <= unseen, f"never delivered: {sorted(missing)[:10]}")


def _dead_letter(record: Any) -> tuple[Delivered, int]:
    """The message that a dead letter was, and its attempts."""
    said = {
        key.removeprefix("quiver-dlq-"): value.decode(errors="replace")
        for key, value in record.headers.items()
    }
    where = MessagePlace(int(said["partition"]), said["priority"], int(said["offset"]))
    return (said["group"], where), int(said["attempts"])
