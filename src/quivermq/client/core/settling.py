"""Leases that are settled, as calls of the broker have them."""

from collections.abc import Iterable, Sequence
from typing import Any

from quivermq.model.deliveries import Held
from quivermq.model.lanes import PRIORITIES
from quivermq.topic.offsets import runs

# More than this a broker does not settle in one call.
LEASES_MAX = 10_000
MESSAGES_MAX = 100_000


def parts_of(held: Sequence[Held]) -> list[list[Held]]:
    """The same leases, each part of them as much as one call takes."""
    if len(held) <= LEASES_MAX and sum(len(lease.offsets) for lease in held) <= MESSAGES_MAX:
        return [list(held)]
    parts: list[list[Held]] = [[]]
    room = MESSAGES_MAX
    for lease in held:
        start = 0
        while start < len(lease.offsets):
            if not room or len(parts[-1]) == LEASES_MAX:
                parts.append([])
                room = MESSAGES_MAX
            taken = lease.offsets[start : start + room]
            parts[-1].append(lease._replace(offsets=taken))
            start += len(taken)
            room -= len(taken)
    return parts


def leases_json(held: Iterable[Held]) -> list[dict[str, Any]]:
    """The leases, as the broker takes them."""
    return [
        {
            "topic": lease.topic,
            "partition": lease.partition,
            "priority": PRIORITIES[lease.lane],
            "token": f"{lease.token:x}",
            "runs": runs(set(lease.offsets)),
        }
        for lease in held
    ]
