"""What the requests to an object store cost: an estimate, by the list prices of Amazon's S3.

docs/internals/cluster-at-scale.md calculates with the same prices. Storage, and bytes that leave the
region, are not in it.
"""

from collections.abc import Mapping

from quivermq.shared.counting import RequestKind, Requests

# US dollars for one request. Lists cost as puts do; deletes cost nothing.
DOLLARS: Mapping[RequestKind, float] = {
    "put": 0.005 / 1000,
    "list": 0.005 / 1000,
    "get": 0.0004 / 1000,
    "range": 0.0004 / 1000,
    "delete": 0.0,
}
MONTH_S = 30 * 24 * 3600
# Of less time nothing can be said: opening alone has some requests.
_SECONDS_MIN = 60.0


def dollars_a_month(requests: Mapping[RequestKind, Requests], seconds: float) -> float | None:
    """What a month costs that is like these seconds; None when they are too few to tell."""
    if seconds < _SECONDS_MIN:
        return None
    return sum(DOLLARS[kind] * each.count for kind, each in requests.items()) * MONTH_S / seconds
