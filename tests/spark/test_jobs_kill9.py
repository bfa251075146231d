"""kill -9 of the driver of a job, with its Java, in the middle of its work; then it is asked for again."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from support.broker import serving
from support.spark_deaths import Death
from support.spark_doors import Doors
from support.spark_lives import Lives, Work

import quivermq
from quivermq.spark import redrive, replay, run
from quivermq.spark.jobs.redrive import AUDIT_TOPIC

LETTERS = 10


def pipeline(*words: str | Path) -> Work:
    """A command, as somebody types it."""
    return "quiver", {"words": ["pipeline", *map(str, words)]}


def bury(mq: Any) -> None:
    queue = mq.queue("orders")
    queue.put_many([b"%d" % number for number in range(LETTERS)])
    for message in queue.get_many(LETTERS):
        message.reject("timeout")


def check_each_is_in_one_place(mq: Any, *, lying: int) -> None:
    """Each message is where it came from once more, or among the dead letters."""
    found = Counter(message.value for message in mq.queue("orders").read(limit=1000))
    dead = Counter(letter.value for letter in mq.queue("orders").dead_letters())
    assert dead.total() == lying
    assert found + dead == Counter({b"%d" % number: 2 for number in range(LETTERS)})


def audited(mq: Any) -> list[str]:
    return [json.loads(message.value)["event"] for message in mq.queue(AUDIT_TOPIC).read(limit=100)]


def test_redrive_over_a_directory(
    lives: Lives, spark: SparkSession, connect_server: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with quivermq.open(data) as mq:
        bury(mq)
    work = pipeline("redrive", "orders", "--batch", "2", "--data", data)
    appended = "*/topics/orders/p0/normal/*.log"
    # The move is written down, and nothing of it has happened.
    lives.die(work, at=Death("append", "before", appended), server=connect_server)
    with quivermq.open(data) as mq:
        check_each_is_in_one_place(mq, lying=10)
    # One batch is back. The second has arrived, and its messages are still among the dead letters.
    lives.die(work, at=Death("append", "after", appended, 2), server=connect_server)
    with quivermq.open(data) as mq:
        check_each_is_in_one_place(mq, lying=6)
    assert redrive(["orders"], path=data, spark=spark).moved == 6
    with quivermq.open(data) as mq:
        check_each_is_in_one_place(mq, lying=0)
        begun, moved = ["begin", "batch"], ["batch", "moved"]
        assert audited(mq) == [*begun, *begun, "moved", "batch", "begin", *moved, "end"]
        back = mq.queue("orders").get_many(2 * LETTERS)
        assert sorted(message.value for message in back) == [b"%d" % number for number in range(LETTERS)]


def test_redrive_over_a_broker(
    lives: Lives, spark: SparkSession, connect_server: str, tmp_path: Path
) -> None:
    with serving(tmp_path / "data") as broker, Doors(broker.engine, lives.kill) as doors:
        bury(broker.engine)
        # One batch is back, and the second as well, but nobody is told so.
        door = doors.open(r"POST /v1/topics/[^/]+/redrive", "after", 2)
        work = pipeline("redrive", "orders", "--batch", "3", "--server", door.url)
        lives.die(work, at=door, server=connect_server)
        check_each_is_in_one_place(broker.engine, lying=4)
        assert redrive(["orders"], server=broker.url, spark=spark).moved == 4
        check_each_is_in_one_place(broker.engine, lying=0)
        assert audited(broker.engine)[:4] == ["begin", "batch", "moved", "batch"]


def test_replay(lives: Lives, spark: SparkSession, tmp_path: Path) -> None:
    data, values = tmp_path / "data", [b"%d" % number for number in range(250)]
    with quivermq.open(data) as mq:
        mq.create_topic("many", partitions=2)
        mq.queue("many").put_many(values)
    work = pipeline("replay", "many", "--to", "out", "--data", data, "--rate", "100")
    lives.die(work, at=Death("append", "after", "*/topics/out/p0/normal/*.log", 5))
    lives.wait_for_orphans()
    with quivermq.open(data) as mq:
        assert len(mq.queue("out").read(limit=1000)) == 50
    # It had a rate, so one task wrote: the batch that was interrupted is not cut into others.
    replay(["many"], "out", path=str(data), spark=spark)
    with quivermq.open(data) as mq:
        assert Counter(m.value for m in mq.queue("out").read(limit=1000)) == Counter(values)


PIPELINE = """\
[pipeline]
name = "both"
data = "data"

[[source]]
name = "orders"
topics = ["orders"]
format = "json"
schema = "id bigint"
messages_per_trigger_max = 20

[[step]]
name = "noticed"
python = "steps.py:noticed"

[[sink]]
from = "orders"
topic = "out"

[[sink]]
from = "noticed"
parquet = "table"
"""

# A call of the disk at which a task can be told to die.
STEPS = """\
from pathlib import Path
from quivermq.disk import SystemDisk

def noticed(orders):
    def look(batches):
        for batch in batches:
            for order in batch.column("id").to_pylist():
                SystemDisk().exists(Path(f"order-{order}"))
            yield batch
    return orders.mapInArrow(look, orders.schema)
"""


def put_orders(path: Path, orders: range) -> None:
    with quivermq.open(path) as mq:
        queue = mq.queue("orders")
        for order in orders:
            queue.put(json.dumps({"id": order}).encode(), partition=order % 2)


def test_run_with_a_topic_and_a_table(
    lives: Lives, spark: SparkSession, tmp_path: Path, is_campaign: bool
) -> None:
    file, data = tmp_path / "pipeline.toml", tmp_path / "data"
    file.write_text(PIPELINE)
    (tmp_path / "steps.py").write_text(STEPS)
    with quivermq.open(data) as mq:
        mq.create_topic("orders", partitions=2)
    put_orders(data, range(40))
    # The table has the first batch, and a part of the second one, which nobody has committed.
    lives.die(pipeline("run", file), at=Death("exists", "before", "order-25"))
    lives.wait_for_orphans()
    # The topic may have had everything by then, so there is more.
    put_orders(data, range(40, 60))
    if is_campaign:
        # Its batch is committed, and of the two tasks' frames one is there.
        lives.die(pipeline("run", file), at=Death("append", "after", "*/topics/out/p0/normal/*.log"))
        lives.wait_for_orphans()
    run(file, spark=spark)
    with quivermq.open(data) as mq:
        found = [json.loads(message.value)["id"] for message in mq.queue("out").read(limit=1000)]
    assert sorted(found) == list(range(60))
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.id for row in rows) == list(range(60))
