"""A page as one shell script, whose steps are its blocks."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.pages.blocks import Block

# Where examples expect a broker; in a test it is at another port.
DOCUMENTED_PORT = 7070
_ADDRESS = re.compile(rf"(127\.0\.0\.1|localhost):{DOCUMENTED_PORT}\b")

# `quiver serve` does not end, so here it returns when the broker answers, and the page goes on, as a
# newcomer would in another terminal. A second broker takes the place of the first.
_PRELUDE = """\
set -euo pipefail
served=
stop_serving() {
    if [ -n "$served" ]; then
        kill "$served"
        wait "$served" || true
        served=
    fi
}
trap stop_serving EXIT
quiver() {
    if [ "${1-}" != serve ]; then
        command quiver "$@"
        return
    fi
    stop_serving
    "$REAL_QUIVER" "$@" --port "$PORT" >"$SCRATCH/served" 2>"$SCRATCH/served.log" &
    served=$!
    until curl -sk -o "$SCRATCH/health" "http://127.0.0.1:$PORT/healthz" ||
          curl -sk -o "$SCRATCH/health" "https://127.0.0.1:$PORT/healthz"; do
        if ! kill -0 "$served"; then
            cat "$SCRATCH/served.log"
            served=
            return 1
        fi
        sleep 0.05
    done
    cat "$SCRATCH/served"
}
"""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is run: its name, the command for it, and the lines that it should print, if told."""

    name: str
    place: str
    command: str
    expected: str | None = None


def serves(blocks: list[Block]) -> bool:
    """Whether the page starts a broker of its own."""
    return any(block.runs and re.search(r"^(\$ )?quiver serve ", block.text, re.M) for block in blocks)


def asks_a_broker(blocks: list[Block]) -> bool:
    """Whether the page talks to a broker."""
    return any(block.runs and _ADDRESS.search(block.text) for block in blocks)


def steps_of(blocks: list[Block], scratch: Path, port: int) -> Iterator[Step]:
    """What the blocks do, in order; their texts go to files in `scratch`."""
    for number, (block, following) in enumerate(zip(blocks, [*blocks[1:], None], strict=True)):
        name = f"{number:02}"
        if block.mark == "file":
            (scratch / name).write_text(_moved(block.text, port), encoding="utf-8")
            target = shlex.quote(block.said)
            yield Step(name, block.place, f'mkdir -p "$(dirname {target})"; cp "$SCRATCH/{name}" {target}')
        elif not block.runs:
            continue
        elif block.language == "python":
            (scratch / f"{name}.py").write_text(_moved(block.text, port), encoding="utf-8")
            shown = following.text if following is not None and following.mark == "output" else None
            yield Step(name, block.place, f'python -W error "$SCRATCH/{name}.py"', shown)
        else:
            for part, (command, shown) in enumerate(_commands(block)):
                file = scratch / f"{name}-{part:02}.sh"
                file.write_text(_moved(command, port), encoding="utf-8")
                yield Step(f"{name}-{part:02}", block.place, f'source "$SCRATCH/{file.name}"', shown)


def _moved(text: str, port: int) -> str:
    return _ADDRESS.sub(rf"\1:{port}", text)


def _commands(block: Block) -> Iterator[tuple[str, str | None]]:
    """The commands of a block, each with what it prints; all at once when nothing is shown."""
    if block.language != "console" or not re.search(r"^\$ ", block.text, re.M):
        yield block.text, None
        return
    before, *sessions = re.split(r"^\$ ", block.text, flags=re.M)
    assert not before.strip(), f"{block.place} begins with what a command prints"
    for session in sessions:
        command = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", session)
        assert command is not None
        shown = session[command.end() :]
        yield command[0], shown if shown.strip() else None


def script_of(steps: list[Step]) -> str:
    """A script for bash, which notes where it is, and keeps what each step prints in a file."""
    return _PRELUDE + "".join(
        f'echo {step.name} >"$SCRATCH/step"\n{step.command} </dev/null >"$SCRATCH/{step.name}.out" 2>&1\n'
        for step in steps
    )
