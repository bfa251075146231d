"""The ways to a queue: its directory, its bucket, a broker that serves it, and a backup of it."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from quivermq.client.blocking.backend import connect_http
from quivermq.client.core.address import is_list
from quivermq.client.core.patience import client_settings
from quivermq.clock import Clock
from quivermq.disk import Disk
from quivermq.engine import open_at
from quivermq.log.flusher import Scheduler
from quivermq.model.backups import Restored
from quivermq.model.checks import Moment, Period
from quivermq.queue.connection import Connection
from quivermq.settings import ClientSettings, Settings, as_settings

if TYPE_CHECKING:
    from ssl import SSLContext


def open_directory(
    path: str | os.PathLike[str],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
) -> Connection:
    """Open a directory as a queue, or a bucket by its URL; it is created when it is new.

    `settings` may also be a mapping that is like `quiver.toml`. Raises DirectoryLocked while another
    process has it open, InvalidRequest inside of another queue's directory, and InvalidSettings.

    A text such as `s3://bucket/prefix`, `gs://`, `az://` or `file:///directory` is a bucket. It belongs to
    whoever opened it last: all that its owner before does from then on raises NotOwner. What is open of it
    is kept in `cache`, a directory of this machine that is made anew each time, by default in the user's
    cache; only there DirectoryLocked guards it. Raises StoreUnreachable, StoreDenied, StoreNotFound, and
    UnsafeStore for a store where two could own it.

    `disk`, `clock` and `scheduler` are for tests.
    """
    return Connection(open_at(path, settings, cache=cache, disk=disk, clock=clock, scheduler=scheduler))


def connect(
    url: str,
    *,
    key: str | None = None,
    timeout: Period | None = None,
    ssl_context: "SSLContext | None" = None,
    retries: int | None = None,
    backoff: Period | None = None,
    backoff_max: Period | None = None,
    settings: ClientSettings | None = None,
) -> Connection:
    """A queue that a broker serves, with the methods of one that `quivermq.open` opens.

    A cluster is named by some of its brokers, their URLs separated by commas: who has which shard is asked
    of any of them, and a call waits for the next owner of a shard for `client.failover_ms`.

    Nothing is sent before the first call. `timeout` is how many seconds the broker may be silent; a call
    that is safe to repeat is made again up to `retries` times, with waits between that grow from `backoff`
    to `backoff_max` seconds. What is not given is as in `settings`, by default those of the environment,
    such as QUIVER_CLIENT__RETRIES. `https` is checked against the certificates of the system, unless there
    is an `ssl_context`. Raises InvalidRequest, InvalidSettings.
    """
    settings = client_settings(settings)
    given = (key, timeout, ssl_context, retries, backoff, backoff_max, settings)
    if is_list(url):
        # Only then is it loaded.
        from quivermq.cluster.connecting import connect_cluster

        return Connection(connect_cluster(url, *given), settings)
    return Connection(connect_http(url, *given), settings)


def restore(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    at: Moment | None = None,
    progress: Callable[[int, int], None] | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Restored:
    """Make the queue that the backups in `source` are of, in an empty directory or an empty bucket.

    As it was when the latest backup was taken, or the latest not after `at`: unix microseconds as an int,
    unix seconds as a float, or a datetime. Every byte is checked before it counts, and what is wrong in the
    queue itself is in the report. After an error the target is as it was before. Raises NotFound when there
    is no such backup, Conflict when the target is not empty, DamagedChunk when something of the backup is
    missing or damaged; and what the disk or the store raises. Of `settings` only those of buckets count.
    """
    # Most processes never need it.
    from quivermq.backup import restoring

    bucket = as_settings(settings).bucket
    return restoring.restore(source, target, at=at, progress=progress, settings=bucket)
