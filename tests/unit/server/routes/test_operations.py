"""Looking after the broker over HTTP: figures, metrics, health, and the description of the calls."""

import re
from collections.abc import Iterator

import pytest
from support.site import Site
from unit.server.routes.conversation import get, status_and_code, told

import quivermq
from quivermq.engine import engine_of
from quivermq.errors import Denied
from quivermq.server.access import ApiKey
from quivermq.server.figures import look
from quivermq.server.history import Recorder
from quivermq.server.http import Request, answered
from quivermq.server.routes import all_routes, operations, publish


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(operations.ROUTES) as site:
        yield site


def with_key(path: str, *topics: str) -> Request:
    request = Request("GET", path)
    request.key = ApiKey("k", "read", topics)
    return request


def test_stats_are_those_of_the_engine(site: Site) -> None:
    site.engine.queue("orders").put(b"x")
    site.engine.queue("orders", "billing").get()
    found = get(site, "/v1/stats")
    assert found.pop("problems") == []
    topic = found["topics"]["orders"]
    assert [topic.pop(name) for name in ("published", "refused", "dropped")] == [1, 0, 0]
    billing = topic["groups"]["billing"]
    assert [billing.pop(name) for name in ("delivered", "acked", "oldest_unacked_ms")] == [1, 0, 0]
    assert [billing.pop(f"{name}") for name in ("dead_lettered", "leases_expired")] == [0, 0]
    assert billing.pop("oldest_unacked_at") == 0
    assert found == site.engine.stats().as_dict()


def test_who_asks_is_told_what_the_key_allows(site: Site) -> None:
    assert get(site, "/v1/key") == {"is_required": False, "id": None, "scope": "admin", "topics": [">"]}
    shown = told(operations.who(site.broker, with_key("/v1/key", "orders", "events.*")))
    assert shown == {"is_required": True, "id": "k", "scope": "read", "topics": ["orders", "events.*"]}


def test_a_key_counts_only_its_own_topics(site: Site) -> None:
    site.engine.queue("orders").put(b"x")
    site.engine.queue("events").put_many([b"y"] * 5)
    found = told(answered(site.run(operations.stats(site.broker, with_key("/v1/stats", "orders")))))
    assert (list(found["topics"]), found["messages"]) == (["orders"], 1)
    assert found["bytes"] == site.engine.stats().topics["orders"].bytes
    shown = site.run(operations.metrics(site.broker, with_key("/metrics", "orders"))).body
    assert b'topic="orders"' in shown
    assert b'topic="events"' not in shown
    assert b"quiver_disk_free_bytes" in shown


def test_the_queue_is_compacted(site: Site) -> None:
    site.engine.create_topic("orders", segment_messages=1, segments_max=1)
    site.engine.queue("orders").put(b"0")
    site.engine.queue("orders").put(b"1")
    compacted = told(site.ask("POST", "/v1/compact"))
    assert (compacted["segments"], compacted["messages"]) == (1, 1)
    assert compacted["bytes"] > 0


def test_the_queue_is_verified(site: Site) -> None:
    site.engine.queue("orders").put_many([b"0", b"1"])
    report = told(site.ask("POST", "/v1/verify"))
    assert (report["is_sound"], report["messages"], report["findings"]) == (True, 2, [])


def test_damage_is_told_by_its_place_below_the_directory(site: Site) -> None:
    site.engine.queue("orders").put(b"0" * 100)
    site.engine.queue("orders").put(b"1")
    name = "topics/orders/p0/normal/00000000000000000000.log"
    site.disk.flip(engine_of(site.engine).path / name, 150)
    report = told(site.ask("POST", "/v1/verify"))
    assert not report["is_sound"]
    assert [finding["path"] for finding in report["findings"]] == [name]


