"""What a group's deliveries count."""

from typing import NamedTuple

from quivermq.metrics import Counter, Histogram


class DeliveryMeter(NamedTuple):
    """The counters of one group in one topic."""

    delivered: Counter
    acked: Counter
    nacked: Counter
    released: Counter
    refused: Counter
    expired: Counter
    leases_expired: Counter
    buried: Counter
    dropped: Counter
    age: Histogram
