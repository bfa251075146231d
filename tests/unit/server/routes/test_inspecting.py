"""The state of the queue in full, over HTTP: deliveries and segments, page by page."""

import os
from collections.abc import Iterator

import pytest
from support.queues import SECOND, START_US
from support.site import Site
from unit.server.routes.conversation import get, refused, status_and_code

from quivermq.engine import engine_of
from quivermq.model.lanes import lane_number
from quivermq.server.routes import groups as inspecting

DELIVERIES = "/v1/topics/orders/groups/billing/deliveries"
SEGMENTS = "/v1/topics/orders/segments"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(inspecting.ROUTES) as site:
        site.engine.create_topic("orders", partitions=2, lease_ms=1000, segment_messages=2)
        yield site


def test_deliveries_are_those_in_flight_and_those_that_wait(site: Site) -> None:
    queue = site.engine.queue("orders", "billing")
    for number in range(3):
        queue.put(str(number).encode(), partition=1)
    first, second = queue.get(), queue.get()
    assert first is not None
    assert second is not None
    second.nack(delay=30)
    times = {"first_delivered_at": START_US, "last_delivered_at": START_US}
    place = {"partition": 1, "priority": "normal", "attempt": 1, **times}
    here = f"process {os.getpid()} on {os.uname().nodename}"
    assert get(site, DELIVERIES)["deliveries"] == [
        {**place, "offset": 0, "state": "in_flight", "time": START_US + SECOND, "owner": here},
        {**place, "offset": 1, "state": "retrying", "time": START_US + 30 * SECOND, "owner": None},
    ]


def test_a_lease_that_is_over_is_not_in_flight(site: Site) -> None:
    queue = site.engine.queue("orders", "billing")
    queue.put(b"x")
    assert queue.get() is not None
    site.clock.advance(1.5)
    (shown,) = get(site, DELIVERIES)["deliveries"]
    assert (shown["state"], shown["time"]) == ("retrying", START_US + SECOND)


def test_every_delivery_is_on_one_page(site: Site) -> None:
    queue = site.engine.queue("orders", "billing")
    for priority in ("high", "low"):
        for partition in range(2):
            for _ in range(4):
                queue.put(b"x", partition=partition, priority=priority)
    queue.get_many(16)
    seen, after = [], ""
    while page := get(site, f"{DELIVERIES}?limit=3{after}")["deliveries"]:
        assert len(page) <= 3
        seen += [(d["partition"], d["priority"], d["offset"]) for d in page]
        last = page[-1]
        lane = lane_number(last["priority"])
        after = f"&after={last['partition']}-{lane}-{last['offset']}"
    assert seen == [(p, priority, o) for p in range(2) for priority in ("high", "low") for o in range(4)]


def test_a_group_that_is_not_there_has_no_deliveries(site: Site) -> None:
    assert status_and_code(site, "GET", DELIVERIES) == (404, "group_not_found")
    assert status_and_code(site, "GET", "/v1/topics/none/groups/billing/deliveries") == (
        404,
        "topic_not_found",
    )
    status, _, message = refused(site, "GET", f"{DELIVERIES}?limit=0")
    assert status == 400
    assert "limit is a whole number" in message


def test_segments_say_what_they_hold(site: Site) -> None:
    queue = site.engine.queue("orders", "billing")
    for number in range(5):
        queue.put(str(number).encode(), partition=0)
        site.clock.advance(1)
    shown = get(site, SEGMENTS)["segments"]
    assert [(s["base_offset"], s["end_offset"], s["sealed"]) for s in shown if s["partition"] == 0] == [
        (0, 2, True),
        (2, 4, True),
        (4, 5, False),
    ]
    assert [(s["first_timestamp"] - START_US, s["last_timestamp"] - START_US) for s in shown[:3]] == [
        (0, SECOND),
        (2 * SECOND, 3 * SECOND),
        (4 * SECOND, 4 * SECOND),
    ]
    assert all(s["bytes"] > 0 for s in shown[:3])
    assert get(site, f"{SEGMENTS}?limit=1&after=0-1-0")["segments"] == [shown[1]]


def test_an_empty_segment_has_no_times(site: Site) -> None:
    site.engine.queue("orders").put(b"x", partition=1)
    shown = get(site, SEGMENTS)["segments"]
    empty = [s for s in shown if s["base_offset"] == s["end_offset"]]
    assert [(s["first_timestamp"], s["last_timestamp"]) for s in empty] == [(None, None)] * len(empty)
    assert [s["partition"] for s in shown if s not in empty] == [1]


def test_a_group_that_only_has_members_has_been_given_nothing(site: Site) -> None:
    joined = engine_of(site.engine).members.join("billing", ["orders"])
    engine_of(site.engine).members.sync("billing", joined.member_id, joined.generation, frozenset())
    assert get(site, DELIVERIES) == {"deliveries": []}
