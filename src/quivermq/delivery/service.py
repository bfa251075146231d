"""Which lane is served next: by weight, so that nothing starves, or strictly the highest."""

from collections.abc import Sequence
from typing import Literal

Weights = tuple[int, int, int] | Literal["strict"]


class Service:
    """Smooth weighted round robin over the lanes that have something. Called by one thread at a time."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._credit = [0, 0, 0]

    def shares(self, count: int, ready: Sequence[int]) -> list[tuple[int, int]]:
        """How many of `count` messages each lane gives, highest first, when `ready` are there."""
        lanes = [lane for lane, there in enumerate(ready) if there > 0]
        if not lanes:
            return []
        if len(lanes) == 1:
            return [(lanes[0], min(count, ready[lanes[0]]))]
        if self.weights == "strict":
            return _strict(count, lanes, ready)
        return self._weighted(count, lanes, list(ready), self.weights)

    def _weighted(
        self, count: int, lanes: list[int], left: list[int], weights: tuple[int, int, int]
    ) -> list[tuple[int, int]]:
        credit, shares = self._credit, [0, 0, 0]
        while count and lanes:
            for lane in lanes:
                credit[lane] += weights[lane]
            chosen = max(lanes, key=credit.__getitem__)
            credit[chosen] -= sum(weights[lane] for lane in lanes)
            shares[chosen] += 1
            left[chosen] -= 1
            count -= 1
            if not left[chosen]:
                lanes.remove(chosen)
        return [(lane, share) for lane, share in enumerate(shares) if share]


def _strict(count: int, lanes: list[int], ready: Sequence[int]) -> list[tuple[int, int]]:
    shares = []
    for lane in lanes:
        share = min(count, ready[lane])
        if share:
            shares.append((lane, share))
        count -= share
    return shares
