"""Putting load on a server, and seeing afterwards that it has what it acknowledged."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import Any

from benchmarks.broker.plan import Done, PacedDone, PacedPlan, Plan
from benchmarks.broker.processes import ROOT, cpu_s
from benchmarks.broker.request import Request
from benchmarks.broker.server import Server
from benchmarks.race import Entry, Run
from benchmarks.row import Figure
from benchmarks.shape import Shape

# A share of one core from which on it is the CPU that holds up.
_BUSY_PERCENT = 85

_topic_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Round:
    """How fast it went, and what the server and its load used of a core meanwhile."""

    rate: float
    """Messages a second."""
    messages: int
    cpu_s: float
    """Of all messages together: what the server used, and the load as well where it is the library."""
    server_percent: int
    load_percent: int

    @property
    def held_up_by(self) -> str:
        word = "CPU" if max(self.server_percent, self.load_percent) >= _BUSY_PERCENT else "wait"
        return f"{word}: server {self.server_percent} %, load {self.load_percent} %"


# Runs one round with everything that belongs to it.
Contender = Callable[[], Round]


def in_turns(rounds: int) -> Run:
    """Every contender once a round. The best round counts; for the CPU, all of them do."""

    def run(entered: Mapping[Entry, Contender]) -> dict[Entry, Figure]:
        seen: dict[Entry, list[Round]] = {entry: [] for entry in entered}
        for _ in range(rounds):
            for entry, contender in entered.items():
                # What the one before has left in the page cache is not for this one to write.
                os.sync()
                seen[entry].append(contender())
        return {entry: _figure(each) for entry, each in seen.items()}

    return run


def _figure(seen: Sequence[Round]) -> Figure:
    best = max(seen, key=attrgetter("rate"))
    messages = sum(each.messages for each in seen)
    return Figure(best.rate, sum(each.cpu_s for each in seen) / messages, best.held_up_by)


@contextmanager
def fresh_topic(server: Server) -> Iterator[str]:
    """A topic that nobody had before, and that goes away again."""
    topic = f"bench{next(_topic_numbers)}"
    server.create(topic)
    yield topic
    server.drop(topic)


def publishing(
    server: Server,
    request_of: Callable[[str], Request],
    *,
    connections: int,
    seconds: float,
) -> Round:
    """As fast as the server answers, into a new topic."""
    with fresh_topic(server) as topic:
        request = request_of(topic)
        # Its files are there before the time runs.
        run_generator(Plan(server.port, request, 1, requests=1))
        before = cpu_s(server.pid)
        done = run_generator(Plan(server.port, request, connections, seconds=seconds))
        used = cpu_s(server.pid) - before
        server.check(topic, (done.answers + 1) * request.messages, done.last)
    return round_of(done.answers * request.messages, done.seconds, server_s=used, load_s=done.cpu_s)


def fill(server: Server, topic: str, messages: int, batch: int, shape: Shape = "plain") -> None:
    """Put so many messages, in batches, and see that they are there."""
    if not messages or messages % batch:
        raise ValueError(f"{messages} messages are not batches of {batch}: change the scale")
    request = server.publish_many(topic, batch, shape)
    done = run_generator(Plan(server.port, request, 1, requests=messages // batch))
    server.check(topic, messages, done.last)


def timed_here(server: Server, work: Callable[[], int]) -> Round:
    """A round whose load is this process itself."""
    before, used, start = cpu_s(server.pid), time.process_time(), time.perf_counter()
    messages = work()
    seconds = time.perf_counter() - start
    server_s, load_s = cpu_s(server.pid) - before, time.process_time() - used
    return round_of(messages, seconds, server_s=server_s, load_s=load_s, is_load_ours=True)


def round_of(
    messages: int, seconds: float, *, server_s: float, load_s: float, is_load_ours: bool = False
) -> Round:
    return Round(
        rate=messages / seconds,
        messages=messages,
        cpu_s=server_s + load_s if is_load_ours else server_s,
        server_percent=round(100 * server_s / seconds),
        load_percent=round(100 * load_s / seconds),
    )


def run_generator(plan: Plan) -> Done:
    done: Done = _run("generator", plan)
    return done


def run_pacer(plan: PacedPlan) -> PacedDone:
    done: PacedDone = _run("pacer", plan)
    return done


def _run(module: str, plan: object) -> Any:
    command = [sys.executable, "-m", f"benchmarks.broker.{module}"]
    ended = subprocess.run(command, cwd=ROOT, input=pickle.dumps(plan), check=False, capture_output=True)
    if ended.returncode != 0:
        reason = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"the {module} failed: {reason}")
    return pickle.loads(ended.stdout)
