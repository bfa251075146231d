"""Members of groups over HTTP: join, sync, heartbeat, leave, offsets, and who may see what."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.site import Site
from unit.server.routes.conversation import get, refused, status_and_code, told

from quivermq.engine import engine_of
from quivermq.engine.offsets import Commit, commit_offsets
from quivermq.server.access import ApiKey
from quivermq.server.app import App
from quivermq.server.http import Request
from quivermq.server.polling import Polls
from quivermq.server.routes import groups, members
from quivermq.server.routing import Route

BILLING = "/v1/groups/billing"
UNKNOWN = "0" * 32


@pytest.fixture
def site() -> Iterator[Site]:
    with Site([*members.ROUTES, *groups.ROUTES]) as site:
        site.engine.create_topic("orders", partitions=4, durability="os")
        site.engine.create_topic("mails", durability="os")
        yield site


def join(site: Site, *topics: str, **options: Any) -> dict[str, Any]:
    """What a new member says of itself in every further call."""
    joined = site.post(f"{BILLING}/join", {"topics": topics or ["orders"], **options})
    return {"member_id": joined["member_id"], "generation": joined["generation"]}


def sync(site: Site, member: dict[str, Any], *owned: int, wait_ms: int = 0) -> tuple[list[int], list[int]]:
    """The partitions of a member, and those it has to give up."""
    answer = site.post(f"{BILLING}/sync", sync_body(member, *owned, wait_ms=wait_ms))
    return numbers(member, answer)


def sync_body(member: dict[str, Any], *owned: int, wait_ms: int = 0) -> dict[str, Any]:
    partitions = [{"topic": "orders", "partition": number} for number in owned]
    return {**member, "owned": partitions, "wait_ms": wait_ms}


def numbers(member: dict[str, Any], answer: Any) -> tuple[list[int], list[int]]:
    member["generation"] = answer["generation"]
    has, revoked = ([each["partition"] for each in answer[name]] for name in ("assignment", "revoked"))
    return has, revoked


def only_for(site: Site, *topics: str) -> Site:
    """The same site, for somebody whose key is for some topics."""

    def gate(request: Request, _: Route) -> None:
        request.key = ApiKey("k", "read", topics)

    site.app = App(site.broker, site.app.router.routes, gate)
    return site


def test_the_life_of_a_member(site: Site) -> None:
    joined = site.post(f"{BILLING}/join", {"topics": ["orders"], "strategy": "range"})
    assert joined["members"] == 1
    member = {"member_id": joined["member_id"], "generation": joined["generation"]}
    assert site.post(f"{BILLING}/heartbeat", member) == {"state": "rebalancing"}
    answer = site.post(f"{BILLING}/sync", member)
    assert answer["assignment"] == [{"topic": "orders", "partition": number} for number in range(4)]
    assert answer["revoked"] == []
    member["generation"] = answer["generation"]
    assert site.post(f"{BILLING}/heartbeat", member) == {"state": "stable"}
    for _ in range(2):
        assert site.ask("POST", f"{BILLING}/leave", {"member_id": member["member_id"]}).status == 204
    assert site.refusal(f"{BILLING}/heartbeat", member) == (409, "fenced")


def test_two_members_share_and_what_stays_never_pauses(site: Site) -> None:
    first, second = join(site), join(site)
    assert sync(site, first) == ([0, 1, 2, 3], [])
    assert sync(site, second) == ([], [])
    assert sync(site, first, 0, 1, 2, 3) == ([0, 1], [2, 3])
    assert sync(site, second) == ([], [])
    assert sync(site, first, 0, 1) == ([0, 1], [])
    assert sync(site, second) == ([2, 3], [])


def test_a_sync_waits_until_others_gave_something_up(site: Site) -> None:
    first, second = join(site), join(site)
    sync(site, first)

    async def both() -> tuple[list[int], list[int]]:
        waiting = asyncio.create_task(
            site.answer("POST", f"{BILLING}/sync", sync_body(second, wait_ms=60_000))
        )
        while engine_of(site.engine).members.heartbeat("billing", **first) == "stable":
            await asyncio.sleep(0)
        for owned in ([0, 1, 2, 3], [0, 1]):
            assert not waiting.done()
            response = await site.answer("POST", f"{BILLING}/sync", sync_body(first, *owned))
            numbers(first, told(response))
        return numbers(second, told(await waiting))

    assert site.run(both()) == ([2, 3], [])


@pytest.mark.parametrize("end", ["time", "drain", "leave"])
def test_a_sync_waits_no_longer_than_it_should(site: Site, end: str) -> None:
    first, second = join(site), join(site)
    sync(site, first)

    async def wait() -> tuple[int, str]:
        wait_ms = 30 if end == "time" else 60_000
        waiting = asyncio.create_task(
            site.answer("POST", f"{BILLING}/sync", sync_body(second, wait_ms=wait_ms))
        )
        # On a busy machine a short time may be over before anybody has looked.
        while (
            not waiting.done()
            and not engine_of(site.engine).members.waiters("billing", second["member_id"])[0].waiting
        ):
            await asyncio.sleep(0)
        if end == "drain":
            site.broker.drain()
        if end == "leave":
            engine_of(site.engine).members.leave("billing", second["member_id"])
        response = await waiting
        return response.status, response.body.decode()

    status, body = site.run(wait())
    assert status == (409 if end == "leave" else 200)
    assert ('"fenced"' if end == "leave" else '"assignment":[]') in body


def test_whoever_has_its_share_does_not_wait(site: Site) -> None:
    members_there = [join(site, "mails") for _ in range(2)]
    assert sync(site, members_there[0], wait_ms=60_000) == ([0], [])
    assert sync(site, members_there[1], wait_ms=60_000) == ([], [])


def test_offsets_are_committed_and_told(site: Site) -> None:
    queue = site.engine.queue("orders")
    for number in range(3):
        queue.put(b"%d" % number, partition=1)
    member = join(site)
    sync(site, member)
    assert get(site, f"{BILLING}/offsets")["offsets"][1] == {
        "topic": "orders",
        "partition": 1,
        "priority": "normal",
        "offset": None,
        "start": 0,
        "end": 3,
        "lag": 3,
    }
    commits = [
        {"topic": "orders", "partition": 1, "offset": 2},
        {"topic": "orders", "partition": 0, "offset": 0},
    ]
    assert site.ask("PUT", f"{BILLING}/offsets", {"offsets": commits, **member}).status == 204
    told_offsets = get(site, f"{BILLING}/offsets?topic=orders")["offsets"]
    assert [(each["offset"], each["lag"]) for each in told_offsets] == [
        (0, 0),
        (2, 1),
        (None, 0),
        (None, 0),
    ]
    assert get(site, f"{BILLING}/offsets?topic=%3E")["offsets"][-1]["topic"] == "orders"
    assert {each["topic"] for each in get(site, f"{BILLING}/offsets?topic=*")["offsets"]} == {
        "orders",
        "mails",
    }
    assert get(site, "/v1/groups/nobody/offsets") == {"offsets": []}


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"offset": 1}, 416, "offset_out_of_range"),
        ({"partition": 4}, 400, "invalid_request"),
        ({"topic": "nowhere"}, 404, "topic_not_found"),
        ({"topic": "mails"}, 409, "fenced"),
        ({"priority": "urgent"}, 400, "invalid_request"),
        ({"offset": -1}, 400, "invalid_request"),
        ({"colour": "red"}, 400, "invalid_request"),
    ],
)
def test_commits_that_are_refused(site: Site, change: dict[str, Any], status: int, code: str) -> None:
    member = join(site)
    sync(site, member)
    bad = {"topic": "orders", "partition": 0, "offset": 0, **change}
    commits = [{"topic": "orders", "partition": 1, "offset": 0}, bad]
    body = {"offsets": commits, **member}
    assert status_and_code(site, "PUT", f"{BILLING}/offsets", body) == (status, code)
    assert site.engine.groups("orders") == []


def test_a_commit_without_a_member_is_for_what_no_member_has(site: Site) -> None:
    body = {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
    assert site.ask("PUT", f"{BILLING}/offsets", body).status == 204
    sync(site, join(site))
    assert status_and_code(site, "PUT", f"{BILLING}/offsets", body) == (409, "conflict")


@pytest.mark.parametrize("call", ["join", "sync", "heartbeat"])
def test_a_member_that_is_not_known_is_fenced(site: Site, call: str) -> None:
    body: dict[str, Any] = {"member_id": UNKNOWN}
    body |= {"topics": ["orders"]} if call == "join" else {"generation": 1}
    assert site.refusal(f"{BILLING}/{call}", body) == (409, "fenced")


def test_another_strategy_is_refused_with_the_one_there_is(site: Site) -> None:
    join(site, strategy="range")
    status, code, message = refused(
        site, "POST", f"{BILLING}/join", {"topics": ["orders"], "strategy": "sticky"}
    )
    assert (status, code) == (409, "conflict")
    assert "'range'" in message


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("join", {}),
        ("join", {"topics": []}),
        ("join", {"topics": ["a/b"]}),
        ("join", {"topics": ["orders"] * 101}),
        ("join", {"topics": ["orders"], "strategy": "random"}),
        ("join", {"topics": ["orders"], "session_timeout_ms": 1}),
        ("join", {"topics": ["orders"], "colour": "red"}),
        ("sync", {"member_id": UNKNOWN}),
        ("sync", {"member_id": UNKNOWN, "generation": 1, "owned": [{"topic": "orders"}]}),
        ("heartbeat", {"member_id": 7, "generation": 1}),
        ("leave", {}),
    ],
)
def test_bad_bodies_are_refused(site: Site, call: str, body: dict[str, Any]) -> None:
    status, _ = site.refusal(f"{BILLING}/{call}", body)
    assert status == 400
    assert get(site, "/v1/groups") == {"groups": []}


@pytest.mark.parametrize("call", ["join", "sync", "heartbeat", "leave"])
def test_the_name_of_a_group_is_checked(site: Site, call: str) -> None:
    body: dict[str, Any] = {"topics": ["orders"]} if call == "join" else {"member_id": UNKNOWN}
    body |= {"generation": 1} if call in ("sync", "heartbeat") else {}
    assert site.refusal(f"/v1/groups/a%2Fb/{call}", body) == (400, "invalid_name")


def test_groups_and_their_members_are_shown(site: Site) -> None:
    member, idle = join(site, "orders", "mails"), join(site)
    sync(site, member)
    site.engine.queue("mails", "audit").get()
    assert get(site, "/v1/groups") == {
        "groups": [
            {"group": "audit", "state": "empty", "topics": ["mails"], "members": 0},
            {"group": "billing", "state": "stable", "topics": ["mails", "orders"], "members": 2},
        ]
    }
    shown = get(site, BILLING)
    assert (shown["strategy"], shown["state"], shown["topics"]) == (
        "cooperative",
        "stable",
        ["mails", "orders"],
    )
    first, second = shown["members"]
    assert member["member_id"].startswith(first["member"])
    assert idle["member_id"].startswith(second["member"])
    assert member["member_id"] not in str(shown)
    assert (len(first["partitions"]), second["partitions"]) == (5, [])
    assert get(site, "/v1/groups/audit")["strategy"] is None
    assert status_and_code(site, "GET", "/v1/groups/nobody") == (404, "group_not_found")


def test_the_group_of_a_topic_shows_its_members(site: Site) -> None:
    member = join(site, "orders")
    sync(site, member)
    sync(site, join(site, "mails"))
    commit_offsets(engine_of(site.engine), "billing", [Commit("orders", 0, 0)], **member)
    shown = get(site, "/v1/topics/orders/groups/billing")
    assert shown["members"] == [
        {"member": member["member_id"][:8], "client": "", "partitions": [0, 1, 2, 3]}
    ]
    assert engine_of(site.engine).inspection.readers("orders", "nobody") == []


def test_a_silent_member_is_gone_when_the_engine_looks(site: Site) -> None:
    member = join(site)
    sync(site, member)
    site.clock.advance(30)
    engine_of(site.engine).maintain()
    assert site.refusal(f"{BILLING}/heartbeat", member) == (409, "fenced")
    assert get(site, "/v1/groups") == {"groups": []}


def test_a_key_reads_only_its_topics(site: Site) -> None:
    other = join(site, "mails")
    sync(site, other)
    only_for(site, "orders")
    for call, body in (
        ("join", {"topics": ["orders", "mails"]}),
        ("join", {"topics": [">"]}),
        ("sync", other),
        ("heartbeat", other),
        ("leave", {"member_id": other["member_id"]}),
    ):
        assert site.refusal(f"{BILLING}/{call}", body) == (403, "denied")
    body = {"offsets": [{"topic": "mails", "partition": 0, "offset": 0}]}
    assert status_and_code(site, "PUT", f"{BILLING}/offsets", body) == (403, "denied")
    assert status_and_code(site, "GET", f"{BILLING}/offsets?topic=mails") == (403, "denied")
    assert status_and_code(site, "GET", BILLING) == (404, "group_not_found")
    assert get(site, "/v1/groups") == {"groups": []}
    assert get(site, f"{BILLING}/offsets") == {"offsets": []}
    assert sync(site, join(site)) == ([0, 1, 2, 3], [])
    assert get(site, BILLING)["topics"] == ["orders"]
    # Who reads other topics only is not there, and is not counted.
    assert [member["topics"] for member in get(site, BILLING)["members"]] == [["orders"]]
    assert [group["members"] for group in get(site, "/v1/groups")["groups"]] == [1]
    assert site.ask("POST", f"{BILLING}/leave", {"member_id": UNKNOWN}).status == 204


def test_of_a_member_a_key_sees_only_the_part_that_reads_its_topics(site: Site) -> None:
    member = join(site, "orders", "mails")
    sync(site, member)
    (whole,) = get(site, BILLING)["members"]
    assert whole["topics"] == ["orders", "mails"]
    assert [each["topic"] for each in whole["partitions"]] == ["mails", *["orders"] * 4]
    only_for(site, "mails")
    (part,) = get(site, BILLING)["members"]
    assert part["topics"] == ["mails"]
    assert part["partitions"] == [{"topic": "mails", "partition": 0}]


def test_a_key_does_not_take_over_a_member_that_reads_other_topics(site: Site) -> None:
    other = join(site, "mails")
    only_for(site, "orders")
    body = {"topics": ["orders"], "member_id": other["member_id"]}
    assert site.refusal(f"{BILLING}/join", body) == (403, "denied")


def test_keys_that_ask_for_the_groups_at_once_each_get_their_own(site: Site) -> None:
    join(site, "mails")
    commit_offsets(engine_of(site.engine), "billing", [Commit("mails", 0, 0)])

    def gate(request: Request, _: Route) -> None:
        request.key = ApiKey("k", "read", (request.headers["topic"],))

    site.app = App(site.broker, site.app.router.routes, gate)

    async def both() -> list[list[Any]]:
        asked = (
            site.answer("GET", "/v1/groups", headers={"topic": topic}) for topic in ("orders", "mails")
        )
        return [told(answer)["groups"] for answer in await asyncio.gather(*asked)]

    assert [len(groups) for groups in site.run(both())] == [0, 1]


def test_whoever_has_to_stop_reading_is_told_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = join(site), join(site)
    sync(site, first)
    waits: list[float] = []

    async def woken(_: Polls, __: object, end: float, ___: object) -> None:
        waits.append(end)

    monkeypatch.setattr(Polls, "woken", woken)
    # It takes for its own what the other one has, and there will be something for it.
    assert sync(site, second, 0, wait_ms=60_000) == ([], [0])
    assert not waits


def test_a_sync_waits_for_half_a_session_at_most(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = join(site), join(site, session_timeout_ms=10_000)
    sync(site, first)
    left_s: list[float] = []

    async def woken(_: Polls, __: object, end: float, ___: object) -> None:
        left_s.append(end - asyncio.get_running_loop().time())
        site.broker.drain()

    monkeypatch.setattr(Polls, "woken", woken)
    assert sync(site, second, wait_ms=60_000) == ([], [])
    assert [left <= 5 for left in left_s] == [True]


def test_a_queue_that_is_closed_says_so_to_its_members(site: Site) -> None:
    member = join(site)
    site.engine.close()
    assert site.refusal(f"{BILLING}/sync", member)[0] == 503
