"""A broker of a cluster: what it answers itself, and where it sends the rest."""

import asyncio
import json
import re
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from support.etcd_gateway import EtcdGateway, served
from support.manual_clock import ManualClock
from support.queues import START_US

from quivermq.cluster.admin import ClusterAdmin
from quivermq.cluster.hosting import HostingFigures
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.node import ClusterNode
from quivermq.cluster.placement import shard_of
from quivermq.cluster.view import BrokerInfo, ClusterView, Owner
from quivermq.server.http import Request, Response
from quivermq.server.keys import KeyStore, create_key
from quivermq.server.shards.app import ClusterApp
from quivermq.server.shards.served import ServedShard
from quivermq.settings import ServerSettings
from quivermq.shared.counting import Requests
from quivermq.shared.etcd import EtcdClient, put_key
from quivermq.shared.figures import CacheFigures, CheckpointFigures, CommitFigures, SharedFigures

SHARDS = 4
TOPIC = "orders"
SHARD = shard_of(TOPIC, SHARDS)
OTHER = BrokerInfo("b", "http://127.0.0.1:1", "1")


class Node:
    """What a `ClusterNode` says."""

    id = "a"
    keys = ClusterKeys("test")
    is_fresh = True
    is_leaving = False
    lease_left_s = 4.5
    etcd: EtcdClient
    figures = HostingFigures()

    def __init__(self) -> None:
        self.ownerless: dict[int, float] = {}
        self.view = ClusterView(
            SHARDS,
            {"a": BrokerInfo("a", "http://a:1", "1"), "b": OTHER},
            {shard: Owner("b", 7) for shard in range(SHARDS)},
        )

    def ownerless_s(self) -> dict[int, float]:
        return self.ownerless


