"""A broker over a shared disk: whoever asks waits for the store, and nobody else does."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from support.shared import PATIENT
from support.site import Site

from quivermq.model.json import FRAME
from quivermq.server.routes import all_routes
from quivermq.shared import open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore, StoreStep

PATIENCE_S = 30
TOPIC = "/v1/topics/orders"


class Held:
    """A store that answers when the test lets it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._is_asked, self._may_answer = threading.Event(), threading.Event()
        self._may_answer.set()

    def hold(self) -> None:
        self._is_asked.clear()
        self._may_answer.clear()
        self.store.fault = self._wait

    def _wait(self, _: StoreStep) -> None:
        self._is_asked.set()
        assert self._may_answer.wait(PATIENCE_S)

    def let_go(self) -> None:
        self.store.fault = lambda _: None
        self._may_answer.set()

    async def asked(self) -> None:
        """Return once somebody waits for the store."""
        assert await asyncio.to_thread(self._is_asked.wait, PATIENCE_S)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def site(held: Held) -> Iterator[Site]:
    # In the root, so that its files are where a site looks for them.
    disk = open_shared(ConditionalChunks(held.store), Path("/"), disk=FaultyDisk(), limits=PATIENT)
    site = Site(all_routes(), disk)
    try:
        site.ask("POST", "/v1/topics", {"name": "orders", "durability": "os"})
        yield site
    finally:
        held.let_go()
        site.close()
        disk.abandon()


@pytest.mark.parametrize(
    ("method", "path", "body", "accept"),
    [
        ("POST", f"{TOPIC}/messages?durability=fsync", {"value": "more"}, None),
        ("POST", f"{TOPIC}/messages?durability=fsync", {"messages": [{"value": "more"}] * 3}, None),
        ("POST", f"{TOPIC}/groups/billing/receive", {"max": 10}, None),
        ("POST", f"{TOPIC}/groups/billing/receive", {"max": 1, "wait_ms": 1000}, None),
        ("GET", f"{TOPIC}/partitions/0/messages?offset=0", b"", None),
        ("GET", f"{TOPIC}/partitions/0/messages?offset=0", b"", FRAME),
        ("GET", f"{TOPIC}/groups/billing/peek", b"", None),
        ("POST", "/v1/topics", {"name": "another"}, None),
    ],
)
def test_only_who_asked_waits_for_the_store(
    site: Site, held: Held, method: str, path: str, body: object, accept: str | None
) -> None:
    async def ask() -> None:
        held.hold()
        # At `os` nobody waits for the store: the message is there, and not committed.
        assert (await site.answer("POST", f"{TOPIC}/messages", {"value": "first"})).status == 200
        headers = None if accept is None else {"Accept": accept}
        asking = asyncio.create_task(site.answer(method, path, body, headers))
        await held.asked()
        assert not asking.done()
        # The loop is free for others.
        assert (await site.answer("GET", TOPIC)).status == 200
        assert not asking.done()
        held.let_go()
        response = await asyncio.wait_for(asking, PATIENCE_S)
        assert response.status in (200, 201)
        assert method == "POST" or b"first" in bytes(response.body)

    site.run(ask())


def test_nothing_that_is_done_on_the_loop_waits_for_the_store(site: Site) -> None:
    assert site.broker.may_wait_for_disk("orders")
    assert site.broker.may_wait_for_disk("orders", "buffered")
