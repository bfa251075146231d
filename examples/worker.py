"""A worker that survives kill -9: run it, kill it at any moment, run it again. Nothing is lost."""

import os
import signal
import sys

import quivermq

with quivermq.open(sys.argv[1] if len(sys.argv) > 1 else "data") as mq:
    orders = mq.queue("orders", group="billing")
    # An order that was put already is not put again, however often this starts.
    for number in range(10):
        orders.put(b"order %d" % number, key=b"customer %d" % (number % 3), dedup_id=f"order-{number}")
    # Each order is acknowledged when the next one is asked for; one that we die with comes back.
    for order in orders.stream(timeout=0.1, lease=0.5):
        print(f"{order.value.decode()}, attempt {order.attempt}", flush=True)
        if os.environ.get("CRASH_AT") == order.value.decode() and order.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"{orders.stats().backlog} left")
