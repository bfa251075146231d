"""A consumer that comes back past its lease is refused, also when nobody has its message yet.

When somebody has, the token of the receipt is another one. Here only the time tells.
"""

from pathlib import Path

import pytest
from support.broker import serving_engine
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

from quivermq.chaos.http_clients import ask_once
from quivermq.errors import LeaseExpired
from quivermq.opening import open_directory
from quivermq.queue.connection import Connection

DATA = Path("/data")
LEASE_S = 30.0


def opened(clock: ManualClock) -> Connection:
    """A queue in which nothing happens by itself: nobody takes the lease away when it is over."""
    return open_directory(DATA, disk=FaultyDisk(), clock=clock, scheduler=ManualScheduler(clock))


@pytest.mark.fault("lease", "engine")
@pytest.mark.parametrize("how", ["ack", "nack", "reject", "extend"])
def test_whatever_comes_late_is_refused(how: str) -> None:
    clock = ManualClock()
    with opened(clock) as engine:
        queue = engine.queue("orders")
        queue.put_many([b"one", b"two"])
        alone, *together = [queue.get(lease=LEASE_S), *queue.get_many(1, lease=LEASE_S)]
        assert alone is not None
        clock.advance(LEASE_S)
        arguments = (LEASE_S,) if how == "extend" else ()
        with pytest.raises(LeaseExpired):
            getattr(alone, how)(*arguments)
        settle = getattr(queue, how)
        for late in (alone, alone.receipt, together):
            with pytest.raises(LeaseExpired):
                settle(late, *arguments)
        again = queue.get_many(2, lease=LEASE_S)
        assert [(message.value, message.attempt) for message in again] == [(b"one", 2), (b"two", 2)]


@pytest.mark.fault("lease", "broker")
def test_so_it_is_over_http() -> None:
    clock = ManualClock()
    with opened(clock) as engine, serving_engine(engine) as served:
        engine.queue("orders").put(b"one")
        path = "/v1/topics/orders/groups/billing"
        asked = {"lease_ms": round(LEASE_S * 1000)}
        taken = ask_once(served.port, "POST", f"{path}/receive", asked).document["messages"]
        clock.advance(LEASE_S)
        late = ask_once(served.port, "POST", f"{path}/ack", {"receipts": [taken[0]["receipt"]]})
        assert late.status == 409
        assert late.code == "lease_expired"
        again = ask_once(served.port, "POST", f"{path}/receive", asked).document["messages"]
        assert [(message["value"], message["attempt"]) for message in again] == [("one", 2)]
