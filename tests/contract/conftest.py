"""One queue, opened in every way there is: each test of the contract runs with all of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from contract.awaited import Loop
from support.broker import serving
from support.local_shards import SHARDS, open_local
from support.routed_shards import RoutedShards, serving_shards

import quivermq
from quivermq import ServerSettings, Settings, StorageSettings, aio
from quivermq.cluster.placement import shard_of

# What holds of one shard, and not across several.
NOT_WIDE = {
    "test_lists_are_whole_however_long": "each shard says by its own clock when a delayed message is due",
}

# Shards over HTTP take long to start, and differ from others in how messages are put and taken.
_CLUSTERS = ("cluster", "wide", "cluster.connect", "wide.connect")
_OVER_HTTP = ("cluster.connect", "wide.connect")
_TRIED_OVER_HTTP = {"test_put", "test_get", "test_release", "test_stream", "test_dead_letter_topics"}
WAYS = ("open", "bucket", "connect", "aio.open", "aio.connect", *_CLUSTERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in list(items):
        given = getattr(item, "callspec", None)
        way = None if given is None else given.params.get("ways")
        is_left_out = way in _OVER_HTTP and item.path.stem not in _TRIED_OVER_HTTP
        # A cluster is not backed up as a whole.
        if is_left_out or (way in _CLUSTERS and item.path.stem == "test_backup"):
            items.remove(item)


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
        # Of a cluster: its wide topics, and its shards while they are served.
        self._wide: dict[str, tuple[int, ...]] = {}
        self._routed: RoutedShards | None = None

    def open(self) -> Any:
        """The queue, also again after it was closed.

        Of one of these types, which have the same methods, so mypy is told nothing.
        """
        if self.way == "open":
            return self._stack.enter_context(quivermq.open(self._path, self._settings))
        if self.way in ("cluster", "wide"):
            mq = open_local(self._path, self._settings, self._wide, is_wide=self.is_wide)
            return self._stack.enter_context(mq)
        if self.way in ("cluster.connect", "wide.connect"):
            if self._routed is None:
                shards = serving_shards(self._path, self._settings, self._wide)
                self._routed = self._broker.enter_context(shards)
            return self._stack.enter_context(self._routed.connect(is_wide=self.is_wide))
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

    @property
    def is_wide(self) -> bool:
        """Whether topics with partitions are on several shards."""
        return self.way.startswith("wide")

    @property
    def is_cluster(self) -> bool:
        """Whether there are shards."""
        return self.is_wide or self.way.startswith("cluster")

    def directory(self, topic: str) -> Path:
        """The data directory in which a topic is."""
        return self._path / str(shard_of(topic, SHARDS)) if self.is_cluster else self._path

    def restarted(self, mq: Any) -> Any:
        """The same queue once more, after it was closed, and its broker if it has one."""
        mq.close()
        self._broker.close()
        self._url, self._routed = "", None
        return self.open()


@pytest.fixture(params=WAYS)
def ways(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ways]:
    name = getattr(request.node, "originalname", "")
    if request.param.startswith("wide") and name in NOT_WIDE:
        pytest.skip(NOT_WIDE[name])
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
