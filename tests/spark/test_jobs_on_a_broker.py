"""The same jobs over the network, beside a broker that has the directory open."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker import serving

import quivermq
from quivermq.spark import redrive, replay, run, sql


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path / "data") as broker:
        yield broker.url


def values(server: str, topic: str) -> list[bytes]:
    with quivermq.connect(server) as mq:
        queue = mq.queue(topic)
        found: list[Any] = []
        for partition in range(mq.topic(topic).partitions):
            found += queue.read(partition=partition, limit=1000)
    return sorted(message.value for message in found)


def test_sql_and_replay(spark: SparkSession, server: str) -> None:
    with quivermq.connect(server) as mq:
        mq.create_topic("orders", partitions=2)
        mq.queue("orders").put_many([b"%d" % number for number in range(10)])
    assert sql("SELECT sum(value) AS s FROM orders", server=server, spark=spark).collect()[0].s == 45
    done = replay(["orders"], "copy", server=server, where="value >= 4", spark=spark)
    assert done.read == 10
    assert values(server, "copy") == [b"%d" % number for number in range(4, 10)]
    assert replay(["orders"], "copy", server=server, where="value >= 4", spark=spark).was_finished


def test_redrive(spark: SparkSession, server: str) -> None:
    with quivermq.connect(server) as mq:
        orders = mq.queue("orders", group="billing")
        orders.put_many([b"a", b"b", b"c"])
        for message in orders.get_many(3):
            message.reject("timeout" if message.value != b"b" else "refused")
    done = redrive(server=server, where="reason = 'timeout'", batch_messages=1, spark=spark)
    assert (done.chosen, done.moved, done.batches) == (2, 2, 2)
    with quivermq.connect(server) as mq:
        orders = mq.queue("orders", group="billing")
        assert [letter.value for letter in orders.dead_letters()] == [b"b"]
        assert sorted(message.value for message in orders.get_many(9)) == [b"a", b"c"]
        entries = [json.loads(message.value) for message in mq.queue("quiver.audit").read(limit=99)]
    assert [entry["event"] for entry in entries] == ["begin", "batch", "moved", "batch", "moved", "end"]


PIPELINE = """
[pipeline]
name = "copy"
[[source]]
name = "orders"
topics = ["orders"]
format = "text"
[[sink]]
from = "orders"
topic = "copy"
"""


def test_run(spark: SparkSession, server: str, tmp_path: Path) -> None:
    with quivermq.connect(server) as mq:
        mq.queue("orders").put_many([b"x", b"y"])
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    for _ in range(2):
        run(tmp_path / "pipeline.toml", server=server, spark=spark)
        assert values(server, "copy") == [b"x", b"y"]
