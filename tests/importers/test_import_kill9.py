"""A real process that imports and is killed with -9, at one step after the other."""

from pathlib import Path

import pytest
from support.broker import serving
from support.doomed_import import killed_at
from support.ledgerq_files import Entry, Queue
from support.tinymq_files import ack, put, write_log

import quivermq
from quivermq.importers import import_queue

MESSAGES = 1000
STEPS = [
    ("begin_producer", 2, "after"),
    ("put_frame", 4, "before"),
    ("adopt", 2, "before"),
    ("put_frame", 9, "after"),
]


def ledgerq(path: Path) -> Path:
    queue = Queue(path / "jobs")
    for base in range(0, MESSAGES, 250):
        numbers = range(base, base + 250)
        made = [Entry(id=n + 1, payload=b"%d" % n, priority=(None, 1, 2)[n % 3]) for n in numbers]
        queue.write(made, base=base + 1)
    queue.metadata()
    queue.retries(*({"msg_id": n + 1, "retry_count": 2} for n in range(0, MESSAGES, 7)))
    return path / "jobs"


def tinymq(path: Path) -> Path:
    lines = [put(n, b"%d" % n, topic="jobs", retry_count=0 if n % 7 else 2) for n in range(MESSAGES)]
    write_log(path / "jobs.log", *lines, put(MESSAGES + 1), ack(MESSAGES + 1))
    return path


def check(mq: quivermq.Connection) -> None:
    jobs = mq.queue("jobs")
    taken = {int(m.value): m.attempt for m in jobs.get_many(2 * MESSAGES)}
    assert taken == {n: 1 if n % 7 else 3 for n in range(MESSAGES)}
    assert mq.stats().topics["jobs"].messages == MESSAGES
    for priority in ("high", "normal", "low"):
        lane = [int(m.value) for m in jobs.read(limit=MESSAGES, priority=priority)]
        assert lane == sorted(lane)


def test_a_directory_has_every_message_once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source, data = ledgerq(tmp_path_factory.mktemp("source")), tmp_path / "data"
    for step in STEPS:
        killed_at("ledgerq", source, str(data), *step)
    with quivermq.open(data) as mq:
        [told] = import_queue("ledgerq", source, mq, topic="jobs").topics
        assert told.already_there > 0
        assert told.imported + told.already_there == MESSAGES
        check(mq)


def test_a_broker_has_every_message_once(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = tinymq(tmp_path_factory.mktemp("source"))
    with serving(tmp_path / "data") as broker:
        for step in STEPS:
            killed_at("tinymq", source, broker.url, *step)
        with quivermq.connect(broker.url) as client:
            [told] = import_queue("tinymq", source, client, topic="jobs").topics
        assert told.already_there > 0
        assert told.imported + told.already_there == MESSAGES
        check(broker.engine)
