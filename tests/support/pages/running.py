"""Running a page, and comparing what it prints with what it says that it prints."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from support.broker import serving
from support.pages.blocks import Block
from support.pages.script import DOCUMENTED_PORT, Step, asks_a_broker, script_of, serves, steps_of
from support.pages.warm import WarmServers

_PATIENCE_S = 600
# Below those that the kernel hands out by itself, so that nobody gets ours meanwhile.
_PORTS = range(17070, 27070)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a page did."""

    steps: list[Step]
    printed: dict[str, str]
    """By the name of the step."""
    failure: str
    """Which block went wrong and how; empty when none did."""


def run_page(blocks: list[Block], *, directory: Path, scratch: Path, warm: WarmServers) -> Outcome:
    """Run the blocks of a page in a directory. Files of the run itself are in `scratch`."""
    directory.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    has_own = serves(blocks)
    port = _free_port() if has_own else 0
    wants_ours = asks_a_broker(blocks) and not has_own
    with serving(scratch / "broker") if wants_ours else nullcontext() as served:
        if served is not None:
            port = served.port
        steps = list(steps_of(blocks, scratch, port))
        (scratch / "page.sh").write_text(script_of(steps), encoding="utf-8")
        code = _run(scratch / "page.sh", directory, _environment(scratch, port, warm))
    printed = {
        step.name: (scratch / f"{step.name}.out").read_text(encoding="utf-8", errors="replace")
        for step in steps
        if (scratch / f"{step.name}.out").exists()
    }
    if port:
        printed = {name: text.replace(f":{port}", f":{DOCUMENTED_PORT}") for name, text in printed.items()}
    return Outcome(steps, printed, _failure(steps, printed, code, scratch))


def _run(script: Path, directory: Path, environment: dict[str, str]) -> int:
    with (script.parent / "script.out").open("wb") as said:
        # A session of its own, so that what hangs can be ended with everything that it started.
        process = subprocess.Popen(
            ["bash", script],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return -signal.SIGKILL


def _environment(scratch: Path, port: int, warm: WarmServers) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("QUIVER_")}
    return (
        inherited
        | warm.environment
        | {
            "HOME": str(scratch),
            "PATH": f"{warm.programs}:{inherited['PATH']}",
            "PORT": str(port),
            "REAL_QUIVER": str(Path(sys.executable).with_name("quiver")),
            "SCRATCH": str(scratch),
        }
    )


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def _failure(steps: list[Step], printed: dict[str, str], code: int, scratch: Path) -> str:
    if code != 0:
        name = (scratch / "step").read_text().strip()
        step = next(step for step in steps if step.name == name)
        said = (scratch / "script.out").read_text()
        return f"{step.place} ended with {code}:\n{step.command}\n{printed.get(name, '')}{said}"
    for step in steps:
        if step.expected is not None and not is_as_shown(printed[step.name], step.expected):
            return f"{step.place} shows\n{step.expected}\nand printed\n{printed[step.name]}"
    return ""


def is_as_shown(printed: str, shown: str) -> bool:
    """Whether a text is what a page shows, in which `…` stands for anything; JSON may be set otherwise."""
    pattern = " ?(?s:.*?) ?".join(re.escape(_condensed(part)) for part in shown.split("…"))
    return re.fullmatch(pattern, _condensed(_as_json_is_shown(printed))) is not None


def _condensed(text: str) -> str:
    """A text without what only sets it: how much space there is, and how long a line is drawn."""
    return re.sub("─+", "─", " ".join(text.split()))


def _as_json_is_shown(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        return text
