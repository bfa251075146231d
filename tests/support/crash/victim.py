"""A process that appends with many threads until it is killed, and tells every promise it was given.

Each line on standard output is written before, or after, what it tells of:

    ready                           the log is about to be opened
    floor <offset>                  before retention may remove what lies before that offset
    done <offset> <name>            after the message of that name was acknowledged

Run as a program, with the data directory and the number of this life.
"""

import os
import sys
import threading
from random import Random

from quivermq.log import DataDirectory, Log
from quivermq.settings import StorageSettings

THREADS = 6
SETTINGS = StorageSettings(segment_bytes=16_384, index_interval_bytes=1024, segments_max=4)


def value_of(name: str) -> bytes:
    """The value that belongs to a name: whoever knows one can tell whether the other is right."""
    rng = Random(name)
    return name.encode() + b":" + rng.randbytes(rng.choice((0, 10, 100, 1000)))


def tell(line: str) -> None:
    # One system call for the whole line, which a pipe takes as a whole.
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


def append(log: Log, life: str, thread: int) -> None:
    number = 0
    while True:
        name = f"{life}/{thread}/{number}"
        offset = log.append(value_of(name), key=name.encode(), durability="fsync")
        tell(f"done {offset} {name}")
        number += 1
        if number % 5 == 0:
            floor = max(0, offset - 50)
            tell(f"floor {floor}")
            log.retain(floor=floor)


def main(directory: str, life: str) -> None:
    tell("ready")
    log = DataDirectory(directory, SETTINGS).log("log")
    for thread in range(THREADS):
        threading.Thread(target=append, args=(log, life, thread)).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
