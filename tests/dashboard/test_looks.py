"""Pictures of the pages that show messages, in three ways; and that none is wider than its window."""

from functools import partial

import pytest
from dashboard.strange import SCRIPT
from dashboard.visits import Visit, Visiting
from playwright.sync_api import expect
from support.broker import Served

import quivermq

TRACE = 'Traceback (most recent call last):\n  File "worker.py", line 12, in handle\nTimeoutError: 30 s'


@pytest.fixture
def busy(broker: Served) -> Served:
    """Something of everything."""
    broker.engine.create_topic("orders", partitions=3, durability="os", lease_ms=300_000)
    queue = broker.engine.queue("orders", "billing")
    order = b'{"order": %d, "customer": "c-%d", "items": [{"sku": "A%d"}]}'
    put = partial(quivermq.Message, headers={"trace": b"t-1"})
    queue.put_many([put(order % (n, n % 5, n), key=b"c-%d" % (n % 5)) for n in range(40)])
    queue.put(SCRIPT.encode(), key=b"from outside", priority="high")
    queue.put(bytes(range(64)), key=b"\xff")
    queue.reject(queue.get_many(6), "timeout", error=TRACE)
    queue.reject(queue.get_many(3), "out of stock")
    queue.nack(queue.get_many(2), delay=90)
    queue.get_many(4)
    for number in range(60):
        delay = 60 * (number + 1) * (1 + number // 10)
        queue.put(b'{"remind": %d}' % number, delay=delay, key=b"k%d" % number)
    return broker


def shoot(seen: Visit, route: str, name: str, rows: int) -> None:
    seen.drawn(route)
    expect(seen.page.locator("main tbody tr").nth(rows - 1)).to_be_visible()
    seen.shoot(name)
    assert not seen.has_sideways_scroll(), route


@pytest.mark.parametrize("way", ["", "-dark", "-phone"])
def test_how_it_looks(busy: Served, visit: Visiting, way: str) -> None:
    seen = visit(busy, phone=way == "-phone", dark=way == "-dark")
    page = seen.page
    shoot(seen, "groups", f"groups{way}", 1)
    shoot(seen, "groups/orders/billing", f"group{way}", 10)
    shoot(seen, "delayed/orders", f"delayed{way}", 60)
    for name, rows in (("message", 42), ("dead-letter", 9)):
        shoot(seen, f"{name}s/orders", f"{name}s{way}", rows)
        page.locator("main tbody tr").nth(5).get_by_role("button").first.click()
        expect(page.locator("aside.drawer")).to_be_visible()
        seen.shoot(f"{name}{way}")
        assert not seen.has_sideways_scroll(), name
