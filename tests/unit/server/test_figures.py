"""What `/v1/stats` and the events tell: only of the topics that somebody may know of."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.site import Site
from support.threads import PATIENCE_S

from quivermq.engine.activity import Problem
from quivermq.engine.statistics import Survey
from quivermq.errors import FsyncFailed
from quivermq.model.stats import Alert
from quivermq.server.broker import Broker
from quivermq.server.figures import Answers, look, stats_json, why_not_ready


@pytest.fixture
def site() -> Iterator[Site]:
    with Site([]) as site:
        yield site


def test_activity_stands_beside_what_there_is(site: Site) -> None:
    orders = site.engine.queue("orders", "billing")
    orders.put_many([b"1", b"2", b"3"])
    orders.ack(orders.get_many(1))
    site.clock.advance(2)
    figures = stats_json(look(site.broker), lambda _: True)
    topic = figures["topics"]["orders"]
    assert (topic["messages"], topic["published"]) == (3, 3)
    billing = topic["groups"]["billing"]
    assert (billing["pending"], billing["delivered"], billing["acked"]) == (2, 1, 1)
    assert billing["oldest_unacked_ms"] == 2000
    assert figures["problems"] == []


def test_what_came_between_the_two_looks_has_done_nothing_yet(site: Site) -> None:
    site.engine.queue("orders", "billing").get()
    site.engine.queue("orders", "billing").put(b"x")
    site.engine.queue("orders", "billing").get()
    found = look(site.broker)
    late = replace(found, activity={})
    topic = stats_json(late, lambda _: True)["topics"]["orders"]
    assert (topic["published"], topic["groups"]["billing"]["delivered"]) == (0, 0)


def test_problems_of_topics_of_others_are_not_told(site: Site) -> None:
    found = look(site.broker)
    problems = [Problem("all of it"), Problem("mine", "orders"), Problem("theirs", "events")]
    figures = stats_json(replace(found, problems=problems), "orders".__eq__)
    assert [problem["message"] for problem in figures["problems"]] == ["all of it", "mine"]


def test_a_broker_that_takes_no_messages_says_why(site: Site) -> None:
    assert why_not_ready(site.broker) is None
    site.broker.note(FsyncFailed("cannot sync /data/x", path=Path("/data/x")))
    reason = why_not_ready(site.broker)
    assert reason is not None
    assert "/data" not in reason
    assert look(site.broker).problems[0] == Problem(reason)


def test_alerts_of_topics_of_others_are_not_told(site: Site) -> None:
    found = look(site.broker)
    alerts = [
        Alert("A", "page", "all of it"),
        Alert("B", "page", "theirs", "events"),
        Alert("C", "page", "mine", "orders"),
    ]
    survey = replace(found, stats=replace(found.stats, alerts=alerts))
    assert [alert["alert"] for alert in stats_json(survey, "orders".__eq__)["alerts"]] == ["A", "C"]


def test_who_asks_at_the_same_time_shares_one_look(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, looks = threading.Event(), threading.Event(), list[int]()

    def slow_look(broker: Broker) -> Survey:
        looks.append(len(looks))
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return look(broker)

    monkeypatch.setattr("quivermq.server.figures.look", slow_look)
    made: list[str] = []

    def make(survey: Survey) -> bytes:
        made.append("once")
        return str(survey.stats.messages).encode()

    async def ask() -> list[bytes]:
        shared = Answers(site.broker)
        first = asyncio.create_task(shared.answer_of_look("all", make))
        await site.broker.run(begun.wait, PATIENCE_S)
        # The look that is under way may not know of this any more: whoever asks from now on must be told.
        await site.broker.run(site.engine.queue("orders").put, b"x")
        later = [asyncio.create_task(shared.answer_of_look("all", make)) for _ in range(8)]
        other = asyncio.create_task(shared.answer_of_look("other", lambda _: b"other"))
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(first, *later, other)

    first, *later, other = asyncio.run(ask())
    assert later == [b"1"] * 8
    assert other == b"other"
    assert looks == [0, 1]
    # One for the first, one for the eight.
    assert made == ["once"] * 2
    assert first in (b"0", b"1")


def test_one_who_goes_away_takes_the_look_from_nobody(site: Site) -> None:
    async def ask() -> bytes:
        shared = Answers(site.broker)
        impatient = asyncio.create_task(shared.answer_of_look("all", lambda _: b"answer"))
        patient = asyncio.create_task(shared.answer_of_look("all", lambda _: b"answer"))
        await asyncio.sleep(0)
        impatient.cancel()
        return await patient

    assert asyncio.run(ask()) == b"answer"