def test_metrics_come_in_the_format_of_prometheus(site: Site) -> None:
    site.engine.queue("orders").put(b"x", key=b"secret")
    response = site.ask("GET", "/metrics")
    assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.body.decode().splitlines()
    assert 'quiver_messages_published_total{topic="orders"} 1' in lines
    assert "# TYPE quiver_fsync_seconds histogram" in lines
    for line in lines:
        assert re.fullmatch(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+', line)
    assert "secret" not in response.body.decode()


def test_a_broker_is_healthy_as_long_as_it_answers(site: Site) -> None:
    site.broker.drain()
    assert get(site, "/healthz") == {"status": "ok"}


def test_a_broker_is_ready_until_it_drains(site: Site) -> None:
    assert get(site, "/readyz") == {"status": "ok"}
    site.broker.drain()
    assert status_and_code(site, "GET", "/readyz") == (503, "unavailable")


def test_a_broker_with_a_full_disk_is_not_ready(site: Site) -> None:
    site.disk.fill_after(1000)
    engine_of(site.engine).maintain()
    assert status_and_code(site, "GET", "/readyz") == (503, "unavailable")
    site.disk.fill_after(None)
    engine_of(site.engine).maintain()
    assert get(site, "/readyz") == {"status": "ok"}


def test_a_broker_with_a_log_that_takes_nothing_more_is_not_ready(site: Site) -> None:
    queue = site.engine.queue("orders")
    queue.put(b"x")
    site.disk.fail_sync("*/orders/*.log")
    # Nobody asked the broker for it: it was the background thread, say, that found out.
    with pytest.raises(quivermq.FsyncFailed):
        queue.put(b"y")
    response = site.ask("GET", "/readyz")
    assert (response.status, b"takes nothing any more" in response.body) == (503, True)
    assert b"orders" not in response.body


def test_a_disk_that_refuses_is_full_whatever_its_figures_say(site: Site) -> None:
    site.broker.note(quivermq.DiskFull(engine_of(site.engine).path, needed_bytes=5))
    assert status_and_code(site, "GET", "/readyz") == (503, "unavailable")
    site.clock.advance(10)
    assert get(site, "/readyz") == {"status": "ok"}


def test_readiness_tells_strangers_no_paths(site: Site) -> None:
    site.disk.fill_after(1000)
    engine_of(site.engine).maintain()
    assert str(engine_of(site.engine).path) not in site.ask("GET", "/readyz").body.decode()


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_broker_whose_disk_failed_to_sync_is_not_ready_and_says_so_once(
    is_alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    body: object = b"x" if is_alone else {"messages": [{"value": "x"}]}
    with Site([*operations.ROUTES, *publish.ROUTES]) as site:
        site.post("/v1/topics/orders/messages", body)
        site.disk.fail_sync("*.log")
        for _ in range(2):
            assert site.refusal("/v1/topics/orders/messages", body) == (500, "fsync_failed")
        assert status_and_code(site, "GET", "/readyz") == (503, "unavailable")
    told_by_log = [record for record in caplog.records if record.name == "quivermq.server.broker"]
    assert ["cannot sync" in record.getMessage() for record in told_by_log] == [True]


def test_the_document_describes_every_call(site: Site) -> None:
    document = get(site, "/openapi.json")
    described = {(method.upper(), path) for path, calls in document["paths"].items() for method in calls}
    assert described == {(route.method, route.path) for route in all_routes()}


def test_the_history_is_told_by_topic_and_group_and_of_the_topics_of_a_key(site: Site) -> None:
    site.engine.queue("orders", "billing").put(b"x")
    site.engine.queue("orders", "billing").get()

    async def record() -> None:
        site.broker.part(Recorder).see(look(site.broker))

    site.run(record())
    whole = get(site, "/v1/history")
    assert len(whole["times"]) == 1
    assert {"published", "lag", "fsync_p99", "publish_p99", "age_p99"} <= whole["series"].keys()
    assert "published" in get(site, "/v1/history?topic=orders")["series"]
    assert get(site, "/v1/history?topic=orders&group=billing")["series"].keys() == {
        "delivered",
        "acked",
        "lag",
        "in_flight",
        "age_p99",
    }
    assert status_and_code(site, "GET", "/v1/history?topic=nobody") == (404, "topic_not_found")
    assert status_and_code(site, "GET", "/v1/history?topic=orders&group=x") == (404, "group_not_found")
    assert status_and_code(site, "GET", "/v1/history?group=x") == (400, "invalid_request")
    request = with_key("/v1/history", "events")
    assert "age_p99" not in told(answered(site.run(operations.history(site.broker, request))))["series"]
    request = Request("GET", "/v1/history", "topic=orders")
    request.key = ApiKey("k", "read", ("events",))
    with pytest.raises(Denied):
        site.run(operations.history(site.broker, request))
