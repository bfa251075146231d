"""What a group's deliveries count."""

from typing import NamedTuple

from quivermq.metrics import Counter, Histogram


class DeliveryMeter(NamedTuple):
    """The counters of one group in one topic."""

    delivered: Counter
    acked: Counter
    nacked: Counter
    refused: Counter
    expired: Counter
    leases_expired: Counter
    buried: Counter
    age: Histogram
