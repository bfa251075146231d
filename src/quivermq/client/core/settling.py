"""From deliveries and receipts to what the broker is told about them, and what it says to that."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from quivermq.client.core.failure import error_of
from quivermq.delivery.delivery import Delivery
from quivermq.delivery.lease import Receipt
from quivermq.errors import InvalidRequest, LeaseExpired, QuiverError
from quivermq.topic.partition import LANES

# Topic, partition, lane and token: what the messages of one lease have in common.
Leased = tuple[str, int, int, int]


class Claims:
    """What is to be settled, by lease."""

    def __init__(self) -> None:
        self._offsets: dict[Leased, list[int]] = {}
        self._deliveries: list[Delivery] = []

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add_batch(self, deliveries: Sequence[Delivery]) -> None:
        """Messages of one lease."""
        first = deliveries[0]
        leased = (first._cursor.topic, first._cursor.partition, first._lane, first._lease.token)
        offsets = self._offsets.setdefault(leased, [])
        offsets += [delivery._record.offset for delivery in deliveries]
        self._deliveries += deliveries

    def add(self, leased: Leased, offset: int) -> None:
        self._offsets.setdefault(leased, []).append(offset)

    def as_json(self) -> list[dict[str, Any]]:
        """The leases, as the broker takes them."""
        return [
            {
                "topic": topic,
                "partition": partition,
                "priority": LANES[lane],
                "token": f"{token:x}",
                "runs": runs_of(offsets),
            }
            for (topic, partition, lane, token), offsets in self._offsets.items()
        ]

    def settled(self, results: Sequence[dict[str, Any]], *, is_final: bool) -> None:
        """Note what came of it. Raises LeaseExpired for those that were late, or what else went wrong."""
        late: list[str] = []
        failures: list[QuiverError] = []
        for (topic, partition, lane, token), result in zip(self._offsets, results, strict=True):
            refused = [
                str(Receipt(topic, partition, lane, offset, token))
                for offset in offsets_of(result.get("refused") or [])
            ]
            late += refused
            error = result.get("error")
            if error is not None and error.get("code") != LeaseExpired.code:
                failures.append(error_of(error))
        if is_final:
            self._note_settled(set(late))
        if failures:
            raise failures[0]
        if late:
            raise LeaseExpired(receipts=late)

    def _note_settled(self, late: set[str]) -> None:
        for delivery in self._deliveries:
            if not late or delivery.receipt not in late:
                delivery.is_settled = True


def runs_of(offsets: Iterable[int]) -> list[int]:
    """Half-open ranges, one behind the other: [start, end, start, end, …]."""
    given = list(offsets)
    start, end = given[0], given[-1] + 1
    # Mostly they are whole and in order, which is cheaper to see than to bring about.
    if end - start == len(given) and given == list(range(start, end)):
        return [start, end]
    ordered = sorted(set(given))
    runs: list[int] = []
    for offset in ordered:
        if runs and runs[-1] == offset:
            runs[-1] += 1
        else:
            runs += [offset, offset + 1]
    return runs


def offsets_of(runs: Sequence[int]) -> Iterator[int]:
    """The offsets that lie in runs."""
    for start, end in zip(runs[::2], runs[1::2], strict=True):
        yield from range(start, end)


def wrong(given: object) -> InvalidRequest:
    return InvalidRequest(
        f"{given!r:.80} cannot be settled: give a delivery, its receipt, or a list of them"
    )
