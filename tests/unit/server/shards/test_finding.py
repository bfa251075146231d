"""Which shard a request is for."""

import json

import pytest

from quivermq.cluster.placement import shard_of
from quivermq.cluster.view import ClusterView
from quivermq.errors import InvalidRequest, NotFound
from quivermq.server.http import Request, Response
from quivermq.server.shards.finding import (
    ShardPath,
    path_there,
    quoted_location,
    shard_by_topic,
    shard_in_path,
)

VIEW = ClusterView(16, topics={"wide": (1, 2)})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/shards/3/v1/topics", ShardPath(3, "/v1/topics")),
        ("/shards/0/", ShardPath(0, "/")),
        ("/shards/15", ShardPath(15, "/")),
        ("/shards/3/v1/topics/a%2Fb", ShardPath(3, "/v1/topics/a%2Fb")),
    ],
)
def test_a_path_names_a_shard(path: str, found: ShardPath) -> None:
    assert shard_in_path(path, 16) == found


@pytest.mark.parametrize(
    "path", ["/shards/16/x", "/shards/-1", "/shards/", "/shards/x", "/shards/99999/x", "/shards/\u0663/x"]
)
def test_a_shard_that_is_not_there_is_not_found(path: str) -> None:
    with pytest.raises(NotFound, match="the cluster has 16"):
        shard_in_path(path, 16)


@pytest.mark.parametrize(
    ("method", "path", "body", "topic"),
    [
        ("GET", "/v1/topics/orders", b"", "orders"),
        ("POST", "/v1/topics/orders.dlq/groups/g/receive", b"", "orders"),
        ("POST", "/v1/topics", json.dumps({"name": "orders"}).encode(), "orders"),
        ("POST", "/v1/topics/a%2Eb/messages", b"{}", "a.b"),
    ],
)
def test_a_request_goes_to_the_shard_of_its_topic(method: str, path: str, body: bytes, topic: str) -> None:
    found = shard_by_topic(Request(method, path, body=body), VIEW)
    assert found == ShardPath(shard_of(topic, 16), path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v1/events", "of a whole cluster"),
        ("/v1/groups/g/join", "of a whole cluster"),
        ("/v1/topics/orders.*/groups/g/receive", "a pattern"),
        ("/v1/topics/wide/messages", "/shards/1, /shards/2"),
        ("/v1/topics/wide.dlq", "/shards/1, /shards/2"),
    ],
)
def test_what_concerns_several_shards_is_not_there_yet(path: str, reason: str) -> None:
    found = shard_by_topic(Request("POST", path), VIEW)
    assert isinstance(found, Response)
    assert found.status == 501
    assert reason in json.loads(found.body)["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"name": 1}', b"\xff", b"[" * 100_000])
def test_a_topic_without_a_name_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="needs a name"):
        shard_by_topic(Request("POST", "/v1/topics", body=body), VIEW)


def test_the_way_to_another_broker() -> None:
    found = ShardPath(3, "/v1/topics/a%2Fb")
    assert path_there(found) == "/shards/3/v1/topics/a%2Fb"
    request = Request("GET", found.path, "limit=1&after=x%20y")
    assert (
        quoted_location("http://b:1", request, found)
        == "http://b:1/shards/3/v1/topics/a%2Fb?limit=1&after=x%20y"
    )
    odd = ShardPath(3, "/a\r\nb")
    assert "\n" not in quoted_location("http://b:1", Request("GET", odd.path), odd)
