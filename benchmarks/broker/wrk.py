"""The same load from `wrk`, which is written in C and leaves more of the machine to the broker."""

import re
import resource
import subprocess

from benchmarks.broker.load import Round, fresh_topic, round_of
from benchmarks.broker.processes import cpu_s, program
from benchmarks.broker.quiver import HEADER_LINES, QUERY, Bare, Quiver
from benchmarks.broker.request import VALUE
from benchmarks.shape import Shape
from benchmarks.workload import Bench, fresh_directory

_COUNT = re.compile(r"(\d+) requests in")
_RATE = re.compile(r"Requests/sec:\s*([\d.]+)")


def obstacle() -> str | None:
    """Why there is nothing to measure with."""
    return None if program("wrk") else "there is no wrk here: `apt install wrk` has it"


def publishing(bench: Bench, server: Quiver, shape: Shape) -> Round:
    """One thread, as many connections as our generator has; it knows whole seconds only."""
    connections, seconds = bench.scale.broker_connections, max(1, round(bench.scale.broker_s))
    with fresh_directory(bench.place) as place, fresh_topic(server) as topic:
        script = place / "publish.lua"
        script.write_text(_script(shape))
        url = f"{server.url}/v1/topics/{topic}/messages{QUERY if shape == 'real' else ''}"
        options = ["-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s", "-s", str(script)]
        before, used = cpu_s(server.pid), _children_s()
        command = [program("wrk") or "wrk", *options, url]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        server_s, load_s = cpu_s(server.pid) - before, _children_s() - used
        answered = _found(_COUNT, said)
        _check(server, topic, said, answered, connections)
    # It was starting and leaving for a part of the time, and says itself how fast it was in between.
    elapsed_s = answered / _found(_RATE, said)
    return round_of(round(answered), elapsed_s, server_s=server_s, load_s=load_s)


def _script(shape: Shape) -> str:
    headers = {"Content-Type": "application/octet-stream", **(HEADER_LINES if shape == "real" else {})}
    lines = ['wrk.method = "POST"', f'wrk.body = "{VALUE.decode()}"']
    return "\n".join([*lines, *(f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items())])


def _check(server: Quiver, topic: str, said: str, answered: float, connections: int) -> None:
    stored = answered if isinstance(server, Bare) else float(server.stored(topic))
    # It leaves without waiting for the answers that are due, and those messages are stored, too.
    if "Non-2xx" in said or "Socket errors" in said or not 0 <= stored - answered <= connections:
        raise RuntimeError(f"wrk had {answered:.0f} answers and the broker has {stored} messages: {said}")


def _found(pattern: re.Pattern[str], said: str) -> float:
    found = pattern.search(said)
    if found is None:
        raise RuntimeError(f"wrk did not say how many requests it made: {said}")
    return float(found[1])


def _children_s() -> float:
    """What the processes that this one has waited for have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
