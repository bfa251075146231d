"""A process that writes a log and is killed.

`python -m benchmarks.killed_writer PATH MESSAGES BATCH SHAPE`

At durability `os` a log is synced once a second, so the worst moment to die is just before that: what
was written in a whole second is then behind the mark from which recovery starts. This writer measures
its own speed, syncs when a second's worth is left, writes that, and dies. With `--synced` it syncs
before it dies, as every writer at durability `fsync` has.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

from benchmarks.messages import batches_of, columns_of
from benchmarks.shape import SHAPES, Shape
from benchmarks.workload import LOG
from quivermq import DataDirectory, Log, StorageSettings

_SETTINGS = StorageSettings(durability="os")


class _NoScheduler:
    """Syncs nothing in the background: here the moment of each sync is chosen."""

    def schedule(self, after_s: float, call: Callable[[], None]) -> None:
        pass

    def close(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("messages", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--synced", action="store_true")
    options = parser.parse_args()
    log = DataDirectory(options.path, _SETTINGS, scheduler=_NoScheduler()).log(LOG)
    _write(log, options.messages // options.batch, options.batch, options.shape)
    if options.synced:
        log.sync()
    os.kill(os.getpid(), signal.SIGKILL)


def _write(log: Log, batches: int, size: int, shape: Shape) -> None:
    sample = max(1, batches // 10)
    start = time.perf_counter()
    _append(log, sample, size, shape)
    in_a_second = int(sample * _SETTINGS.fsync_interval_ms / 1000 / (time.perf_counter() - start))
    unsynced = min(batches - sample, in_a_second)
    _append(log, batches - sample - unsynced, size, shape)
    log.sync()
    _append(log, unsynced, size, shape)


def _append(log: Log, batches: int, size: int, shape: Shape) -> None:
    columns = [columns_of(batch) for batch in batches_of(size, 10 * size, shape)]
    for values, others in islice(cycle(columns), batches):
        log.append_many(values, **others)


if __name__ == "__main__":
    main()
