"""A queue whose directory is a cache, and whose truth is in a bucket: opening it, and letting go of it."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from quivermq.clock import Clock
from quivermq.disk import Disk
from quivermq.engine.engine import Engine
from quivermq.engine.entry import open_engine
from quivermq.engine.shared import SharedEngine
from quivermq.errors import DiskRefused, InvalidRequest, NotOwner, StoreUnreachable
from quivermq.log.flusher import Scheduler
from quivermq.settings import BucketSettings, Settings, as_settings, check_bucket, check_path, is_bucket
from quivermq.shared import SharedDisk, is_in_bucket, open_bucket
from quivermq.shared.beside import store_limits, store_options
from quivermq.shared.opening import LOCK_NAME

# Enough of a hash that no two queues have the same.
_NAME_CHARACTERS = 32


def open_at(
    place: str | os.PathLike[str],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
) -> Engine:
    """Open a directory as a queue, or a bucket by its URL; it is created when it is new.

    Promises and raises what `quivermq.open` does. `disk`, `clock` and `scheduler` are for tests.
    """
    settings = as_settings(settings)
    if isinstance(place, str) and is_bucket(place):
        return _open_bucket(check_bucket(place), settings, cache, clock, scheduler)
    if isinstance(place, PurePath):
        check_path(place)
    if cache is not None:
        raise InvalidRequest(f"{place} is a directory, and needs no cache: that is for the URL of a bucket")
    return open_engine(place, settings, disk=disk, clock=clock, scheduler=scheduler)


def _open_bucket(
    url: str, settings: Settings, cache: object, clock: Clock | None, scheduler: Scheduler | None
) -> "BucketEngine":
    disk = open_bucket(
        url,
        _cache(url, settings.bucket, cache),
        store_options(settings.bucket),
        limits=store_limits(settings.bucket),
        timeout_s=settings.bucket.request_timeout_ms / 1000,
        clock=clock,
    )
    try:
        # Nobody is told of what opening changes.
        return disk.commits.ordered(
            partial(BucketEngine, url, disk, settings, clock=clock, scheduler=scheduler)
        )
    except BaseException:
        disk.abandon()
        raise


class BucketEngine(SharedEngine):
    """An engine that owns a queue in a bucket until it is closed. Made by `open_at`."""

    def __init__(
        self,
        url: str,
        disk: SharedDisk,
        settings: Settings,
        *,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        super().__init__(disk.root, settings, disk=disk, clock=clock, scheduler=scheduler)
        self.name = url
        self.archive.forbidden = disk.root
        self._disk = disk
        self._pid = os.getpid()

    def announce(self, url: str) -> None:
        """Tell whoever finds the directory, or the cache, in use where it is served."""
        super().announce(url)
        disk: Disk = self._disk
        with closing(disk.open(self._disk.root.parent / LOCK_NAME, writable=True)) as file:
            # Behind the number of the process, until the next one takes the lock.
            file.append([f"{url}\n".encode()])

    def close(self) -> None:
        """Commit everything and let go of the bucket and the cache. Closing twice is allowed.

        Raises what a directory does, and StoreUnreachable when the store does not answer: all is let go of
        then, and what was not on stable storage before is lost. Quiet where somebody else is the owner, and
        in a forked child, which has nothing to let go of.
        """
        if self._pid != os.getpid():
            return
        try:
            super().close()
        except DiskRefused:
            # They may call it again.
            raise
        except StoreUnreachable as error:
            # They have waited as long as one is to wait.
            self._disk.abandon()
            raise self._unreachable() from error
        except BaseException:
            self._disk.abandon()
            raise
        else:
            self._commit()

    def _commit(self) -> None:
        try:
            self._disk.close()
        except NotOwner:
            return
        except StoreUnreachable as error:
            raise self._unreachable() from error

    def _unreachable(self) -> StoreUnreachable:
        return StoreUnreachable(
            f"{self.name} did not answer while it was closed: what was not on stable storage before is lost"
        )


def is_queue(url: str, settings: BucketSettings) -> bool:
    """Whether there is a queue in a bucket. Raises what the store raises, StoreDenied for instance."""
    return is_in_bucket(
        check_bucket(url), store_options(settings), timeout_s=settings.request_timeout_ms / 1000
    )


def _cache(url: str, settings: BucketSettings, cache: object) -> Path:
    """Where the files are that the queue is worked on with: as told, or below the user's cache."""
    if cache is None:
        return settings.cache or default_cache(url, settings)
    if not isinstance(cache, str | os.PathLike) or "\0" in str(os.fspath(cache)):
        raise InvalidRequest(f"a cache is the path of a directory, not {cache!r:.300}")
    return Path(cache)


def default_cache(url: str, settings: BucketSettings) -> Path:
    """The directory that all who open this URL on this machine as this user use, and so one at a time."""
    # As the rules of XDG have it, a relative path does not count.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    above = named if named.is_absolute() else _home() / ".cache"
    of_all = f"{settings.endpoint or ''} {url}".encode()
    return above / "quiver" / hashlib.sha256(of_all).hexdigest()[:_NAME_CHARACTERS]


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise InvalidRequest(
            f"there is no home directory for a cache: say where, as cache=… ({error})"
        ) from error
