"""kill -9 of a worker that uses every feature, hundreds of times over: a checker outside knows what it was
told, and what that promises. QUIVER_KILLS says how many times.
"""

import os
import select
import signal
import time
from collections import Counter, defaultdict
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from support.doomed_worker import (
    GROUPS,
    NUMBERS_PER_LIFE,
    PARTITIONS,
    TOPIC,
    Errand,
    Nursery,
    delivery_facts,
    is_deduplicated,
    is_delayed,
    number_in,
    nursery,
)
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

import quivermq

KILLS = int(os.environ.get("QUIVER_KILLS", "200"))
STEPS_MAX = 60
ATTEMPTS_MAX = 4
LANES = [(partition, priority) for partition in range(PARTITIONS) for priority in ("high", "normal", "low")]
SETTINGS: dict[str, Any] = {
    "partitions": PARTITIONS,
    "attempts_max": ATTEMPTS_MAX,
    "segment_messages": 100,
    "dedup_window_ms": 24 * 3600 * 1000,
}


class Place(NamedTuple):
    partition: int
    priority: str
    offset: int


class Promises:
    """What the workers were told, and every answer held against what they were told before."""

    def __init__(self) -> None:
        self.put: set[int] = set()
        self.tried: set[int] = set()
        self.in_hand: dict[str, tuple[str, Place]] = {}
        self.acked: set[tuple[str, Place]] = set()
        self.maybe_acked: set[tuple[str, Place]] = set()
        self.dead: set[tuple[str, Place]] = set()
        self.attempts: dict[tuple[str, Place], int] = defaultdict(int)
        self.first: dict[tuple[str, int, str], int] = {}
        self.numbers: dict[Place, int] = {}
        self.interrupted_pops: Counter[str] = Counter()
        self.deaths: dict[tuple[int, int], tuple[str, Place]] = {}
        """What the log of dead letters tells of, by partition and offset; most of it nobody was told."""
        self.deaths_gone = 0
        """How many it told of when nobody looked."""
        self._trying: list[Any] = []

    def note(self, word: str, rest: list[Any]) -> None:
        assert word != "failed", rest[0]
        if word == "try":
            self._trying = rest
            if rest[0] == "put":
                self.tried.update(rest[1])
        elif word == "did":
            self._trying = []
            self._did(*rest)

    def died(self) -> Errand:
        """A worker is gone: the step it was at may have happened or not. The next one is told of it."""
        step, self._trying = self._trying, []
        if step and step[0] in ("ack", "nack", "reject", "extend"):
            group, place = self.in_hand.pop(step[2])
            self.maybe_acked.add((group, place))
        if step and step[0] == "pop":
            self.interrupted_pops[step[1]] += 1
        retries = [n for n in sorted(self.tried - self.put) if is_deduplicated(n)]
        receipts = [(group, receipt) for receipt, (group, _) in self.in_hand.items()]
        return Errand(0, retries, receipts[-20:])

    def _did(self, step: str, *rest: Any) -> None:
        match step, rest:
            case "put", (numbers, places):
                for number, place in zip(numbers, places, strict=True):
                    self.was_put(number, Place(*place))
            case (("get" | "pop"), (group, taken)):
                for *place, attempt, receipt, number in taken:
                    name = group, Place(*place)
                    self.was_delivered(name, attempt, number)
                    if step == "pop":
                        self.acked.add(name)
                    else:
                        self.in_hand[receipt] = name
            case (("ack" | "nack" | "reject" | "lose"), (group, receipt)):
                self.was_settled(step, self.in_hand.pop(receipt))

    def was_put(self, number: int, place: Place) -> None:
        self.put.add(number)
        if not is_delayed(number):
            assert self.numbers.setdefault(place, number) == number, f"{place} was given away twice"

    def was_delivered(self, name: tuple[str, Place], attempt: int, number: int) -> None:
        group, place = name
        assert self.numbers.setdefault(place, number) == number, f"{place} has changed"
        assert name not in self.acked, f"{name} was acknowledged, and delivered again"
        assert name not in self.dead, f"{name} is a dead letter, and was delivered again"
        assert self.attempts[name] < attempt <= ATTEMPTS_MAX, (
            f"{name}: attempt {attempt} was counted before"
        )
        self.attempts[name] = attempt
        if attempt == 1:
            lane = group, place.partition, place.priority
            assert self.first.get(lane, -1) < place.offset, f"{name} was overtaken"
            self.first[lane] = place.offset

    def was_settled(self, step: str, name: tuple[str, Place]) -> None:
        assert step == "lose" or name not in self.acked, f"{name} was settled twice"
        if step == "ack":
            self.acked.add(name)
        elif step == "reject" or (step == "nack" and self.attempts[name] == ATTEMPTS_MAX):
            self.dead.add(name)

    def check(self, path: Path, engine: Any) -> None:
        """Everything in the logs was put, everything that was put is there, and as often as it should."""
        queue = engine.queue(TOPIC)
        # First, because what is due goes to its lane when somebody asks for what is not.
        waiting = [number_in(scheduled.value) for scheduled in queue.scheduled()]
        copies: Counter[int] = Counter()
        for partition, priority in LANES:
            records = queue.read(partition, 0, 100_000, priority=priority)
            assert [record.offset for record in records] == list(range(len(records)))
            found = [number_in(record.value) for record in records]
            for offset, number in enumerate(found):
                place = Place(partition, priority, offset)
                assert self.numbers.setdefault(place, number) == number, f"{place} has changed"
            self._check_order_of_puts(found, copies)
            copies.update(found)
        missing = self.put - set(copies) - set(waiting)
        assert not missing, f"lost: {missing}"
        assert set(copies) | set(waiting) <= self.tried
        self._check_dead_letters(path, engine, copies, waiting)

    def _check_order_of_puts(self, found: list[int], before: Counter[int]) -> None:
        """What one worker put into a lane is there in that order, unless it was delayed or redriven."""
        first = [number for number in dict.fromkeys(found) if not before[number]]
        in_order = [n for n in first if not is_delayed(n) and not is_deduplicated(n)]
        for _, life in groupby(in_order, key=lambda number: number // NUMBERS_PER_LIFE):
            numbers = list(life)
            assert numbers == sorted(numbers), "out of order"

    def _check_dead_letters(
        self, path: Path, engine: Any, copies: Counter[int], waiting: list[int]
    ) -> None:
        """Each death is in the log of dead letters once; it is still shown, or the message went back."""
        name = f"{TOPIC}.dlq"
        if name not in engine.topics():
            assert not self.dead
            return
        shown = buried = gone = 0
        for partition in range(engine.topic(name).partitions):
            log = quivermq.follow(path, f"topics/{name}/p{partition}/normal")
            # What was redriven may be gone for good, together with its segment.
            gone, buried = gone + log.start, buried + log.end
            shown += len(engine.queue(name).read(partition, None, 100_000))
            for record in log.records():
                self._note_death(partition, record)
        times = Counter(self.deaths.values())
        assert not times or max(times.values()) == 1, f"died twice: {times.most_common(3)}"
        assert len(self.dead - times.keys()) <= gone, "dead letters are missing"
        assert self.acked.isdisjoint(times), "acknowledged, and a dead letter"
        self.deaths_gone = buried - len(self.deaths)
        twice = sum(copies.values()) + len(waiting) - len(set(copies) | set(waiting))
        assert twice == buried - shown, "what was redriven is in one of the two topics, and only there"

    def _note_death(self, partition: int, record: Any) -> None:
        death = _death(record)
        assert self.deaths.setdefault((partition, record.offset), death) == death, (
            "a dead letter has changed"
        )
        assert int(record.headers["quiver-dlq-attempts"]) >= self.attempts[death]
        assert number_in(record.value) == self.numbers[death[1]]

    def drain(self, engine: Any) -> None:
        """A day later, everything that is not finished comes out once more."""
        for group in GROUPS:
            queue = engine.queue(TOPIC, group=group)
            while taken := queue.get_many(1000):
                for *place, attempt, _, number in map(delivery_facts, taken):
                    self.was_delivered((group, Place(*place)), attempt, number)
                    self.acked.add((group, Place(*place)))
                queue.ack(taken)

    def check_finished(self) -> None:
        """Every message was acknowledged or died, in every group, as far as a worker could be told."""
        for group in GROUPS:
            names = {(group, place) for place in self.numbers}
            missing = names - self.acked - self.maybe_acked - self.dead - set(self.deaths.values())
            unseen = self.interrupted_pops[group] + self.deaths_gone
            assert len(missing) <= unseen, f"never delivered: {missing}"


def _death(record: Any) -> tuple[str, Place]:
    told = {
        key.removeprefix("quiver-dlq-"): value.decode(errors="replace")
        for key, value in record.headers.items()
    }
    return told["group"], Place(int(told["partition"]), told["priority"], int(told["offset"]))


def live_and_die(workers: Nursery, errand: Errand, promises: Promises, rng: Random) -> None:
    """Kill a worker after some lines and a moment more, and note everything it told."""
    workers.send(errand)
    word, [pid] = workers.read()
    assert word == "born"
    for _ in range(rng.choice((0, rng.randint(1, STEPS_MAX)))):
        word, rest = workers.read()
        promises.note(word, rest)
    # Not right behind a line, but somewhere between two.
    select.select([], [], [], rng.uniform(0, 0.003))
    os.kill(pid, signal.SIGKILL)
    while (line := workers.read())[0] != "dead":
        promises.note(*line)
    assert line[1] == [signal.SIGKILL], "it died of something else"


def opened_to_look(path: Path, later_s: int = 0) -> quivermq.Engine:
    """The queue with time standing still: while it is counted, nothing falls due."""
    clock = ManualClock(time.time_ns() // 1000 + later_s * 1_000_000)
    return quivermq.open(path, clock=clock, scheduler=ManualScheduler(clock))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_what_a_worker_was_told_is_true_after_it_was_killed(
    tmp_path: Path, durability: str, request: pytest.FixtureRequest
) -> None:
    seed = f"{request.config.option.hypothesis_seed}/{durability}"
    print(f"seed: {seed}")
    rng, promises, errand = Random(seed), Promises(), Errand(0)
    with nursery(tmp_path, {**SETTINGS, "durability": durability}) as workers:
        for life in range(KILLS):
            errand.life = life
            live_and_die(workers, errand, promises, rng)
            errand = promises.died()
            if life % 10 == 9:
                with opened_to_look(tmp_path) as engine:
                    promises.check(tmp_path, engine)
                    assert engine.verify().is_sound
    with opened_to_look(tmp_path, later_s=24 * 3600) as engine:
        engine.maintain()
        promises.check(tmp_path, engine)
        promises.drain(engine)
        promises.check(tmp_path, engine)
        promises.check_finished()
        assert engine.verify().is_sound
    assert promises.acked
    assert promises.dead, "nothing ever died: give the workers longer lives"
