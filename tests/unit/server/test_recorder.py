"""Somebody looks at the queue every few seconds."""

import asyncio
from collections.abc import Iterator

import pytest
from support.site import Site

from quivermq.errors import Unavailable
from quivermq.server import figures, history
from quivermq.server import history as recorder
from quivermq.server.history import Recorder


@pytest.fixture
def site() -> Iterator[Site]:
    with Site([]) as site:
        yield site


async def looks(site: Site, count: int) -> Recorder:
    kept = site.broker.part(Recorder)
    kept.start()
    while len(kept.history.whole()["times"]) < count:
        site.clock.advance(history.INTERVAL_S)
        await asyncio.sleep(0)
    return kept


def test_points_come_by_themselves_until_the_broker_drains(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_SHARE_MAX", float("inf"))
    plan = Recorder._plan
    monkeypatch.setattr(Recorder, "_plan", lambda self, _: plan(self, 0))

    async def run() -> None:
        kept = await looks(site, 3)
        site.broker.drain()
        while kept._recording is not None:
            await asyncio.sleep(0)
        assert kept._timer is None or kept._timer.cancelled()

    site.run(run())


def test_a_queue_that_cannot_tell_leaves_a_gap(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise Unavailable("not now")

    monkeypatch.setattr(recorder, "look", fail)

    async def run() -> None:
        kept = site.broker.part(Recorder)
        await kept._record()
        assert kept.history.whole()["times"] == []
        assert kept._timer is not None
        kept.stop()

    site.run(run())


def test_a_look_that_takes_long_comes_less_often(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[float] = []
    monkeypatch.setattr(Recorder, "_plan", lambda _, seconds: planned.append(seconds))

    def slow(broker: object) -> object:
        site.clock.advance(1)
        return figures.look(broker)  # type: ignore[arg-type]

    monkeypatch.setattr(recorder, "look", slow)
    site.run(site.broker.part(Recorder)._record())
    assert planned == [50]
