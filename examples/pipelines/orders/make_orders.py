"""Fill the topic `orders` with a day of orders, some of which arrive late and a few of which are broken."""

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import quivermq

DAY = datetime(2026, 1, 31, tzinfo=UTC)
COUNTRIES = ("at", "ch", "de", "fr", "it")
BATCH_MESSAGES = 1000


def orders(count: int) -> Iterator[quivermq.Message]:
    """So many orders, the same each time."""
    chance = random.Random(1)
    for number in range(count):
        late = timedelta(minutes=chance.randrange(5))
        order = {
            "id": number,
            "customer": f"customer-{chance.randrange(500)}",
            "country": chance.choice(COUNTRIES),
            "amount": round(chance.uniform(5, 200), 2),
            "ordered_at": (DAY + number * timedelta(days=1) / count - late).isoformat(),
        }
        text = json.dumps(order)
        # Every thousandth is cut off, as by a producer that died.
        value = text[:20] if number % 1000 == 999 else text
        yield quivermq.Message(value=value.encode(), key=order["customer"].encode())


def fill(data: str, count: int) -> None:
    """Put the orders into the queue of a directory."""
    with quivermq.open(data) as mq:
        if "orders" not in mq.topics():
            mq.create_topic("orders", partitions=2)
        queue, batch = mq.queue("orders"), []
        for order in orders(count):
            batch.append(order)
            if len(batch) == BATCH_MESSAGES:
                queue.put_many(batch)
                batch = []
        queue.put_many(batch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="build/pipelines/data")
    parser.add_argument("--count", type=int, default=20_000)
    given = parser.parse_args()
    fill(given.data, given.count)
    print(f"{given.count} orders are in {given.data}")
