"""Put messages, handle them, let one fail until it is a dead letter, and send it back."""

import tempfile

import quivermq

with tempfile.TemporaryDirectory() as data, quivermq.open(data) as mq:
    mq.create_topic("orders", partitions=2, attempts_max=2, backoff_ms=0)
    orders = mq.queue("orders", group="billing")

    orders.put_many([b"tea", b"coffee"])
    orders.put(b"a pony", key=b"customer-1", priority="high")
    later = orders.put(b"milk", delay=3600)

    # A message is acked at the end of the block, and nacked when the block raises.
    while True:
        try:
            with orders.process(timeout=0.1) as order:
                if order is None:
                    break
                if order.value == b"a pony":
                    raise ValueError("out of ponies")
                print(f"{order.value.decode()} from partition {order.partition}")
        except ValueError as error:
            print(f"attempt {order.attempt} failed: {error}")

    for letter in orders.dead_letters():
        print(f"given up: {letter.value.decode()} after {letter.attempts} attempts, {letter.error}")
    print(f"sent back: {orders.redrive()}")

    print(f"waiting: {[waiting.value for waiting in orders.scheduled()]}")
    orders.cancel(later.scheduled_id)
    print(orders.stats())
