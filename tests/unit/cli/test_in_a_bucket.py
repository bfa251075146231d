"""Commands that look at a queue in a bucket, beside its owner, and those that check and mend it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_inside import quiver
from support.shared import LIMITS
from support.stores import MemoryBuckets

import quivermq
from quivermq.engine import open_engine
from quivermq.shared import open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore

URL = "s3://bucket/queue"
DATA = ("--data", URL)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    buckets = MemoryBuckets()
    buckets.install(monkeypatch)
    monkeypatch.setattr("quivermq.engine.bucket_repair.BucketStore", buckets.opened)
    return buckets.at(URL)


@pytest.fixture
def orders(store: MemoryStore, tmp_path: Path) -> Iterator[quivermq.Queue]:
    disk = open_shared(ConditionalChunks(store), tmp_path / "cache", limits=LIMITS)
    with quivermq.Connection(open_engine(disk.root, disk=disk)) as mq:
        yield mq.queue("orders")
    disk.abandon()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["stats"], "orders"),
        (["topic", "list"], "orders"),
        (["topic", "show", "orders"], "orders"),
        (["read", "orders"], "hello"),
        (["tail", "orders", "-n", "2", "--count", "2"], "hello"),
        (["export", "orders"], "hello"),
        (["verify"], "2 messages"),
    ],
)
def test_looking_disturbs_nobody(
    store: MemoryStore, orders: quivermq.Queue, command: list[str], told: str
) -> None:
    orders.put_many([b"hello", b"world"])
    before = dict(store.objects)
    ran = quiver(*command, *DATA)
    assert (ran.code, ran.err.replace("\n", "")[:5] != "error") == (0, True), ran
    assert told in ran.text
    assert store.objects == before
    orders.put(b"the owner is who it was")


def test_the_environment_may_name_a_bucket(orders: quivermq.Queue) -> None:
    orders.put(b"hello")
    assert quiver("topic", "list", env={"QUIVER_DATA": URL}).code == 0


def test_where_there_is_no_queue(store: MemoryStore) -> None:
    for command in (["verify"], ["stats"], ["tail", "orders"]):
        ran = quiver(*command, *DATA)
        assert (ran.code, f"there is no queue in {URL}" in ran.err) == (3, True), ran
    assert not store.objects
    ran = quiver("verify", "--data", "hdfs://cluster/x")
    assert (ran.code, "no address of an object store" in ran.err) == (2, True)


def test_a_bucket_is_checked_and_mended(store: MemoryStore, orders: quivermq.Queue, tmp_path: Path) -> None:
    for number in range(4):
        orders.put(b"%d" % number)
    name = sorted(each for each in store.objects if each.startswith("chunk/"))[-2]
    size = len(store.objects[name])
    store.objects[name] = bytes(size)
    ran = quiver("verify", "--json", *DATA)
    assert ran.code == 6
    (finding,) = json.loads(ran.out)["findings"]
    assert finding == {
        "kind": "damage",
        "path": name,
        "position": 0,
        "end": size,
        "offsets": [0, None],
        "reason": "it does not begin as a chunk does; 1 chunks behind it cannot be used",
    }
    repair = ("repair", *DATA, "--json")
    env = {"QUIVER_BUCKET__CACHE": str(tmp_path / "repair")}
    before = dict(store.objects)
    assert quiver(*repair, env=env).code == 2
    assert store.objects == before
    ran = quiver(*repair, "--yes", env=env)
    assert ran.code == 0, ran
    document = json.loads(ran.out)
    number = int(name.removeprefix("chunk/"))
    lost = document["objects"]["chunks"]
    assert [each["number"] for each in lost] == [number, number + 1]
    assert lost[0]["first_us"] is None
    assert lost[1]["first_us"] > 0
    assert store.objects[lost[0]["side_object"]] == bytes(size)
    assert document["objects"]["parts"] == document["repair"]["mended"] == []
    assert quiver("verify", *DATA).code == 0
    ran = quiver("read", "orders", "--json", *DATA)
    assert [json.loads(line)["value"] for line in ran.text.splitlines()] == ["0", "1"]
    # Nothing is left to mend: nobody is asked, and nothing done.
    before = dict(store.objects)
    assert quiver("repair", *DATA, env=env).code == 0
    assert store.objects == before


def test_what_was_lost_is_told_in_words(store: MemoryStore, orders: quivermq.Queue, tmp_path: Path) -> None:
    orders.put(b"x")
    name = max(each for each in store.objects if each.startswith("chunk/"))
    store.objects[name] = b"nonsense"
    ran = quiver("repair", "--yes", *DATA, env={"QUIVER_BUCKET__CACHE": str(tmp_path / "repair")})
    assert ran.code == 0, ran
    assert "1 chunk lost, 0 parts mended: the queue goes on from checkpoint" in ran.text
    assert "quarantine/" in ran.text


def test_a_bucket_that_is_looked_at_tells_nothing_of_free_space(orders: quivermq.Queue) -> None:
    orders.put(b"tea")
    told = quiver("stats", *DATA).text
    assert "1 topic, 1 message, " in told
    assert " free" not in told
