"""Receiving and settling over HTTP: receipts, leases, long polls."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from struct import unpack_from
from typing import Any

import pytest
from support.archives import ARCHIVE, archive_queue
from support.site import Site

import quivermq
from quivermq.engine import EngineQueue, engine_of
from quivermq.engine.waiting import WatchedGroup
from quivermq.frame import Frame
from quivermq.server import delivering as queues
from quivermq.server import delivering as withdrawn
from quivermq.server import polling
from quivermq.server.access import ApiKey
from quivermq.server.app import App
from quivermq.server.http import Request, Response
from quivermq.server.routes import operations, publish, receive, settle

GROUP = "/v1/topics/orders/groups/billing"
PACKED = {"Accept": "application/vnd.quiver.delivery"}

durabilities = pytest.mark.parametrize("durability", ["fsync", "os"])


def billing(site: Site) -> EngineQueue:
    """The queue that the paths name."""
    return engine_of(site.engine).queue("orders", "billing")


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(publish.ROUTES + receive.ROUTES + settle.ROUTES) as site:
        yield site


def put(site: Site, *values: str, **settings: Any) -> quivermq.Queue:
    if "orders" not in site.engine.topics():
        site.engine.create_topic("orders", **settings)
    queue = site.engine.queue("orders", "billing")
    if values:
        queue.put_many([value.encode() for value in values])
    return queue


def received(site: Site, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.post(f"{GROUP}/receive", asked)["messages"]
    return found


def unpacked(response: Response) -> list[tuple[dict[str, Any], list[Frame]]]:
    """The leases of a packed answer, each with its frames."""
    body = response.body
    assert response.content_type == PACKED["Accept"]
    [length] = unpack_from("<I", body)
    head = json.loads(body[4 : 4 + length])
    position = -(-(4 + length) // 8) * 8
    found = []
    for lease in head["leases"]:
        frames = []
        for _ in range(lease["frames"]):
            frames.append(Frame.parse(body, position))
            position += frames[-1].header.frame_bytes
        found.append((lease, frames))
    assert position == len(body)
    return found


@durabilities
def test_a_message_with_everything(site: Site, durability: str) -> None:
    queue = put(site, durability=durability)
    queue.put(b"\xff", key=b"k", headers={"a": b"1"}, priority="high", dedup_id="x")
    [message] = received(site)
    receipt = message.pop("receipt")
    assert message == {
        "topic": "orders",
        "partition": 0,
        "priority": "high",
        "offset": 0,
        "timestamp": 1_700_000_000_000_000,
        "value_base64": "/w==",
        "key": "k",
        "headers": {"a": "1"},
        "dedup_id": "x",
        "attempt": 1,
    }
    assert site.post(f"{GROUP}/ack", {"receipts": [receipt]}) == {
        "results": [{"receipt": receipt, "ok": True}]
    }
    assert queue.stats().backlog == 0


def test_without_a_body_one_message_comes(site: Site) -> None:
    put(site, "a", "b")
    response = site.ask("POST", f"{GROUP}/receive")
    assert [message["value"] for message in json.loads(response.body)["messages"]] == ["a"]


def test_nothing_comes_from_a_topic_that_does_not_exist(site: Site) -> None:
    assert received(site, max=5) == []
    assert site.engine.topics() == []


def test_popped_messages_are_done(site: Site) -> None:
    queue = put(site, "a", "b", "c")
    assert [message["value"] for message in received(site, max=2, pop=True)] == ["a", "b"]
    assert queue.stats().backlog == 1


def test_a_pattern_receives_from_all_its_topics(site: Site) -> None:
    for name in ("e.a", "e.b", "other"):
        site.engine.queue(name).put(name.encode())
    path = "/v1/topics/e.*/groups/billing"
    messages = site.post(f"{path}/receive", {"max": 9})["messages"]
    assert sorted(message["topic"] for message in messages) == ["e.a", "e.b"]
    site.post(f"{path}/ack", {"receipts": [message["receipt"] for message in messages]})
    assert site.post(f"{path}/receive", {"max": 9}) == {"messages": []}


@durabilities
def test_a_nack_brings_it_back_and_a_reject_buries_it(site: Site, durability: str) -> None:
    queue = put(site, "a", durability=durability)
    [message] = received(site)
    site.post(f"{GROUP}/nack", {"receipts": [message["receipt"]], "delay_ms": 2000, "reason": "busy"})
    assert received(site) == []
    site.clock.advance(2)
    [message] = received(site)
    assert message["attempt"] == 2
    site.post(f"{GROUP}/reject", {"receipts": [message["receipt"]], "reason": "bad", "error": "ValueError"})
    [dead] = queue.dead_letters()
    assert (dead.value, dead.reason, dead.error) == (b"a", "bad", "ValueError")


def test_an_extended_lease_lasts(site: Site) -> None:
    put(site, "a")
    [message] = received(site, lease_ms=1000)
    site.post(f"{GROUP}/extend", {"receipts": [message["receipt"]], "lease_ms": 60_000})
    site.clock.advance(50)
    assert received(site) == []
    site.clock.advance(20)
    assert [again["attempt"] for again in received(site)] == [2]


def test_each_receipt_has_its_result(site: Site) -> None:
    put(site, "a", "b")
    first, second = (message["receipt"] for message in received(site, max=2))
    site.post(f"{GROUP}/ack", {"receipts": [first]})
    late, good = site.post(f"{GROUP}/ack", {"receipts": [first, second]})["results"]
    assert (late["receipt"], late["ok"], late["error"]["code"]) == (first, False, "lease_expired")
    assert good == {"receipt": second, "ok": True}


def test_when_all_receipts_come_late_it_is_a_conflict(site: Site) -> None:
    put(site, "a")
    [message] = received(site, lease_ms=10)
    site.clock.advance(1)
    assert site.refusal(f"{GROUP}/ack", {"receipts": [message["receipt"]]}) == (409, "lease_expired")
    response = site.ask("POST", f"{GROUP}/nack", {"receipts": [message["receipt"], message["receipt"]]})
    assert response.status == 409
    assert [result["ok"] for result in json.loads(response.body)["results"]] == [False, False]


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("receive", {"max": 0}),
        ("receive", {"max": 10_001}),
        ("receive", {"wait_ms": -1}),
        ("receive", {"lease_ms": 0}),
        ("receive", {"count": 3}),
        ("receive", {"token": "0x1"}),
        ("release", {"tokens": []}),
        ("release", {"tokens": ["xyz"]}),
        ("release", {"tokens": ["1"], "receipts": ["orders:0:1:0:1"]}),
        ("ack", {"tokens": ["1"]}),
        ("ack", {}),
        ("ack", {"receipts": []}),
        ("ack", {"receipts": ["nonsense"]}),
        ("ack", {"receipts": ["other:0:1:0:1"]}),
        ("ack", {"receipts": ["orders:0:1:0:1"], "leases": []}),
        ("ack", {"leases": [{"topic": "orders", "partition": 0, "token": "xyz", "runs": [0, 1]}]}),
        ("ack", {"leases": [{"topic": "orders", "partition": 0, "token": "1", "runs": [5, 1]}]}),
        ("ack", {"leases": [{"topic": "orders", "partition": 0, "token": "1", "runs": [0, 10**15]}]}),
        ("ack", {"leases": [{"topic": "orders", "partition": 0, "token": "1", "runs": [0, 60_000]}] * 2}),
        ("ack", {"leases": [{"topic": "orders", "partition": 0, "token": "1", "runs": [0, 1, 2]}]}),
        ("ack", {"receipts": ["orders:0:1:0:1"], "delay_ms": 5}),
        ("nack", {"receipts": ["orders:0:1:0:1"], "delay_ms": -5}),
        ("extend", {"receipts": ["orders:0:1:0:1"], "lease_ms": 0}),
    ],
)
def test_bad_input_is_refused(site: Site, call: str, body: object) -> None:
    queue = put(site, "a")
    queue.get()
    assert site.refusal(f"{GROUP}/{call}", body) == (400, "invalid_request")
    assert queue.stats().in_flight == 1


# Frames.


def test_a_whole_frame_comes_as_it_is_stored(site: Site) -> None:
    queue = put(site, *(str(n) for n in range(100)))
    [(lease, [frame])] = unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 100}, PACKED))
    [stored] = engine_of(site.engine).catalog.get("orders").topic.partitions[0].log(1).frames()
    assert bytes(frame) == bytes(stored)
    assert lease["runs"] == [0, 100]
    assert (lease["topic"], lease["partition"], lease["priority"], lease["attempt"]) == (
        "orders",
        0,
        "normal",
        1,
    )
    held = {name: lease[name] for name in ("topic", "partition", "priority", "token", "runs")}
    assert site.post(f"{GROUP}/ack", {"leases": [held]}) == {"results": [{"ok": True}]}
    assert queue.stats().backlog == 0


def test_a_part_of_a_frame_comes_alone(site: Site) -> None:
    put(site, *(str(n) for n in range(300)))
    site.ask("POST", f"{GROUP}/receive", {"max": 100}, PACKED)
    [(lease, [frame])] = unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 100}, PACKED))
    assert lease["runs"] == [100, 200]
    assert frame.header.base_offset == 100
    assert frame.values() == [b"%d" % n for n in range(100, 200)]


def test_most_of_a_frame_comes_as_it_is_stored(site: Site) -> None:
    queue = put(site, *(str(n) for n in range(10)))
    [(lease, [frame])] = unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 6}, PACKED))
    assert lease["runs"] == [0, 6]
    assert len(frame) == 10
    assert queue.stats().in_flight == 6


def test_messages_that_may_expire_are_looked_at_one_by_one(site: Site) -> None:
    queue = put(site, "a", "b")
    queue.put_many([quivermq.Message(b"gone", ttl=1), quivermq.Message(b"stays", ttl=100)])
    queue.put(b"c")
    site.clock.advance(5)
    answers = [unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 9}, PACKED)) for _ in range(3)]
    assert [lease["runs"] for [(lease, _)] in answers[:2]] == [[0, 2], [3, 5]]
    assert answers[2] == []


def test_frames_and_what_is_left_of_the_next(site: Site) -> None:
    queue = put(site, *(str(n) for n in range(70)))
    queue.put_many([quivermq.Message(b"%d" % n, key=b"k", headers={"n": b"1"}) for n in range(70, 140)])
    [(lease, [whole, part])] = unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 80}, PACKED))
    assert lease["runs"] == [0, 80]
    assert (whole.header.base_offset, len(whole)) == (0, 70)
    assert (part.header.base_offset, part.values()) == (70, [b"%d" % n for n in range(70, 80)])
    assert [record.headers for record in part.records()] == [{"n": b"1"}] * 10


def test_retries_come_with_their_attempt(site: Site) -> None:
    queue = put(site, *"abcde")
    taken = queue.get_many(5)
    queue.ack([taken[1], taken[3]])
    for delivery in (taken[4], taken[0], taken[2]):
        queue.nack(delivery, delay=0)
    queue.put(b"f")
    again, fresh = unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 9}, PACKED))
    assert (again[0]["attempt"], again[0]["runs"]) == (2, [0, 1, 2, 3, 4, 5])
    assert [(f.header.base_offset, f.values()) for f in again[1]] == [(0, [b"a"]), (2, [b"c"]), (4, [b"e"])]
    assert (fresh[0]["attempt"], fresh[0]["runs"]) == (1, [5, 6])


def test_what_of_a_lease_came_late_is_told_by_its_offsets(site: Site) -> None:
    queue = put(site, *"abcd")
    [(lease, _)] = unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 4}, PACKED))
    held = {name: lease[name] for name in ("topic", "partition", "priority", "token")}
    site.post(f"{GROUP}/ack", {"leases": [{**held, "runs": [1, 3]}]})
    [result] = site.post(f"{GROUP}/ack", {"leases": [{**held, "runs": [0, 4]}]})["results"]
    assert (result["ok"], result["refused"]) == (False, [1, 3])
    assert queue.stats().backlog == 0
    response = site.ask("POST", f"{GROUP}/ack", {"leases": [{**held, "runs": [0, 4]}]})
    assert response.status == 409
    assert json.loads(response.body)["results"][0]["refused"] == [0, 4]


def test_no_message_is_an_empty_answer(site: Site) -> None:
    put(site)
    assert unpacked(site.ask("POST", f"{GROUP}/receive", {}, PACKED)) == []


def test_large_messages_come_a_few_at_a_time(site: Site) -> None:
    queue = put(site)
    for _ in range(12):
        queue.put(b"x" * 1_000_000)
    assert len(received(site, max=100)) == 8
    assert len(received(site, max=100)) == 4


def test_large_messages_of_a_pattern_come_a_few_at_a_time(site: Site) -> None:
    site.engine.queue("events.a").put_many([b"small"] * 10)
    for _ in range(12):
        site.engine.queue("events.b").put(b"x" * 1_000_000)
    messages = site.post("/v1/topics/events.*/groups/g/receive", {"max": 100})["messages"]
    assert len(messages) == 8


# Waiting.


def waiting(site: Site, **asked: Any) -> "asyncio.Task[Response]":
    return asyncio.ensure_future(site.answer("POST", f"{GROUP}/receive", {"wait_ms": 60_000, **asked}))


async def until(condition: Any) -> None:
    """Let the loop and the threads go on until something has happened."""
    while not condition():
        await asyncio.sleep(0.001)


def waiter_count(site: Site) -> int:
    group = engine_of(site.engine).catalog.get("orders").groups.get("billing")
    return 0 if group is None else len(group.waiters.waiting)


def values(response: Response) -> list[str]:
    return [message["value"] for message in json.loads(response.body)["messages"]]


@durabilities
def test_who_waits_gets_what_comes(site: Site, durability: str) -> None:
    put(site, durability=durability)

    async def poll() -> list[str]:
        poll = waiting(site)
        await until(lambda: waiter_count(site))
        await site.answer("POST", "/v1/topics/orders/messages", b"hello")
        return values(await poll)

    assert site.run(poll()) == ["hello"]
    assert waiter_count(site) == 0


def test_who_waits_for_a_topic_gets_it_when_it_is_new(site: Site) -> None:
    async def poll() -> list[str]:
        poll = waiting(site)
        await until(lambda: engine_of(site.engine).catalog.waiters.waiting)
        await site.answer("POST", "/v1/topics/orders/messages", b"hello")
        return values(await poll)

    assert site.run(poll()) == ["hello"]


def test_of_many_who_wait_each_message_wakes_one(site: Site) -> None:
    put(site, durability="os")

    async def poll() -> tuple[list[list[str]], int]:
        polls = [waiting(site) for _ in range(10)]
        await until(lambda: waiter_count(site) == 10)
        for n in range(3):
            await site.answer("POST", "/v1/topics/orders/messages", b"%d" % n)
        await until(lambda: sum(poll.done() for poll in polls) == 3)
        still = waiter_count(site)
        site.broker.drain()
        return [values(await poll) for poll in polls], still

    answers, still = site.run(poll())
    assert sorted(answer[0] for answer in answers if answer) == ["0", "1", "2"]
    assert still == 7
    assert waiter_count(site) == 0


def test_who_goes_away_leaves_the_message_to_others(site: Site) -> None:
    queue = put(site, durability="os")

    async def poll() -> list[str]:
        gone, stays = waiting(site), None
        await until(lambda: waiter_count(site) == 1)
        stays = waiting(site)
        await until(lambda: waiter_count(site) == 2)
        queue.put(b"hello")
        # It was woken, and has gone before it could look.
        gone.cancel()
        return values(await stays)

    assert site.run(poll()) == ["hello"]
    assert queue.stats().in_flight == 1


def test_a_wait_is_over_after_its_time(site: Site) -> None:
    put(site)
    assert site.post(f"{GROUP}/receive", {"wait_ms": 1}) == {"messages": []}
    assert waiter_count(site) == 0


def test_no_wait_is_longer_than_the_broker_allows() -> None:
    with Site(receive.ROUTES, wait_ms_max=1) as site:
        put(site)
        assert site.post(f"{GROUP}/receive", {"wait_ms": 3_600_000}) == {"messages": []}


def test_who_waits_gets_what_falls_due(site: Site) -> None:
    queue = put(site, "retried")
    delivery = queue.get()
    assert delivery is not None
    delivery.nack(30)
    queue.put(b"delayed", delay=30)

    async def poll() -> list[str]:
        first, second = waiting(site), waiting(site)
        await until(lambda: waiter_count(site) == 2)
        # The clock of the queue goes on, but nobody puts anything.
        site.clock.advance(30)
        site.broker.part(polling.Polls)._events.update(
            {
                WatchedGroup(
                    engine_of(site.engine).catalog.get("orders"),
                    engine_of(site.engine).catalog.get("orders").groups["billing"],
                ): 0.0
            }
        )
        site.broker.part(polling.Polls)._look()
        return values(await first) + values(await second)

    assert sorted(site.run(poll())) == ["delayed", "retried"]


def test_a_broker_that_stops_lets_everybody_go(site: Site) -> None:
    put(site)

    async def poll() -> list[list[str]]:
        polls = [waiting(site) for _ in range(3)]
        await until(lambda: waiter_count(site) == 3)
        site.broker.drain()
        late = waiting(site)
        return [values(await poll) for poll in (*polls, late)]

    assert site.run(poll()) == [[], [], [], []]


def test_a_broker_that_stops_while_somebody_is_about_to_wait_lets_them_go(site: Site) -> None:
    put(site)
    looks: list[int] = []

    async def take() -> list[quivermq.Delivery]:
        looks.append(1)
        if len(looks) == 2:
            site.broker.drain()
        return []

    async def poll() -> list[quivermq.Delivery]:
        return await site.broker.part(polling.Polls).wait_for(billing(site), take, 3600)

    assert site.run(poll()) == []


def test_what_a_thread_took_for_a_client_that_has_gone_goes_back(site: Site) -> None:
    """At `fsync` a thread takes the messages, and does not notice that nobody waits for them any more."""
    put(site, "a", durability="fsync")
    begun, go_on, taken = threading.Event(), threading.Event(), threading.Event()
    receive_queue = site.broker.part(queues.Queues).get("orders", "billing")
    taking = receive_queue.take_batches

    def slow(*args: Any, **how: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        found = taking(*args, **how)
        taken.set()
        return found

    async def poll() -> list[str]:
        receive_queue.take_batches = slow  # type: ignore[method-assign]
        gone = waiting(site)
        await until(begun.is_set)
        gone.cancel()
        await asyncio.wait([gone])
        receive_queue.take_batches = taking  # type: ignore[method-assign]
        go_on.set()
        await until(taken.is_set)
        return values(await waiting(site))

    assert site.run(poll()) == ["a"]


RELEASED = {"results": [{"ok": True}]}


@durabilities
def test_what_was_received_with_a_token_is_given_back_by_it(site: Site, durability: str) -> None:
    queue = put(site, "a", durability=durability, partitions=3, attempts_max=2)
    queue.put_many([quivermq.Message(b"%d" % n, priority=p) for n in range(9) for p in ("high", "low")])
    other = received(site, max=2)
    kept = received(site, max=4, token="1f")
    assert {message["receipt"].rpartition(":")[2] for message in kept} == {"1f"}
    site.post(f"{GROUP}/ack", {"receipts": [kept[0]["receipt"]]})
    assert site.post(f"{GROUP}/release", {"tokens": ["1f"]}) == RELEASED
    assert queue.stats().in_flight == len(other)
    again = received(site, max=100, token="20")
    assert len(again) == 16
    assert {message["attempt"] for message in again} == {1}


def test_a_token_is_of_one_group_and_of_the_topics_that_were_asked(site: Site) -> None:
    queue = put(site, "a", "b")
    received(site, token="1")
    elsewhere = ("/v1/topics/orders/groups/others", "/v1/topics/other/groups/billing")
    for path in elsewhere:
        assert site.post(f"{path}/release", {"tokens": ["1"]}) == RELEASED
    assert queue.stats().in_flight == 1
    # Nor are those that were taken back there.
    assert len(received(site, token="1")) == 1
    assert site.post("/v1/topics/*/groups/billing/release", {"tokens": ["2", "1"]}) == {
        "results": [{"ok": True}, {"ok": True}]
    }
    assert queue.stats().in_flight == 0


def test_a_receive_that_is_taken_back_before_it_arrives_gets_nothing(site: Site) -> None:
    queue = put(site, "a")
    assert site.post(f"{GROUP}/release", {"tokens": ["1"]}) == RELEASED
    assert received(site, token="1") == []
    assert len(received(site, token="2")) == 1
    assert queue.stats().in_flight == 1


def test_only_so_many_that_were_taken_back_are_remembered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withdrawn, "_WITHDRAWN_MAX", 2)
    put(site, "a", "b")
    site.post(f"{GROUP}/release", {"tokens": ["1", "2", "3"]})
    assert received(site, token="2") == received(site, token="3") == []
    assert len(received(site, token="1")) == 1


def test_what_is_taken_while_it_is_taken_back_goes_back(site: Site) -> None:
    queue = put(site, "a", durability="os")
    at_work = site.broker.part(queues.Queues).get("orders", "billing")
    taking = at_work.take_batches

    def overtaken(*args: Any, **how: Any) -> Any:
        # Nothing is leased yet when somebody looks for it.
        site.broker.part(withdrawn.Withdrawn).take_back(at_work, 1)
        return taking(*args, **how)

    at_work.take_batches = overtaken  # type: ignore[method-assign]
    assert received(site, token="1") == []
    assert (queue.stats().in_flight, queue.stats().pending) == (0, 1)


def test_a_token_is_written_in_one_way(site: Site) -> None:
    put(site, "a")
    [(lease, _)] = unpacked(site.ask("POST", f"{GROUP}/receive", {}, PACKED))
    held = {"topic": "orders", "partition": 0, "token": "0" + lease["token"][:15], "runs": [0, 1]}
    assert site.refusal(f"{GROUP}/ack", {"leases": [held]}) == (400, "invalid_request")


def test_runs_that_overlap_and_all_come_late_are_a_conflict(site: Site) -> None:
    put(site, "a", "b")
    [(lease, _)] = unpacked(site.ask("POST", f"{GROUP}/receive", {"max": 2}, PACKED))
    held = {name: lease[name] for name in ("topic", "partition", "priority", "token")}
    site.post(f"{GROUP}/ack", {"leases": [{**held, "runs": [0, 2]}]})
    response = site.ask("POST", f"{GROUP}/ack", {"leases": [{**held, "runs": [0, 2, 1, 2]}]})
    assert response.status == 409


@pytest.mark.parametrize("call", ["nack", "reject"])
def test_dead_letters_are_never_written_on_the_event_loop(site: Site, call: str) -> None:
    queue = put(site, "a", durability="os", attempts_max=1)
    [message] = received(site)
    threads: list[str] = []
    at_work = site.broker.part(queues.Queues).get("orders", "billing")
    settle_it = at_work.settle

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return settle_it(*args)

    at_work.settle = noted  # type: ignore[method-assign, assignment]
    site.post(f"{GROUP}/{call}", {"receipts": [message["receipt"]]})
    assert [name.startswith("quiver-worker") for name in threads] == [True]
    assert len(queue.dead_letters()) == 1


def test_a_lease_that_is_over_is_looked_at_in_a_thread(site: Site) -> None:
    queue = put(site, "a", durability="os", attempts_max=1)
    assert not queues.may_wait(site.broker, billing(site)) or received(site)
    site.clock.advance(31)
    assert queues.may_wait(site.broker, billing(site))
    assert received(site) == []
    assert not queues.may_wait(site.broker, billing(site))
    assert len(queue.dead_letters()) == 1


def test_what_is_tried_again_from_the_archive_is_read_in_a_thread(site: Site) -> None:
    queue = put(site, "a", "b", durability="os", segment_messages=2)
    held = queue.get_many(2)
    archive_queue(engine_of(site.engine).path, ARCHIVE, "orders", disk=site.disk)
    site.engine.use_archive(ARCHIVE)
    log = engine_of(site.engine).catalog.get("orders").topic.partitions[0].log(1)
    log.retain(finished=2)
    put(site, "c")
    # It has come further than the archive, and goes back for one message.
    assert not queues.may_wait(site.broker, billing(site))
    held[0].nack(delay=0)
    assert queues.may_wait(site.broker, billing(site))
    assert [message["value"] for message in received(site, max=2)] == ["a", "c"]
    assert not queues.may_wait(site.broker, billing(site))


def test_leases_that_were_settled_send_nobody_to_a_thread(site: Site) -> None:
    put(site, "a", durability="os")
    [message] = received(site)
    site.post(f"{GROUP}/ack", {"receipts": [message["receipt"]]})
    site.clock.advance(31)
    assert not queues.may_wait(site.broker, billing(site))


def test_one_topic_in_trouble_keeps_nobody_else_from_what_is_due(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site)
    hosted = engine_of(site.engine).catalog.get("orders")
    site.engine.create_topic("bad")
    bad = engine_of(site.engine).catalog.get("bad")

    def fail(_: int) -> None:
        raise quivermq.InvalidRequest("in trouble")

    monkeypatch.setattr(bad, "release", fail)
    released: list[int] = []
    monkeypatch.setattr(hosted, "release", released.append)

    async def release() -> None:
        polls = site.broker.part(polling.Polls)
        polls._release([WatchedGroup(each, each.group("billing")) for each in (bad, hosted)])

    site.run(release())
    assert len(released) == 1


def test_what_is_only_looked_at_is_admitted_like_what_is_read(site: Site) -> None:
    request = Request("HEAD", "/healthz")
    app = App(site.broker, [*operations.ROUTES])
    assert app.admit(request) is None


def test_what_is_in_flight_says_who_has_it(site: Site) -> None:
    put(site, "a", "b", lease_ms=1000)
    agent = {"User-Agent": "worker (blue:17)"}
    [message] = site.post(f"{GROUP}/receive", {}, agent)["messages"]
    received(site)
    hosted = engine_of(site.engine).catalog.get("orders")
    cursor = hosted.groups["billing"].cursors[0]
    holders = [held.holder for _, held in cursor.in_flight(9, 0)]
    assert holders == ["worker (blue:17)", f"process {os.getpid()} on {os.uname().nodename}"]
    site.post(f"{GROUP}/extend", {"receipts": [message["receipt"]], "lease_ms": 5000})
    assert [held.holder for _, held in cursor.in_flight(9, 0)] == holders


def test_an_owner_is_an_agent_an_address_and_a_key() -> None:
    request = Request("POST", GROUP, headers={"user-agent": "curl/8"}, client="10.0.0.5")
    assert receive.holder_of(request) == "curl/8, 10.0.0.5"
    request.key = ApiKey("k-1", "read", (">",))
    assert receive.holder_of(request) == "curl/8, 10.0.0.5, key k-1"
    assert receive.holder_of(Request("POST", GROUP)) is None
