"""A cluster of two workers reads from a broker and writes to it while one of its executors is killed."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from support.broker import serving
from support.spark_cluster import cluster
from support.spark_lives import Driver

import quivermq

PARTITIONS, ROWS = 4, 2000


def test_a_cluster_moves_messages_from_topic_to_topic(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as broker, cluster(tmp_path / "cluster", workers=2) as running:
        mq = broker.engine
        mq.create_topic("in", partitions=PARTITIONS)
        mq.create_topic("out", partitions=PARTITIONS)
        values = [b"%d" % (row // 2) for row in range(ROWS)]
        mq.queue("in").put_many([quivermq.Message(value, key=value) for value in values])

        killed: list[int] = []
        hosted = mq.hosted("out")
        put_frame = hosted.put_frame

        def put_and_kill(*args: Any) -> Any:
            result = put_frame(*args)
            if not killed:
                # The frame is stored, and whoever sent it will perhaps never know.
                killed.append(running.executors(worker=0)[0])
                os.kill(killed[0], signal.SIGKILL)
            return result

        setattr(hosted, "put_frame", put_and_kill)  # noqa: B010 - mypy takes no assignment to a method.
        life = Driver(tmp_path / "driver", files=1, server=broker.url, topic="out", batchMessages="50")
        source = {"server": broker.url, "subscribe": "in", "startingOffsets": "earliest"}
        assert life.live(master=running.master, source=source) == 0
        assert killed
        found = Counter(
            message.value
            for partition in range(PARTITIONS)
            for message in mq.queue("out").read(partition, limit=ROWS * 2)
        )
        assert found == Counter(values)
