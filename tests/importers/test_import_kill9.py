"""A real process that imports and is killed with -9, again and again, until one comes through."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.broker import serving
from support.ledgerq_files import Entry, Queue
from support.tinymq_files import ack, put, write_log

import quivermq

MESSAGES = 3000
# The command itself, with chunks so small that there are many moments to die at. It says when one is in.
PROGRAM = """
import sys
from quivermq.importers import stream
from quivermq.importers.ledger import Ledger
stream._CHUNK_MESSAGES = 100
note = Ledger.note_done
def told(*arguments):
    print("before", flush=True)
    note(*arguments)
    print("after", flush=True)
Ledger.note_done = told
from quivermq.cli import main
sys.exit(main())
"""


def ledgerq(path: Path) -> Path:
    queue = Queue(path / "jobs")
    levels = (None, 1, 2)
    for base in range(0, MESSAGES, 500):
        numbers = range(base, base + 500)
        queue.write(
            [Entry(id=n + 1, payload=b"%d" % n, priority=levels[n % 3]) for n in numbers], base=base + 1
        )
    queue.metadata(read_id=1)
    queue.retries(*({"msg_id": n + 1, "retry_count": 2} for n in range(0, MESSAGES, 7)))
    return path / "jobs"


def tinymq(path: Path) -> Path:
    lines = [put(n, b"%d" % n, topic="jobs", retry_count=0 if n % 7 else 2) for n in range(MESSAGES)]
    write_log(path / "jobs.log", *lines, put(MESSAGES + 1), ack(MESSAGES + 1))
    return path


def run_until_killed(arguments: list[str | Path], chunks: int) -> bool:
    """Run the command, and kill it once it is at so many chunks. True when it came to its end before."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:
            assert "error" not in line, line
            seen += line.strip() in ("before", "after")
            if seen >= chunks:
                # A moment later each time, so that it does not always die at the same place.
                deadline = time.monotonic() + chunks % 5 / 2000
                while time.monotonic() < deadline:
                    pass
                process.send_signal(signal.SIGKILL)
                process.wait()
                return False
        return process.wait() == 0


@pytest.mark.parametrize("source", [ledgerq, tinymq], ids=lambda made: made.__name__)
@pytest.mark.parametrize("way", ["data", "server"])
def test_every_message_is_there_once(
    source: Callable[[Path], Path], way: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = source(tmp_path_factory.mktemp("source"))
    data = tmp_path / "data"

    def run(place: list[str | Path]) -> None:
        arguments = ["import", "--from", source.__name__, path, "--topic", "jobs", *place]
        deaths = [chunks for chunks in (1, 2, 3, 8, 15, 26) if not run_until_killed(arguments, chunks)]
        assert len(deaths) >= 5
        assert run_until_killed(arguments, 1_000_000)
        assert run_until_killed(arguments, 1_000_000)

    if way == "data":
        run(["--data", data])
    else:
        with serving(data) as broker:
            run(["--server", broker.url])
    with quivermq.open(data) as mq:
        jobs = mq.queue("jobs")
        taken = {int(m.value): m.attempt for m in jobs.get_many(2 * MESSAGES)}
        assert taken == {n: 1 if n % 7 else 3 for n in range(MESSAGES)}
        assert mq.stats().topics["jobs"].messages == MESSAGES
        for priority in ("high", "normal", "low"):
            lane = [int(m.value) for m in jobs.read(limit=MESSAGES, priority=priority)]
            assert lane == sorted(lane)
