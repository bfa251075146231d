"""What the tests of the engine share: a queue in memory, and one on the disk of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import Store

import quivermq


@pytest.fixture
def store(faulty_disk: FaultyDisk) -> Iterator[Store]:
    """A queue on a disk in memory; looked at byte by byte when the test ends."""
    store = Store(faulty_disk)
    yield store
    store.close()


@pytest.fixture
def mq(tmp_path: Path) -> Iterator[quivermq.Connection]:
    """A queue with a real clock, a real disk and its own thread."""
    with quivermq.open(tmp_path / "data") as engine:
        yield engine
