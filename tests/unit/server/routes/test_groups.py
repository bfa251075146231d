"""Groups over HTTP: what they have, where they go on, and how they are forgotten."""

import os
from collections.abc import Iterator

import pytest
from support.archives import ARCHIVE, archive_queue
from support.queues import SECOND, START_US
from support.site import Site
from unit.server.routes.conversation import get, refused, status_and_code, told

from quivermq.engine import engine_of
from quivermq.server.routes import groups

BILLING = "/v1/topics/orders/groups/billing"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(groups.ROUTES) as site:
        site.engine.create_topic("orders", partitions=2, lease_ms=1000)
        yield site


def test_a_group_shows_what_it_has_and_what_is_left(site: Site) -> None:
    queue = site.engine.queue("orders", "billing")
    for number in range(3):
        queue.put(str(number).encode(), partition=0)
    queue.put(b"urgent", partition=1, priority="high")
    queue.put(b"later", delay=60)
    held = queue.get()
    again = queue.get()
    assert held is not None
    assert again is not None
    again.nack(delay=30)
    shown = get(site, BILLING)
    assert (shown["topic"], shown["group"]) == ("orders", "billing")
    assert (shown["pending"], shown["in_flight"], shown["retrying"], shown["delayed"]) == (2, 1, 1, 1)
    assert (shown["backlog"], shown["lag"], shown["dead_letters"], shown["members"]) == (5, 2, 0, [])
    assert shown["deliveries"] == [
        {
            "partition": held.partition,
            "priority": held.priority,
            "offset": held.offset,
            "attempt": 1,
            "deadline": START_US + SECOND,
            "owner": f"process {os.getpid()} on {os.uname().nodename}",
            "first_delivered_at": START_US,
            "last_delivered_at": START_US,
        }
    ]
    lanes = {(lane["partition"], lane["priority"]): lane for lane in shown["partitions"]}
    assert set(lanes) == {(0, "normal"), (1, "high")}
    assert (lanes[0, "normal"]["start"], lanes[0, "normal"]["end"]) == (0, 3)
    assert sum(lane["lag"] for lane in lanes.values()) == 2
    assert sum(lane["in_flight"] for lane in lanes.values()) == 1
    assert sum(lane["retrying"] for lane in lanes.values()) == 1


def test_only_the_first_hundred_deliveries_are_shown(site: Site) -> None:
    queue = site.engine.queue("orders", "billing")
    queue.put_many([b"x"] * 150)
    queue.get_many(150)
    shown = get(site, BILLING)
    assert (shown["in_flight"], len(shown["deliveries"])) == (150, 100)


def test_a_group_that_is_not_there_is_not_made_by_looking(site: Site) -> None:
    assert status_and_code(site, "GET", BILLING) == (404, "group_not_found")
    assert status_and_code(site, "GET", "/v1/topics/none/groups/billing") == (404, "topic_not_found")
    assert status_and_code(site, "GET", "/v1/topics/orders/groups/a%20b") == (400, "invalid_name")
    assert site.engine.groups("orders") == []


@pytest.mark.parametrize(
    ("body", "position"),
    [
        ({"to": "latest"}, 3),
        ({"to": "earliest"}, 0),
        ({"offset": 2, "partition": 0}, 2),
        ({"offset": 1, "partition": 0, "priority": "normal"}, 1),
        ({"timestamp": START_US + SECOND}, 3),
        ({"timestamp": START_US, "partition": 0}, 0),
    ],
)
def test_a_group_goes_on_from_elsewhere(site: Site, body: object, position: int) -> None:
    queue = site.engine.queue("orders", "billing")
    for _ in range(3):
        queue.put(b"x", partition=0)
    shown = told(site.ask("POST", f"{BILLING}/seek", body))
    assert shown["partitions"][0]["position"] == position
    assert shown["lag"] == 3 - position


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"to": "earliest", "offset": 0}, 400),
        ({"to": "middle"}, 400),
        ({"offset": -1}, 400),
        ({"offset": 0, "partition": 7}, 400),
        ({"offset": 0, "priority": "urgent"}, 400),
        ({"timestamp": 1_700_000_000}, 400),
        ({"where": 0}, 400),
        ({"offset": 99}, 416),
    ],
)
def test_nobody_goes_where_there_is_nothing(site: Site, body: object, status: int) -> None:
    assert refused(site, "POST", f"{BILLING}/seek", body)[0] == status
    assert site.engine.groups("orders") == []


def test_a_group_is_forgotten(site: Site) -> None:
    site.engine.queue("orders", "billing").get()
    assert site.ask("DELETE", BILLING).status == 204
    assert site.engine.groups("orders") == []
    assert status_and_code(site, "DELETE", BILLING) == (404, "group_not_found")
    assert status_and_code(site, "DELETE", "/v1/topics/none/groups/x") == (404, "topic_not_found")


def test_a_group_whose_members_have_not_committed_yet_has_everything_before_it(site: Site) -> None:
    queue = site.engine.queue("orders")
    for partition in (0, 1, 1):
        queue.put(b"x", partition=partition)
    joined = engine_of(site.engine).members.join("readers", ["orders"])
    engine_of(site.engine).members.sync("readers", joined.member_id, joined.generation, frozenset())
    shown = get(site, "/v1/topics/orders/groups/readers")
    assert (shown["lag"], shown["deliveries"], len(shown["members"])) == (3, [], 1)
    lanes = [(lane["partition"], lane["position"], lane["lag"]) for lane in shown["partitions"]]
    assert lanes == [(0, 0, 1), (1, 0, 2)]


def test_a_group_that_is_in_the_archive_is_shown_there(site: Site) -> None:
    site.engine.create_topic("visits", segment_messages=2)
    queue = site.engine.queue("visits")
    for _ in range(4):
        queue.put(b"visit")
    archive_queue(engine_of(site.engine).path, ARCHIVE, "visits", disk=site.disk)
    site.engine.use_archive(ARCHIVE)
    assert site.engine.compact(archived=True).messages == 4
    assert site.engine.queue("visits", "late").pop() is not None
    [lane] = get(site, "/v1/topics/visits/groups/late")["partitions"]
    assert [lane[name] for name in ("position", "start", "end", "lag")] == [1, 0, 4, 3]
