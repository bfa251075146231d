"""Fill the topic `clicks` with visits: a few clicks close together, then hours of nothing."""

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import quivermq

DAY = datetime(2026, 1, 31, tzinfo=UTC)
PAGES = ("home", "search", "shoes", "hats", "cart")


def clicks(visitors: int) -> Iterator[dict[str, str]]:
    """The clicks of a day, the same each time, in the order of their time."""
    chance = random.Random(1)
    found = []
    for visitor in range(visitors):
        for visit in range(3):
            moment = DAY + timedelta(hours=7 * visit, minutes=chance.randrange(120))
            for _ in range(1 + chance.randrange(6)):
                found.append((moment, f"visitor-{visitor}", chance.choice(PAGES)))
                moment += timedelta(minutes=1 + chance.randrange(20))
    for moment, name, page in sorted(found):
        yield {"visitor": name, "page": page, "clicked_at": moment.isoformat()}


def fill(data: str, visitors: int) -> int:
    """Put the clicks into the queue of a directory, and return how many there are."""
    messages = [
        quivermq.Message(value=json.dumps(click).encode(), key=click["visitor"].encode())
        for click in clicks(visitors)
    ]
    with quivermq.open(data) as mq:
        mq.queue("clicks").put_many(messages)
    return len(messages)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="build/pipelines/data")
    parser.add_argument("--visitors", type=int, default=500)
    given = parser.parse_args()
    print(f"{fill(given.data, given.visitors)} clicks are in {given.data}")
