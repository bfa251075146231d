"""`examples/worker.py` as its text says: it runs until it is killed, and goes on when started again."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import quivermq

WORKER = Path(__file__).parents[2] / "examples" / "worker.py"
ORDERS = {f"order {number}" for number in range(100)}


def run(data: Path, lines: int, seconds: str = "0") -> list[str]:
    """Run it, and kill it once it has printed so many lines, with the pid that it says itself."""
    with subprocess.Popen(
        [sys.executable, WORKER, data, seconds], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        printed = [worker.stdout.readline() for _ in range(lines)]
        # It does not end by itself, whatever it has handled.
        assert worker.poll() is None
        told = re.search(r"`kill -9 (\d+)`", printed[0])
        assert told is not None
        assert int(told[1]) == worker.pid
        worker.kill()
        printed += worker.stdout.readlines()
        assert worker.wait() == -signal.SIGKILL
    return printed


def handled(printed: list[str]) -> list[str]:
    return [line.partition(",")[0] for line in printed[1:]]


def test_it_is_killed_again_and_again_and_no_order_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    seen: list[str] = []
    # More often than an order has attempts elsewhere, at the very beginning and in the middle.
    for lines in (1, 2, 2, 2, 2, 30):
        seen += handled(run(data, lines))
    missing = len(ORDERS - set(seen))
    with quivermq.open(data) as mq:
        # Put once, however often it started.
        assert len(mq.queue("orders").read(limit=200)) == 100
        assert mq.queue("orders").dead_letters() == []
        assert mq.queue("orders", "billing").stats().backlog >= missing


def test_ctrl_c_ends_it_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with subprocess.Popen([sys.executable, WORKER, data, "0"], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(101)]
        # All are handled, and it waits for more.
        assert {line.partition(",")[0] for line in lines[1:]} == ORDERS
        worker.send_signal(signal.SIGINT)
        left = worker.stdout.readlines()[-1]
        # The last one is acknowledged when the next one is asked for, so the signal may come before.
        assert left in ("0 orders left\n", "1 orders left\n")
        assert worker.wait() == 0
