"""From deliveries and receipts, as users have them, to the leases that a backend settles."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from quivermq.errors import InvalidRequest
from quivermq.model.deliveries import Held, LeasedMessage, parse_receipt
from quivermq.model.names import Scope
from quivermq.model.operations import Settled

# What settles messages takes a delivery, its receipt, or many of either.
AnyHeld = LeasedMessage | str | Iterable[LeasedMessage | str]

# Topic, partition, lane and token: what the messages of one lease have in common.
_LeaseKey = tuple[str, int, int, int]

_lease_of = attrgetter("_lease")


class Claims:
    """What somebody wants to settle, by lease. Raises InvalidRequest for what is not this queue's."""

    def __init__(self, held: AnyHeld, scope: Scope, group: str) -> None:
        self._scope = scope
        self._group = group
        self._offsets: dict[_LeaseKey, list[int]] = {}
        self._deliveries: list[LeasedMessage] = []
        self._add_all(held)

    def _add_all(self, held: object) -> None:
        if isinstance(held, LeasedMessage | str):
            held = [held]
        if not isinstance(held, Iterable):
            raise _not_held(held)
        items = held if isinstance(held, list) else list(held)
        if len(set(map(type, items))) == 1 and isinstance(items[0], LeasedMessage):
            # What one call brought has few leases, each of messages of one lane that lie together.
            for _, together in groupby(items, _lease_of):
                self._add_lease(list(together))
            return
        for item in items:
            if isinstance(item, LeasedMessage):
                self._add_lease([item])
            elif isinstance(item, str):
                receipt = parse_receipt(item)
                self._scope.check_includes(receipt.topic)
                lease = receipt.topic, receipt.partition, receipt.lane, receipt.token
                self._offsets.setdefault(lease, []).append(receipt.offset)
            else:
                raise _not_held(item)

    def _add_lease(self, messages: Sequence[LeasedMessage]) -> None:
        first = messages[0]
        settler = first._settler
        self._scope.check_includes(settler.topic)
        if settler.group != self._group:
            raise InvalidRequest(
                f"the message was delivered to group {settler.group}, and this is {self._group}"
            )
        lease = settler.topic, settler.partition, first._lane, first._lease.token
        offsets = [message._record.offset for message in messages]
        if lease in self._offsets:
            self._offsets[lease] += offsets
        else:
            self._offsets[lease] = offsets
        self._deliveries += messages

    def leases(self) -> list[Held]:
        return [Held(*lease, offsets) for lease, offsets in self._offsets.items()]

    def done(self, settled: Settled, *, is_final: bool) -> None:
        """Note what was settled; raise LeaseExpired for the rest, or what else went wrong."""
        late = set(settled.late)
        for delivery in self._deliveries if is_final else ():
            if not late or delivery.receipt not in late:
                delivery.is_settled = True
        settled.check()


def _not_held(given: object) -> InvalidRequest:
    return InvalidRequest(
        f"{given!r:.80} cannot be settled: give a delivery, its receipt, or a list of them"
    )
