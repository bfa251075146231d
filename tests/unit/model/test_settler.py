"""A delivery that is settled by a call of its backend."""

from typing import Any

import pytest

from quivermq.errors import InvalidRequest, LeaseExpired
from quivermq.model.deliveries import Held, Lease
from quivermq.model.operations import Settle, Settled
from quivermq.model.settler import QueueSettler


def test_a_delivery_settles_itself_alone() -> None:
    asked: list[tuple[Settle, list[Held]]] = []

    def settle(act: Settle, held: Any) -> Settled:
        asked.append((act, list(held)))
        return Settled([])

    settler = QueueSettler(settle, "orders", 2, "billing")
    settler.ack_one(1, 5, 7)
    settler.nack(1, [(5, 7)], 1.5, "why", "what")
    settler.release(1, [(5, 7)])
    settler.reject(1, [(5, 7)], "why", "what")
    settler.extend(1, [(5, 7)], 30)
    held = [Held("orders", 2, 1, 7, [5])]
    assert asked == [
        (Settle("ack"), held),
        (Settle("nack", 1.5, "why", "what"), held),
        (Settle("release"), held),
        (Settle("reject", None, "why", "what"), held),
        (Settle("extend", seconds=30), held),
    ]
    lease = Lease(1, 0)
    lease.is_last = True
    assert settler.is_last_attempt(lease)


@pytest.mark.parametrize("outcome", [Settled(["orders:2:1:5:7"]), Settled([], InvalidRequest("no"))])
def test_a_delivery_that_cannot_be_settled_says_so(outcome: Settled) -> None:
    settler = QueueSettler(lambda *_: outcome, "orders", 2, "billing")
    with pytest.raises(LeaseExpired if outcome.late else InvalidRequest):
        settler.ack_one(1, 5, 7)
