"""One queue, opened in every way there is: each test of the contract runs with all of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from contract.awaited import Loop
from support.broker import serving

import quivermq
from quivermq import ServerSettings, Settings, StorageSettings, aio

WAYS = ("open", "bucket", "connect", "aio.open", "aio.connect")


class Ways:
    """Opens a queue in one way; everything is closed when the test ends."""

    def __init__(self, way: str, path: Path, bucket: Path, stack: ExitStack) -> None:
        self.way = way
        self._path = path
        self._bucket = bucket.as_uri()
        self._stack = stack
        self._settings = Settings(
            storage=StorageSettings(durability="os"),
            server=ServerSettings(backup_target=str(path.parent / "backups")),
        )
        self._broker = stack.enter_context(ExitStack())
        self._url = ""

    def open(self) -> Any:
        """The queue, also again after it was closed.

        Of one of these types, which have the same methods, so mypy is told nothing.
        """
        if self.way == "open":
            return self._stack.enter_context(quivermq.open(self._path, self._settings))
        if self.way == "bucket":
            # So that the files are where tests look for them.
            cache = self._path.parent
            return self._stack.enter_context(quivermq.open(self._bucket, self._settings, cache=cache))
        if self.way == "aio.open":
            loop = self._stack.enter_context(Loop())
            return self._stack.enter_context(loop.wrap(loop.run(aio.open(self._path, self._settings))))
        if not self._url:
            self._url = self._broker.enter_context(serving(self._path, settings=self._settings)).url
        if self.way == "connect":
            return self._stack.enter_context(quivermq.connect(self._url))
        loop = self._stack.enter_context(Loop())
        return self._stack.enter_context(loop.wrap(loop.run(aio.connect(self._url))))

    def restarted(self, mq: Any) -> Any:
        """The same queue once more, after it was closed, and its broker if it has one."""
        mq.close()
        self._broker.close()
        self._url = ""
        return self.open()


@pytest.fixture(params=WAYS)
def ways(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ways]:
    with ExitStack() as stack:
        yield Ways(request.param, tmp_path / "data", tmp_path_factory.mktemp("bucket"), stack)


@pytest.fixture
def mq(ways: Ways) -> Any:
    """A queue that is empty."""
    return ways.open()


@pytest.fixture
def orders(mq: Any) -> Any:
    """A topic that nobody has made yet, as one group sees it."""
    return mq.queue("orders", "billing")


@pytest.fixture
def dead(orders: Any) -> Callable[..., Any]:
    """Makes dead letters of messages, and returns their queue."""

    def kill(*values: bytes, reason: str = "never") -> Any:
        orders.put_many(list(values))
        orders.reject(orders.get_many(len(values)), reason)
        return orders

    return kill
