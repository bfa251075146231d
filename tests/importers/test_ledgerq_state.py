"""What LedgerQ keeps beside its segments, whole and damaged."""

from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from support.ledgerq_files import Entry, Queue, queue_of
from support.sources import DISK, problems

from quivermq.importers.ledgerq import open_source
from quivermq.importers.model import SeenId

HASH = sha256(b"order-1").hexdigest()
SEEN = {"dedup_id": HASH, "message_id": 2, "offset": 64, "enqueued_at": 1, "expires_at": 2_000_000_999}


@pytest.fixture
def queue(tmp_path_factory: pytest.TempPathFactory) -> Queue:
    path = tmp_path_factory.mktemp("source") / "queue"
    return queue_of(path, Entry(id=1), Entry(id=2), Entry(id=3), read_id=2)


def consumed(queue: Queue) -> tuple[list[bool], list[str]]:
    source = open_source(queue.path, DISK)
    items = list(source.topics[0].items())
    return [item.is_consumed for item in items], problems(source.findings)


def test_what_lies_before_the_read_position_is_consumed(queue: Queue) -> None:
    assert consumed(queue) == ([True, False, False], [])
    queue.metadata(read_id=4)
    assert consumed(queue) == ([True, True, True], [])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pack("<IQQI", 1, 4, 2, 0)[:-1],
        pack("<IQQI", 1, 4, 2, 0) + b"x",
        pack("<IQQI", 2, 4, 2, 0),
        pack("<IQQI", 1, 4, 0, 0),
        pack("<IQQI", 1, 2, 4, 0),
        None,
    ],
)
def test_without_a_read_position_nothing_counts_as_consumed_and_that_is_told(
    queue: Queue, data: bytes | None
) -> None:
    path = queue.path / "metadata.dat"
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    states, told = consumed(queue)
    assert states == [False, False, False]
    assert len(told) == 1
    assert told[0].endswith("nobody knows what was consumed, so nothing counts as consumed")


def test_retries_count_on_and_tell_why(queue: Queue) -> None:
    queue.retries(
        {"msg_id": 2, "retry_count": 2, "last_failure": "2026-11-15T19:48:28Z", "failure_reason": "boom"},
        {"msg_id": 3, "retry_count": 1},
        {"msg_id": 9, "retry_count": 1},
    )
    items = list(open_source(queue.path, DISK).topics[0].items())
    assert [(item.attempts, item.reason) for item in items] == [(0, None), (2, "boom"), (1, None)]


def test_a_message_that_was_given_back_and_is_behind_is_told_of(queue: Queue) -> None:
    queue.retries({"msg_id": 1, "retry_count": 2})
    source = open_source(queue.path, DISK)
    first = next(iter(list(source.topics[0].items())))
    assert (first.is_consumed, first.attempts) == (True, 2)
    [told] = problems(source.findings, is_damage=False)
    assert "given back" in told


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"version":2,"entries":[]}',
        b'{"version":1,"entries":7}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("name", [".retry_state.json", ".dedup_state.json"])
def test_state_that_cannot_be_read_costs_no_message(queue: Queue, name: str, document: bytes) -> None:
    (queue.path / name).write_bytes(document)
    source = open_source(queue.path, DISK)
    topic = source.topics[0]
    assert len(list(topic.items())) == 3
    assert topic.seen_ids == []
    assert len(problems(source.findings)) == 1


@pytest.mark.parametrize(
    "entry",
    [7, {}, {"msg_id": "1", "retry_count": 1}, {"msg_id": 1, "retry_count": -1}, {"msg_id": True}],
)
def test_an_entry_that_makes_no_sense_costs_only_itself(queue: Queue, entry: Any) -> None:
    queue.retries(entry, {"msg_id": 2, "retry_count": 4})
    source = open_source(queue.path, DISK)
    assert [item.attempts for item in source.topics[0].items()] == [0, 4, 0]
    assert len(problems(source.findings)) == 1


def test_deduplication_ids_are_known_by_their_hash(queue: Queue) -> None:
    queue.dedup(SEEN, {**SEEN, "dedup_id": "no hash"}, {**SEEN, "expires_at": None})
    source = open_source(queue.path, DISK)
    assert source.topics[0].seen_ids == [SeenId(f"sha256:{HASH}", 2_000_000, 2)]
    assert len(problems(source.findings)) == 2


def test_a_segment_that_cannot_be_read_costs_no_other(queue: Queue, tmp_path: Path) -> None:
    queue.write([Entry(id=4)], base=11)
    (queue.path / f"{21:020d}.log").symlink_to(queue.path / f"{1:020d}.log")
    (queue.path / f"{31:020d}.log").mkdir()
    queue.metadata()
    source = open_source(queue.path, DISK)
    assert [item.id for item in source.topics[0].items()] == ["1", "2", "3", "4"]
    assert [finding.path.name for finding in source.findings.kept] == [f"{n:020d}.log" for n in (21, 31)]
    assert all("cannot be read" in problem for problem in problems(source.findings))
