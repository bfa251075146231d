"""A process that leaves messages in flight.

`python -m benchmarks.leaving_worker PATH MESSAGES IN_FLIGHT LEASED END SHAPE`: it puts messages, gets some,
so many at a time, and is `killed` or has `closed` the queue. Some of the receipts are in a file then.
"""

import argparse
import json
import os
import signal
from pathlib import Path

import quivermq
from benchmarks.messages import dressed
from benchmarks.shape import MESSAGE_BYTES, SHAPES

TOPIC = "bench"
RECEIPTS = "receipts.json"
_BATCH = 100
_LEASE_S = 7 * 24 * 3600
_SAMPLE = 100


def value_at(offset: int) -> bytes:
    """The message of that offset."""
    return offset.to_bytes(8, "big").rjust(MESSAGE_BYTES, b".")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("messages", type=int)
    parser.add_argument("in_flight", type=int)
    parser.add_argument("leased", type=int)
    parser.add_argument("end", choices=["killed", "closed"])
    parser.add_argument("shape", choices=SHAPES)
    options = parser.parse_args()
    with quivermq.open(options.path) as engine:
        engine.create_topic(TOPIC, durability="os")
        queue = engine.queue(TOPIC)
        for start in range(0, options.messages, _BATCH):
            queue.put_many(dressed(map(value_at, range(start, start + _BATCH)), options.shape))
        receipts = _lease(queue, options.in_flight, options.leased)
        step = max(1, len(receipts) // _SAMPLE)
        (options.path / RECEIPTS).write_text(json.dumps(receipts[::step]))
        if options.end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


def _lease(queue: quivermq.Queue, number: int, at_a_time: int) -> list[str]:
    receipts: list[str] = []
    while len(receipts) < number:
        count = min(at_a_time, number - len(receipts))
        found = queue.get_many(count, lease=_LEASE_S)
        receipts += [message.receipt for message in found]
    return receipts


if __name__ == "__main__":
    main()
