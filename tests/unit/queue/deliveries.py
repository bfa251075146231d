"""Deliveries of no queue at all, for what only looks at them."""

from quivermq.model.deliveries import Delivery, Detached, Lease
from quivermq.model.messages import Record


def delivery(
    offset: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    group: str = "billing",
    lane: int = 1,
    lease: Lease | None = None,
) -> Delivery:
    record = Record(offset, 0, None, b"x", {}, None, None)
    return Delivery(record, lease or Lease(1, 0), Detached(topic, partition, group), lane)
