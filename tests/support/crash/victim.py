"""A process that appends with many threads until it is killed, and reports every promise it was given.

floor <offset>                  before retention may remove what lies before that offset
done <offset> <name>            after the message of that name was acknowledged
"""

import threading
from random import Random
from typing import Any

from quivermq.chaos.processes import report
from quivermq.log import DataDirectory, Log
from quivermq.settings import StorageSettings

THREADS = 6
SETTINGS = StorageSettings(segment_bytes=16_384, index_interval_bytes=1024, segments_max=4)


def value_of(name: str) -> bytes:
    """The value that belongs to a name: whoever knows one can tell whether the other is right."""
    rng = Random(name)
    return name.encode() + b":" + rng.randbytes(rng.choice((0, 10, 100, 1000)))


def append(log: Log, run: str, thread: int) -> None:
    number = 0
    while True:
        name = f"{run}/{thread}/{number}"
        offset = log.append(value_of(name), key=name.encode(), durability="fsync")
        report("done", offset, name)
        number += 1
        if number % 5 == 0:
            floor = max(0, offset - 50)
            report("floor", floor)
            log.retain(floor=floor)


def run_order(order: dict[str, Any]) -> None:
    """Append until somebody ends the process."""
    log = DataDirectory(order["path"], SETTINGS).log("log")
    threads = [
        threading.Thread(target=append, args=(log, order["run"], thread)) for thread in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
