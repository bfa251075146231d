"""The queues of other projects, each as durable as ours in the same row.

All but one keep their messages in SQLite, in WAL mode. With `synchronous=FULL` each commit is synced, as
with our `fsync`. With `NORMAL` a commit is with the operating system, and checkpoints are synced, as with
our `os`. With `OFF` nothing is ever synced. That is the least they offer, and more than our `buffered`
promises: every commit is written before it returns.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import diskcache
import litequeue
import persistqueue
from huey.storage import SqliteStorage
from persistqueue.sqlackqueue import AckStatus

from benchmarks.stores import Open, Store
from quivermq.settings import Durability

SYNCHRONOUS: dict[Durability, str] = {"fsync": "FULL", "os": "NORMAL", "buffered": "OFF"}
FILES = "persist-queue files, autosave"
_LEVELS = {"OFF": 0, "NORMAL": 1, "FULL": 2}


def with_acks(durability: Durability) -> dict[str, Open]:
    """Those whose messages are settled after they were got."""
    word = SYNCHRONOUS[durability]
    return {
        f"persist-queue Ack, {word}": partial(PersistAck, synchronous=word),
        f"litequeue, {word}": partial(LiteQueue, synchronous=word),
    }


def without_acks(durability: Durability) -> dict[str, Open]:
    """Those that forget a message when they hand it out."""
    word = SYNCHRONOUS[durability]
    found: dict[str, Open] = {
        f"huey, {word}": partial(Huey, synchronous=word),
        f"diskcache, {word}": partial(DiskCache, synchronous=word),
    }
    if durability == "os":
        # It flushes its files and renames them into place; there is no switch that makes it sync them.
        found[FILES] = PersistFiles
    return found


def in_batches(durability: Durability) -> dict[str, Open]:
    """Those that offer a transaction around many puts."""
    word = SYNCHRONOUS[durability]
    return {
        f"litequeue transaction, {word}": partial(LiteQueue, synchronous=word),
        f"diskcache transact, {word}": partial(DiskCache, synchronous=word),
    }


def in_threads(durability: Durability) -> dict[str, Open]:
    """Those that let many threads put."""
    word = SYNCHRONOUS[durability]
    return {
        f"persist-queue Ack, {word}": partial(PersistAck, synchronous=word, is_threaded=True),
        f"litequeue, {word}": partial(LiteQueue, synchronous=word),
        f"huey, {word}": partial(Huey, synchronous=word),
        f"diskcache, {word}": partial(DiskCache, synchronous=word),
    }


def _is_synchronous(connection: sqlite3.Connection, word: str) -> None:
    ((level,),) = connection.execute("PRAGMA synchronous").fetchall()
    ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
    assert (level, mode) == (_LEVELS[word], "wal")


class PersistAck(Store):
    """persist-queue with acks: `get` marks a row, `ack` marks it again."""

    def __init__(self, path: Path, synchronous: str, *, is_threaded: bool = False) -> None:
        self._queue = persistqueue.SQLiteAckQueue(str(path), multithreading=is_threaded)
        for connection in (self._queue._getter, self._queue._putter):
            assert isinstance(connection, sqlite3.Connection)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            _is_synchronous(connection, synchronous)

    def put(self, values: Sequence[bytes]) -> None:
        put = self._queue.put
        for value in values:
            put(value)

    def take(self, count: int) -> list[bytes]:
        get, ack, values = self._queue.get, self._queue.ack, []
        for _ in range(count):
            item = get(block=False, raw=True)
            values.append(item["data"])
            # By its id: with the item alone it would search for it.
            ack(id=item["pqid"])
        return values

    def values(self) -> list[bytes]:
        done = int(AckStatus.acked)
        return [row["data"] for row in self._queue.queue() if int(row["status"]) < done]

    def close(self) -> None:
        self._queue.close()


class PersistFiles(Store):
    """persist-queue in plain files, saved at every put and, with `autosave`, at every get."""

    def __init__(self, path: Path) -> None:
        self._queue = persistqueue.Queue(str(path), tempdir=str(path), autosave=True)

    def put(self, values: Sequence[bytes]) -> None:
        put = self._queue.put
        for value in values:
            put(value)

    def take(self, count: int) -> list[bytes]:
        get, done, values = self._queue.get, self._queue.task_done, []
        for _ in range(count):
            values.append(get(block=False))
            done()
        return values

    def values(self) -> list[bytes]:
        # It cannot be looked into without taking, and nobody asks twice.
        return self.take(self._queue.qsize())

    def close(self) -> None:
        self._queue.headf.close()
        self._queue.tailf.close()


class LiteQueue(Store):
    """litequeue: `pop` locks a row, `done` marks it. It takes bytes, although it says str."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._queue = litequeue.LiteQueue(path / "queue.db")
        self._queue.conn.execute(f"PRAGMA synchronous = {synchronous}")
        _is_synchronous(self._queue.conn, synchronous)

    def put(self, values: Sequence[bytes]) -> None:
        put = self._queue.put
        for value in values:
            put(value)

    def put_batches(self, batches: Sequence[list[bytes]]) -> None:
        put, transaction = self._queue.put, self._queue.transaction
        for batch in batches:
            with transaction():
                for value in batch:
                    put(value)

    def take(self, count: int) -> list[bytes]:
        pop, done, values = self._queue.pop, self._queue.done, []
        for _ in range(count):
            message = pop()
            values.append(message.data)
            done(message.message_id)
        return values

    def values(self) -> list[bytes]:
        unfinished = (litequeue.MessageStatus.READY.value, litequeue.MessageStatus.LOCKED.value)
        select = f"SELECT data FROM {self._queue.table} WHERE status IN (?, ?) ORDER BY message_id"
        return [row[0] for row in self._queue.conn.execute(select, unfinished)]

    def close(self) -> None:
        self._queue.close()


