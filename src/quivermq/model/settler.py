"""Who settles a delivery where that takes a call of its backend: the queue it came through."""

from collections.abc import Callable, Sequence

from quivermq.model.checks import Period
from quivermq.model.deliveries import Claim, Held, Lease
from quivermq.model.operations import Settle, Settled

SettleCall = Callable[[Settle, Sequence[Held]], Settled]


class QueueSettler:
    """The settler of one partition of a topic, for one group: it serves any backend by its `settle`."""

    __slots__ = ("_settle_call", "group", "partition", "topic")

    def __init__(self, settle: SettleCall, topic: str, partition: int, group: str) -> None:
        self._settle_call = settle
        self.topic = topic
        self.partition = partition
        self.group = group

    def is_last_attempt(self, lease: Lease) -> bool:
        """Whether a delivery that fails becomes a dead letter: whoever leased it said so."""
        return bool(lease.is_last)

    def ack_one(self, lane: int, offset: int, token: int) -> None:
        self._settle(Settle("ack"), lane, [(offset, token)])

    def nack(
        self,
        lane: int,
        claims: Sequence[Claim],
        delay: Period | None,
        reason: str | None,
        error: str | None,
    ) -> None:
        self._settle(Settle.nacked(delay, reason, error), lane, claims)

    def release(self, lane: int, claims: Sequence[Claim]) -> None:
        self._settle(Settle("release"), lane, claims)

    def reject(self, lane: int, claims: Sequence[Claim], reason: str | None, error: str | None) -> None:
        self._settle(Settle.rejected(reason, error), lane, claims)

    def extend(self, lane: int, claims: Sequence[Claim], seconds: Period) -> None:
        self._settle(Settle.extended(seconds), lane, claims)

    def _settle(self, settle: Settle, lane: int, claims: Sequence[Claim]) -> None:
        held = [Held(self.topic, self.partition, lane, token, [offset]) for offset, token in claims]
        self._settle_call(settle, held).check()
