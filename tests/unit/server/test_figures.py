"""What `/v1/stats` and the events tell: only of the topics that somebody may know of."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.site import Site

from quivermq.engine.activity import Problem
from quivermq.errors import FsyncFailed
from quivermq.server.figures import Figures, look, told, why_not_ready


@pytest.fixture
def site() -> Iterator[Site]:
    with Site([]) as site:
        yield site


def test_activity_stands_beside_what_there_is(site: Site) -> None:
    orders = site.engine.queue("orders", "billing")
    orders.put_many([b"1", b"2", b"3"])
    orders.ack(orders.get_many(1))
    site.clock.advance(2)
    figures = told(look(site.broker), lambda _: True)
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
    late = Figures(found.stats, {}, [])
    topic = told(late, lambda _: True)["topics"]["orders"]
    assert (topic["published"], topic["groups"]["billing"]["delivered"]) == (0, 0)


def test_problems_of_topics_of_others_are_not_told(site: Site) -> None:
    found = look(site.broker)
    problems = [Problem("all of it"), Problem("mine", "orders"), Problem("theirs", "events")]
    figures = told(Figures(found.stats, {}, problems), "orders".__eq__)
    assert [problem["message"] for problem in figures["problems"]] == ["all of it", "mine"]


def test_a_broker_that_takes_no_messages_says_why(site: Site) -> None:
    assert why_not_ready(site.broker) is None
    site.broker.note(FsyncFailed("cannot sync /data/x", path=Path("/data/x")))
    reason = why_not_ready(site.broker)
    assert reason is not None
    assert "/data" not in reason
    assert look(site.broker).problems[0] == Problem(reason)