class Huey(Store):
    """The storage of huey: `dequeue` deletes the row."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._storage = SqliteStorage(filename=str(path / "huey.db"), strict_fifo=True)
        self._storage.conn.execute(f"PRAGMA synchronous = {synchronous}")
        _is_synchronous(self._storage.conn, synchronous)

    def put(self, values: Sequence[bytes]) -> None:
        enqueue = self._storage.enqueue
        for value in values:
            enqueue(value)

    def take(self, count: int) -> list[bytes]:
        dequeue: Callable[[], bytes] = self._storage.dequeue
        return [dequeue() for _ in range(count)]

    def values(self) -> list[bytes]:
        return [bytes(value) for value in self._storage.enqueued_items()]

    def close(self) -> None:
        self._storage.close()


class DiskCache(Store):
    """The deque of diskcache: `popleft` deletes the row."""

    def __init__(self, path: Path, synchronous: str) -> None:
        # As `Deque` itself makes it, but for the pragma.
        cache = diskcache.Cache(str(path), eviction_policy="none", sqlite_synchronous=_LEVELS[synchronous])
        self._deque = diskcache.Deque.fromcache(cache)
        _is_synchronous(cache._con, synchronous)

    def put(self, values: Sequence[bytes]) -> None:
        append = self._deque.append
        for value in values:
            append(value)

    def put_batches(self, batches: Sequence[list[bytes]]) -> None:
        extend, transact = self._deque.extend, self._deque.transact
        for batch in batches:
            with transact():
                extend(batch)

    def take(self, count: int) -> list[bytes]:
        popleft: Callable[[], bytes] = self._deque.popleft
        return [popleft() for _ in range(count)]

    def take_batches(self, count: int, size: int) -> list[bytes]:
        values: list[bytes] = []
        popleft, transact = self._deque.popleft, self._deque.transact
        while len(values) < count:
            with transact():
                values += [popleft() for _ in range(min(size, count - len(values)))]
        return values

    def values(self) -> list[bytes]:
        return list(self._deque)

    def close(self) -> None:
        self._deque.cache.close()
