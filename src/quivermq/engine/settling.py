"""From deliveries and receipts to what their cursors understand."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from quivermq.delivery.settlement import Settlement
from quivermq.errors import Closing, InvalidRequest, LeaseExpired, QuiverError
from quivermq.model.deliveries import Claim, Delivery, Held, Receipt, parse_receipt

_HELD_MAX = 1_000_000

# Settles what can be settled, and returns the claims that do not hold.
Settling = Callable[[Settlement, int, Sequence[Claim]], list[Claim]]


class Claims:
    """What is to be settled, by cursor and lane."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[Settlement, int], list[Claim]] = {}
        self._deliveries: list[Delivery] = []
        self._unknown: list[str] = []

    def add_delivery(self, delivery: Delivery) -> None:
        claim = (delivery._record.offset, delivery._lease.token)
        self._by_place.setdefault((_settlement(delivery), delivery._lane), []).append(claim)
        self._deliveries.append(delivery)

    def add_all(self, deliveries: Sequence[Delivery]) -> None:
        """Many from one lane, as `get_many` returns them."""
        first = deliveries[0]
        claims = [(d._record.offset, d._lease.token) for d in deliveries]
        self._by_place[_settlement(first), first._lane] = claims
        self._deliveries += deliveries

    def add_receipt(self, cursor: Settlement | None, receipt: Receipt) -> None:
        if cursor is None:
            self._unknown.append(str(receipt))
        else:
            claim = (receipt.offset, receipt.token)
            self._by_place.setdefault((cursor, receipt.lane), []).append(claim)

    def add_held(self, cursor: Settlement | None, held: Held) -> None:
        """Many of one lease, as the broker's clients name them."""
        offsets = offsets_held(held)
        if cursor is None:
            self._unknown += [str(Receipt(*held[:3], offset, held.token)) for offset in offsets]
        else:
            claims = self._by_place.setdefault((cursor, held.lane), [])
            claims += [(offset, held.token) for offset in offsets]

    def settle(self, settle: Settling, *, is_final: bool) -> None:
        """Settle all that hold; raise LeaseExpired for the others. Only what is final ends a delivery."""
        refused, failures = list(self._unknown), []
        for (cursor, lane), claims in self._by_place.items():
            try:
                late_claims: Sequence[Claim] = settle(cursor, lane, claims)
            except Closing:
                # The topic or the group was deleted.
                late_claims = claims
            except QuiverError as error:
                failures.append(error)
                late_claims = claims
            refused += [str(Receipt(cursor.topic, cursor.partition, lane, *claim)) for claim in late_claims]
        late = set(refused)
        for delivery in self._deliveries if is_final else ():
            if not late or delivery.receipt not in late:
                delivery.is_settled = True
        if failures:
            raise failures[0]
        if refused:
            raise LeaseExpired(receipts=refused)


def claims_of(
    held: object,
    cursor_of: Callable[[str, int], Settlement | None],
    check_cursor: Callable[[Settlement], None],
) -> Claims:
    """The claims of deliveries and receipts, one or many. Raises InvalidRequest for anything else."""
    claims = Claims()
    if isinstance(held, Delivery | str | Held):
        held = [held]
    if not isinstance(held, Iterable):
        raise _wrong(held)
    items: list[Any] = [_attached(item) for item in held]
    if items and set(map(type, items)) == {Delivery} and _are_together(items):
        check_cursor(_settlement(items[0]))
        claims.add_all(items)
        return claims
    for item in items:
        if isinstance(item, Delivery):
            check_cursor(_settlement(item))
            claims.add_delivery(item)
        elif isinstance(item, str):
            receipt = parse_receipt(item)
            claims.add_receipt(cursor_of(receipt.topic, receipt.partition), receipt)
        elif isinstance(item, Held):
            claims.add_held(cursor_of(item.topic, item.partition), item)
        else:
            raise _wrong(item)
    return claims


def _attached(item: object) -> object:
    """A delivery of another process is known by its receipt."""
    if isinstance(item, Delivery) and not isinstance(item._settler, Settlement):
        return item.receipt
    return item


def _settlement(delivery: Delivery) -> Settlement:
    settler = delivery._settler
    assert isinstance(settler, Settlement), "others are known by their receipts"
    return settler


def offsets_held(held: Held) -> list[int]:
    """The offsets of ranges, of which there may not be more than anybody can have in hand."""
    runs = held.runs
    starts, ends = runs[::2], runs[1::2]
    are_runs = len(starts) == len(ends) and all(0 <= s < e for s, e in zip(starts, ends, strict=True))
    if not are_runs or sum(ends) - sum(starts) > _HELD_MAX:
        raise InvalidRequest(
            f"{list(runs)!r:.80} are no ranges: pairs of start and end, {_HELD_MAX} offsets at most"
        )
    return [offset for start, end in zip(starts, ends, strict=True) for offset in range(start, end)]


def _are_together(deliveries: Sequence[Delivery]) -> bool:
    cursor, lane = deliveries[0]._settler, deliveries[0]._lane
    return all(d._settler is cursor and d._lane == lane for d in deliveries)


def _wrong(given: object) -> InvalidRequest:
    return InvalidRequest(
        f"{given!r:.80} cannot be settled: give a delivery, its receipt, or a list of them"
    )