class Place:
    """A broker without sockets, which has no shard."""

    def __init__(self, path: Path, *, may_forward: bool = True, patience_s: float = 0) -> None:
        self.node = Node()
        self.app = ClusterApp(
            cast(ClusterNode, self.node),
            ServerSettings(),
            KeyStore(path),
            clock=ManualClock(START_US),
            rate=None,
            may_forward=may_forward,
            patience_s=patience_s,
        )

    def ask(self, method: str, path: str, body: bytes = b"", key: str = "") -> Response:
        path, _, query = path.partition("?")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        request = Request(method, path, query, headers, body)

        async def asked() -> Response:
            answer = self.app.answer(request)
            return await answer if isinstance(answer, Awaitable) else answer

        return asyncio.run(asked())

    def admit(self, path: str, key: str = "") -> Response | None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self.app.admit(Request("POST", path, "", headers))

    def error(self, method: str, path: str, **more: Any) -> tuple[int, str]:
        response = self.ask(method, path, **more)
        return response.status, json.loads(response.body)["error"]["code"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_shard_of_another_is_there(place: Place) -> None:
    response = place.ask("GET", f"/shards/{SHARD}/v1/topics/{TOPIC}?limit=1")
    assert response.status == 307
    assert response.headers is not None
    assert response.headers["Location"] == f"{OTHER.url}/shards/{SHARD}/v1/topics/{TOPIC}?limit=1"
    assert json.loads(response.body)["error"] == {
        "code": "not_owner",
        "message": f"shard {SHARD} is served at {OTHER.url}: ask there",
        "retryable": True,
        "url": OTHER.url,
    }


@pytest.mark.parametrize("owner", [None, Owner("a", 8), Owner("gone", 8)])
def test_a_shard_of_nobody_is_there_soon(place: Place, owner: Owner | None) -> None:
    owners = {} if owner is None else {SHARD: owner}
    place.node.view = ClusterView(SHARDS, place.node.view.brokers, owners)
    for path in (f"/shards/{SHARD}/v1/topics", f"/v1/topics/{TOPIC}"):
        response = place.ask("GET", path)
        assert response.status == 503
        assert response.headers == {"Retry-After": "1"}
        assert json.loads(response.body)["error"]["retryable"]


def url_of(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_a_call_at_the_root_waits_for_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First nobody has the shard, then one who is lost but whose lease goes on, then one who answers."""
    place = Place(tmp_path, patience_s=60)
    lost = place.node.view
    place.node.view = ClusterView(SHARDS, lost.brokers)
    forward = place.app.forwarder.forward

    async def asked() -> Response:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            live = ClusterView(
                SHARDS, {**lost.brokers, "b": BrokerInfo("b", url_of(server), "1")}, lost.owners
            )

            async def forward_and_move(url: str, path: str, request: Request) -> Response:
                response = await forward(url, path, request)
                place.node.view = live
                return response

            monkeypatch.setattr(place.app.forwarder, "forward", forward_and_move)
            answer = place.app.answer(Request("POST", f"/v1/topics/{TOPIC}/messages", body=b"{}"))
            assert isinstance(answer, Awaitable)
            task: asyncio.Future[Response] = asyncio.ensure_future(answer)
            await asyncio.sleep(0)
            assert not task.done()
            place.node.view = lost
            response = await task
            await place.app.forwarder.close()
            return response

    response = asyncio.run(asked())
    assert (response.status, response.body) == (200, b"{}")


@pytest.mark.parametrize(("was_sent", "code"), [(False, "unavailable"), (True, "unreachable")])
def test_what_an_owner_that_is_lost_may_have_done_is_told(place: Place, was_sent: bool, code: str) -> None:
    async def asked() -> Response:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        async with server:
            url = url_of(server) if was_sent else OTHER.url
            request = Request("POST", f"/v1/topics/{TOPIC}/messages", body=b"{}")
            return await place.app.forwarder.forward(url, request.path, request)

    response = asyncio.run(asked())
    assert (response.status, json.loads(response.body)["error"]["code"]) == (503, code)


def test_without_forwarding_clients_go_there_themselves(tmp_path: Path) -> None:
    place = Place(tmp_path, may_forward=False)
    response = place.ask("POST", f"/v1/topics/{TOPIC}/messages", b"{}")
    assert response.status == 307
    assert response.headers == {"Location": f"{OTHER.url}/shards/{SHARD}/v1/topics/{TOPIC}/messages"}
    moved = place.admit(f"/v1/topics/{TOPIC}/messages")
    assert moved is not None
    assert moved.status == 307


def test_what_does_not_answer_is_said(place: Place) -> None:
    assert place.error("GET", f"/v1/topics/{TOPIC}") == (503, "unavailable")
    assert place.error("GET", "/v1/topics") == (503, "unavailable")


def test_nothing_is_handed_on_for_who_may_not(tmp_path: Path) -> None:
    key = create_key(tmp_path, "read").text
    place = Place(tmp_path)
    put = f"/v1/topics/{TOPIC}/messages"
    assert place.error("POST", put, body=b"{}") == (401, "unauthenticated")
    assert place.error("POST", put, body=b"{}", key=key) == (403, "denied")
    assert place.error("GET", f"/v1/topics/{TOPIC}", key=key) == (503, "unavailable")
    assert place.error("GET", "/v1/cluster") == (401, "unauthenticated")
    assert place.ask("GET", "/v1/cluster", key=key).status == 200
    # Nor is a large body read for them.
    refused = place.admit(put, key)
    assert refused is not None
    assert refused.status == 403


def test_the_map_is_that_of_the_view(place: Place) -> None:
    shown = json.loads(place.ask("GET", "/v1/cluster").body)
    assert (shown["cluster"], shown["broker"], shown["shards"]) == ("test", "a", SHARDS)
    assert [owner["broker"] for owner in shown["owners"]] == ["b"] * SHARDS


def test_a_key_is_told_of_its_own_wide_topics_alone(tmp_path: Path) -> None:
    mine = create_key(tmp_path, "read", ["logs.*"]).text
    dead = create_key(tmp_path, "read", ["orders.dlq"]).text
    every = create_key(tmp_path, "read").text
    place = Place(tmp_path)
    there = place.node.view
    topics = {"logs.a": (0, 1), "orders": (2, 3)}
    place.node.view = ClusterView(SHARDS, there.brokers, there.owners, topics=topics)

    def shown(key: str) -> list[str]:
        return list(json.loads(place.ask("GET", "/v1/cluster", key=key).body)["topics"])

    assert shown(mine) == ["logs.a"]
    # It is found by the name of its origin.
    assert shown(dead) == ["orders"]
    assert shown(every) == ["logs.a", "orders"]


def test_ready_is_who_has_a_fresh_lease(place: Place) -> None:
    assert place.ask("GET", "/healthz").status == 200
    assert place.ask("GET", "/readyz").status == 200
    place.node.is_fresh = False
    assert place.error("GET", "/readyz") == (503, "unavailable")
    place.node.is_fresh, place.node.is_leaving = True, True
    assert place.error("GET", "/readyz") == (503, "unavailable")


def test_metrics_tell_of_the_cluster(place: Place) -> None:
    text = place.ask("GET", "/metrics").body.decode()
    assert "quiver_cluster_brokers 2\n" in text
    assert "quiver_cluster_lease_fresh 1\n" in text


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", "/shards/9/v1/topics", (404, "not_found")),
        ("GET", "/v1/nothing", (501, "not_implemented")),
        ("GET", f"/v1/topics/{TOPIC}/nothing", (404, "not_found")),
        ("POST", "/v1/topics", (400, "invalid_request")),
        ("POST", "/v1/cluster/topics", (400, "invalid_request")),
    ],
)
def test_what_is_not_there_is_said(place: Place, method: str, path: str, error: tuple[int, str]) -> None:
    assert place.error(method, path) == error


def test_the_reference_has_every_metric_of_a_cluster(place: Place) -> None:
    page = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
    text = place.ask("GET", "/metrics").body.decode()
    shown = set(re.findall(r"^(quiver_cluster_\w+) ", text, re.MULTILINE))
    assert shown == set(re.findall(r"`(quiver_cluster_\w+)`", page.read_text()))


def test_alerts_are_told_with_the_map(place: Place) -> None:
    assert json.loads(place.ask("GET", "/v1/cluster").body)["alerts"] == []
    place.node.ownerless = {1: 75.0}
    [alert] = json.loads(place.ask("GET", "/v1/cluster").body)["alerts"]
    assert (alert["alert"], alert["severity"]) == ("QuiverShardWithoutOwner", "page")
    assert alert["since"] == START_US - 75_000_000


class Opened:
    """A shard that is served, as far as its figures go."""

    def __init__(self, figures: SharedFigures) -> None:
        self.shard = self.disk = self
        self._figures = figures

    def figures(self) -> SharedFigures:
        return self._figures


def test_figures_are_those_of_all_who_answer(place: Place) -> None:
    figures = SharedFigures(
        epoch=7,
        failure=None,
        uncommitted_bytes=5,
        seconds=3600,
        commits=CommitFigures(chunks=10, bytes=1000),
        checkpoint=CheckpointFigures(),
        cache=CacheFigures(),
        requests={"put": Requests(1000), "get": Requests(0)},
    )
    place.app.served[2] = cast(ServedShard, Opened(figures))
    own = json.loads(place.ask("GET", "/v1/cluster/figures?own=true").body)
    shard = own["shards"]["2"]
    assert (shard["broker"], shard["epoch"], shard["commits"]["chunks"]) == ("a", 7, 10)
    assert shard["requests"]["put"] == {"count": 1000, "failed": 0, "bytes": 0}
    assert shard["estimated_dollars_a_month"] == pytest.approx(0.005 * 24 * 30)
    whole = json.loads(place.ask("GET", "/v1/cluster/figures").body)
    assert (whole["shards"], whole["silent"]) == (own["shards"], ["b"])


async def run_here(act: Any, *args: Any) -> Any:
    """In this thread, whose connections to etcd are closed at the end."""
    return act(*args)


def test_shards_are_moved_and_brokers_drained_by_who_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {scope: create_key(tmp_path, scope).text for scope in ("read", "admin")}
    narrow = create_key(tmp_path, "admin", topics=["orders"]).text
    place = Place(tmp_path)
    with served(EtcdGateway()) as url, closing(EtcdClient([url])) as etcd:
        place.node.etcd = etcd
        monkeypatch.setattr(place.app, "run", run_here)
        lease = etcd.grant_lease(60)
        etcd.transact([], [put_key(place.node.keys.broker("b"), OTHER.encoded(), lease=lease)])
        move, drain = "/v1/cluster/shards/2/move", "/v1/cluster/brokers/b/drain"
        for key in (keys["read"], narrow):
            assert place.error("POST", move, body=b'{"broker": "b"}', key=key) == (403, "denied")
            assert place.error("POST", drain, key=key) == (403, "denied")
        look = ClusterAdmin(etcd, place.node.keys, SHARDS).look
        assert (look().wishes, look().drains) == ({}, frozenset())
        moved = place.ask("POST", move, b'{"broker": "b"}', keys["admin"])
        assert json.loads(moved.body) == {"shard": 2, "broker": "b"}
        assert look().wishes == {2: "b"}
        assert json.loads(place.ask("POST", drain, key=keys["admin"]).body) == {
            "broker": "b",
            "draining": True,
        }
        assert look().drains == {"b"}
        assert place.ask("DELETE", drain, key=keys["admin"]).status == 200
        assert place.ask("POST", move, b'{"broker": "any"}', keys["admin"]).status == 200
        assert (look().wishes, look().drains) == ({}, frozenset())
        for path, body in (
            (move, b'{"broker": "c"}'),
            ("/v1/cluster/shards/4/move", b'{"broker": "b"}'),
            ("/v1/cluster/shards/x/move", b'{"broker": "b"}'),
            ("/v1/cluster/brokers/c/drain", b""),
        ):
            assert place.error("POST", path, body=body, key=keys["admin"]) == (404, "not_found")
