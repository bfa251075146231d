"""From deliveries and receipts to what the broker is told about them, and what it says to that."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from quivermq.client.core.failure import error_of
from quivermq.errors import InvalidRequest, LeaseExpired, QuiverError
from quivermq.model.deliveries import Delivery, Receipt
from quivermq.model.lanes import LANES

# Topic, partition, lane and token: what the messages of one lease have in common.
Leased = tuple[str, int, int, int]
# More than this a broker does not settle in one call.
LEASES_MAX = 10_000
MESSAGES_MAX = 100_000


class Claims:
    """What is to be settled, by lease."""

    def __init__(self) -> None:
        self._offsets: dict[Leased, list[int]] = {}
        self._deliveries: list[Delivery] = []

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add_batch(self, deliveries: Sequence[Delivery]) -> None:
        """Messages of one lease."""
        offsets = self._offsets.setdefault(_leased(deliveries[0]), [])
        offsets += [delivery._record.offset for delivery in deliveries]
        self._deliveries += deliveries

    def add(self, leased: Leased, offset: int) -> None:
        self._offsets.setdefault(leased, []).append(offset)

    def parts(self) -> list["Claims"]:
        """The same, each of them as much as one call takes."""
        if len(self._offsets) <= LEASES_MAX and sum(map(len, self._offsets.values())) <= MESSAGES_MAX:
            return [self]
        deliveries: dict[tuple[Leased, int], list[Delivery]] = {}
        for delivery in self._deliveries:
            deliveries.setdefault((_leased(delivery), delivery._record.offset), []).append(delivery)
        parts, count = [Claims()], 0
        for leased, offsets in self._offsets.items():
            for offset in offsets:
                last = parts[-1]._offsets
                if count == MESSAGES_MAX or (len(last) == LEASES_MAX and leased not in last):
                    parts.append(Claims())
                    count = 0
                parts[-1].add(leased, offset)
                parts[-1]._deliveries += deliveries.pop((leased, offset), [])
                count += 1
        return parts

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


def _leased(delivery: Delivery) -> Leased:
    return delivery._settler.topic, delivery._settler.partition, delivery._lane, delivery._lease.token


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
