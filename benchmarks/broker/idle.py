"""How much memory a broker takes that has nothing to do, alone and with many who wait for a message."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

from benchmarks.broker.load import fresh_topic, run_generator
from benchmarks.broker.plan import Plan
from benchmarks.broker.processes import connection, resident_bytes
from benchmarks.broker.quiver import QUIVER
from benchmarks.broker.request import CONNECTION, VALUE, Request
from benchmarks.broker.server import Server
from benchmarks.broker.servers import PEERS, missing_peers, started
from benchmarks.row import Figure, Goal, Row, Skipped
from benchmarks.workload import Bench, short_number

_IDLE_GOAL = Goal("below", 80e6)
_WAITING_GOAL = Goal("below", 200e6)
# Files that are open anyway, here and in a server.
_OTHER_FILES = 1000
_PYTHON = "a Python that waits"
# Memory has settled when it stays the same, about, for so many looks.
_LOOKS, _LOOK_S, _SAME = 5, 0.1, 0.005
_RECEIVE_BYTES = 64 * 1024


def idle(bench: Bench) -> Iterable[Row | Skipped]:
    """Resident memory, interpreter and all, and what NATS and Redis take for the same.

    Nobody has a message meanwhile, so there is no twin with real ones.
    """
    polls = bench.scale.broker_polls
    waiting_name = f"{short_number(polls)} idle long polls: memory"
    if reason := _obstacle(polls):
        yield Skipped(waiting_name, reason)
        polls = 0
    alone, waiting = {}, {}
    with started(bench, "os", (QUIVER, *PEERS)) as servers:
        for name, server in servers.items():
            alone[name] = _settled_bytes(server.pid)
            if polls:
                waiting[name] = _with_waiters(server, polls)
    alone[_PYTHON] = _plain_python_bytes()
    yield _row("idle broker: memory", alone, _IDLE_GOAL)
    if waiting:
        yield _row(waiting_name, {**waiting, _PYTHON: alone[_PYTHON]}, _WAITING_GOAL)
    yield from missing_peers(bench)


def _row(name: str, seen: dict[str, float], goal: Goal) -> Row:
    figures = {each: Figure(size, held_up_by="resident, not growing") for each, size in seen.items()}
    return Row(name, "bytes", figures.pop(QUIVER.name), figures, goal)


def _obstacle(polls: int) -> str | None:
    """Raise the limit of open files, for this process and those it starts; say when that is not enough."""
    _, hard = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (hard, hard))
    if hard >= polls + _OTHER_FILES:
        return None
    return f"a process may open {hard} files, {polls + _OTHER_FILES} would be needed: ulimit -Hn"


def _with_waiters(server: Server, polls: int) -> float:
    with fresh_topic(server) as topic:
        server.add_group(topic)
        with _waiting(server, server.wait(topic), polls) as waiters:
            seen = _settled_bytes(server.pid)
            _check(server, topic, waiters)
    return seen


@contextmanager
def _waiting(server: Server, request: Request, polls: int) -> Iterator[list[socket.socket]]:
    """Connections of which each has asked for a message."""
    with ExitStack() as stack:
        waiters = []
        for number in range(polls):
            waiter = stack.enter_context(connection(server.port))
            waiter.sendall((request.greeting + request.data).replace(CONNECTION, b"%06d" % number))
            waiters.append(waiter)
        yield waiters


def _check(server: Server, topic: str, waiters: Sequence[socket.socket]) -> None:
    """Publish one message for each, and see that each gets one: so all of them were waiting."""
    done = run_generator(Plan(server.port, server.publish(topic), 8, requests=len(waiters)))
    server.check(topic, len(waiters), done.last)
    for waiter in waiters:
        said = b""
        while VALUE not in said:
            data = waiter.recv(_RECEIVE_BYTES)
            if not data:
                raise RuntimeError(f"{server.name} let somebody go who waited, and said {said!r}")
            said += data


def _settled_bytes(pid: int) -> float:
    seen = [resident_bytes(pid)]
    while len(seen) < _LOOKS or max(seen[-_LOOKS:]) > (1 + _SAME) * min(seen[-_LOOKS:]):
        time.sleep(_LOOK_S)
        seen.append(resident_bytes(pid))
    return float(seen[-1])


def _plain_python_bytes() -> float:
    """What the interpreter takes before anything of ours is loaded."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen = resident_bytes(process.pid)
        process.communicate("\n")
    return float(seen)
