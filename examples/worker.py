"""A worker that survives kill -9: run it, kill it at any moment, run it again. No order is lost.

    python examples/worker.py [DIRECTORY [SECONDS]]

It handles one order after the other, each in SECONDS, and then waits for more, until it is killed or until
Ctrl-C. The first line it prints says how to kill it.
"""

import os
import sys
import time

import quivermq

directory = sys.argv[1] if len(sys.argv) > 1 else "data"
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5

with quivermq.open(directory) as mq:
    # A kill costs the order at hand an attempt, and it is not the order's fault.
    mq.create_topic("orders", exist_ok=True, attempts_max=None, dedup_window_ms=7 * 24 * 3600 * 1000)
    orders = mq.queue("orders", group="billing")
    # An order that was put already is not put again, however often this starts.
    orders.put_many(
        [
            quivermq.Message(
                b"order %d" % number, key=b"customer %d" % (number % 3), dedup_id=f"order-{number}"
            )
            for number in range(100)
        ]
    )
    print(
        f"{orders.stats().backlog} orders to handle; `kill -9 {os.getpid()}` ends this at once", flush=True
    )
    try:
        # Each order is acknowledged when the next one is asked for; one that we die with comes back when
        # nobody has renewed its lease.
        for order in orders.stream(lease=1):
            print(f"{order.value.decode()}, attempt {order.attempt}", flush=True)
            time.sleep(seconds)
    except KeyboardInterrupt:
        print(f"{orders.stats().backlog} orders left", flush=True)
