"""Backups: stored while the queue is in use, and restored as it was."""

from pathlib import Path
from typing import Any

import pytest

import quivermq


@pytest.fixture
def target(tmp_path: Path) -> str:
    """Where backups of this queue go, as the settings of its broker say."""
    return str(tmp_path / "backups")


def test_what_was_acknowledged_is_restored(target: str, mq: Any, orders: Any, tmp_path: Path) -> None:
    orders.put_many([b"acked", b"in flight", b"pending"])
    orders.put(b"later", delay=600)
    orders.ack(orders.get())
    held = orders.get()
    first = mq.backup(target)
    orders.put(b"too late")
    second = mq.backup(target)
    assert (first.number, second.number) == (1, 2)
    assert second.taken_us > first.taken_us
    restored = quivermq.restore(target, tmp_path / "restored", at=first.taken_us)
    assert (restored.backup, restored.topics, restored.report.findings) == (first, 1, [])
    with quivermq.open(tmp_path / "restored") as again:
        queue: Any = again.queue("orders", "billing")
        assert queue.stats().delayed == 1
        # The lease holds there, too.
        assert queue.get().value == b"pending"
        assert queue.get() is None
        queue.ack([held.receipt])
        assert [each.value for each in queue.read()] == [b"acked", b"in flight", b"pending"]


def test_a_target_with_something_else_in_it_is_refused(target: str, mq: Any) -> None:
    Path(target).mkdir()
    (Path(target) / "photo").write_bytes(b"x")
    with pytest.raises(quivermq.Conflict, match="photo"):
        mq.backup(target)


def test_what_is_no_target_is_refused(mq: Any) -> None:
    for wrong in (7, None, b"x"):
        with pytest.raises(quivermq.InvalidRequest):
            mq.backup(wrong)
