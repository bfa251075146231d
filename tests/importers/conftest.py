"""Queues to import into, opened in both ways there are, and sources that are only in memory."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving
from support.fake_source import Shelf

import quivermq
from quivermq import Settings, StorageSettings

SETTINGS = Settings(storage=StorageSettings(durability="os"))


@pytest.fixture(params=["open", "connect"])
def mq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty queue. Both types have the same methods, so mypy is told nothing."""
    with ExitStack() as stack:
        if request.param == "open":
            yield stack.enter_context(quivermq.open(tmp_path / "data", SETTINGS))
        else:
            broker = stack.enter_context(serving(tmp_path / "data", settings=SETTINGS))
            yield stack.enter_context(quivermq.connect(broker.url))


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch)
