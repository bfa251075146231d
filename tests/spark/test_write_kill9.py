"""A driver that is killed with -9 between any two steps of a streaming write, and started again."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.broker import Served, serving
from support.spark_lives import Driver

import quivermq

FILES, ROWS = 4, 120
KILLED = -signal.SIGKILL


def driver(directory: Path, **sink: str) -> Driver:
    """Of two batches, each with two tasks, each with some frames."""
    made = Driver(directory, files=2, topic="out", batchMessages="20", **sink)
    for name in range(FILES):
        made.add_file(f"{name}.txt", [f"{name} {row // 2}" for row in range(ROWS)])
    return made


EVERYTHING = Counter(b"%d %d" % (name, row // 2) for name in range(FILES) for row in range(ROWS))


def stored(mq: quivermq.Engine) -> Counter[bytes]:
    partitions = range(mq.topic("out").partitions)
    return Counter(m.value for p in partitions for m in mq.queue("out").read(p, limit=100_000))


class Steps:
    """Counts the calls of a broker, and lets somebody know before or after one of them."""

    def __init__(self, broker: Served) -> None:
        self._engine = broker.engine
        self._wanted: tuple[str, str, int] | None = None
        self._count = 0
        self._act: Callable[[], None] = lambda: None
        hosted = broker.engine.hosted_or_new("out")
        self._watch(broker.engine, "begin_producer")
        self._watch(hosted, "put_frame")

    def tell(self, act: Callable[[], None], name: str, when: str, number: int) -> None:
        self._act, self._wanted, self._count = act, (name, when, number), 0

    def _watch(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            if self._wanted is not None and self._wanted[0] == name:
                self._count += 1
            is_meant = self._wanted is not None and self._wanted[::2] == (name, self._count)
            if is_meant and self._wanted is not None and self._wanted[1] == "before":
                self._act()
            result = original(*args)
            if is_meant and self._wanted is not None and self._wanted[1] == "after":
                self._act()
            return result

        setattr(owner, name, call)


def test_a_driver_that_writes_to_a_broker(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as broker:
        broker.engine.create_topic("out", partitions=2)
        steps = Steps(broker)
        life = driver(tmp_path / "driver", server=broker.url)
        deaths = [
            ("begin_producer", "after", 1),
            ("put_frame", "after", 1),
            ("put_frame", "before", 3),
        ]
        for death in deaths:
            steps.tell(life.kill, *death)
            assert life.live() == KILLED, death
        steps.tell(lambda: None, "", "", 0)
        # A task that fails in the middle is run again, and has its rows in another order then.
        failed = tmp_path / "failed"
        assert life.live(fails_once=str(failed)) == 0
        assert failed.exists()
        assert stored(broker.engine) == EVERYTHING


def test_a_driver_that_writes_to_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        mq.create_topic("out", partitions=2)
    life = driver(tmp_path / "driver", path=str(path))
    lane = "p1/normal/00000000000000000000.log"
    deaths = [
        "sync_directory after 0",  # The rows of a task are staged, and nobody knows of them.
        "rename after 0.json",  # The batch is committed, and nothing of it is in its topic.
        f"append after {lane}",
        "rename before applied",
        "rename after applied",  # Everything is done, and Spark does not know.
    ]
    for death in deaths:
        assert life.live(death) == KILLED, death
    assert life.live() == 0
    with quivermq.open(path) as mq:
        assert stored(mq) == EVERYTHING
    [query] = (path / "spark").iterdir()
    assert [file.name for file in query.iterdir()] == ["applied"]
