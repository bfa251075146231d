"""Directories inside of a source that nobody may look into: told, and the rest is imported."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from quivermq.disk import SystemDisk
from quivermq.errors import StorageFailed
from quivermq.importers import ImportSummary, import_queue

FIXTURES = Path(__file__).parents[1] / "fixtures"
GO_GROUP = "g1794773335"


class BlindDisk(SystemDisk):
    """Where nothing can be seen below some directories. Real permissions would not stop everybody."""

    def __init__(self, *hidden: Path) -> None:
        self._hidden = set(hidden)

    def _check(self, path: Path, *, is_list: bool = False) -> None:
        above = {path, *path.parents} if is_list else set(path.parents)
        if above & self._hidden:
            raise StorageFailed(f"cannot look at {path}: Permission denied", path=path)

    def names(self, directory: Path) -> list[str]:
        self._check(directory, is_list=True)
        return super().names(directory)

    def is_directory(self, path: Path) -> bool:
        self._check(path)
        return super().is_directory(path)

    def exists(self, path: Path) -> bool:
        self._check(path)
        return super().exists(path)

    def open(self, path: Path, *, writable: bool = False) -> Any:
        self._check(path)
        return super().open(path, writable=writable)


def imported(kind: str, source: Path, hidden: Path) -> ImportSummary:
    return import_queue(kind, source, None, topic="t", dry_run=True, disk=BlindDisk(hidden), all=True)


@pytest.mark.parametrize(
    ("kind", "source", "part", "messages"),
    [
        ("ledgerq", "ledgerq/dlq", "deadletter", 5),
        ("ledgerq", "ledgerq/dlq/queue", "../deadletter", 5),
        ("fluxmq", "fluxmq/adapter", "queues/events", 20),
        ("fluxmq", "fluxmq/adapter", "queues/orders/segments", 0),
        ("fluxmq", "fluxmq/adapter", "queues/orders/consumers", 20),
        ("fluxmq", "fluxmq/adapter", "queues/orders/consumers/workers", 20),
        ("fluxmq", "fluxmq/adapter", "groups", 20),
        ("goqueue", "goqueue/broker_data_dir", "logs/cp1794773335", 27),
        ("goqueue", "goqueue/broker_data_dir", "logs/cp1794773335/0", 27),
        ("goqueue", "goqueue/broker_data_dir", "offsets", 29),
        ("goqueue", "goqueue/broker_data_dir", f"offsets/{GO_GROUP}", 29),
    ],
)
def test_a_directory_that_cannot_be_looked_into_is_told_and_costs_no_other(
    kind: str, source: str, part: str, messages: int
) -> None:
    path = FIXTURES / source
    hidden = (path / part).resolve()
    told = imported(kind, path, hidden)
    assert sum(topic.imported for topic in told.topics) == messages
    assert told.damages > 0
    assert all(hidden in (each.path, *each.path.parents) for each in told.findings if each.is_damage)


def test_what_lies_beside_a_queue_and_is_not_its_own_is_left_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    parent = tmp_path_factory.mktemp("source")
    shutil.copytree(FIXTURES / "ledgerq" / "plain" / "queue", parent / "queue")
    (parent / "private").mkdir()
    assert imported("ledgerq", parent / "queue", parent / "private").damages == 0
    assert imported("ledgerq", parent, parent / "private").damages == 1
