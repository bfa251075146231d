"""Where backups are: a directory of this machine, or a bucket."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from quivermq.backup.sets import SET, BackupSet
from quivermq.disk import Disk, SystemDisk, real_path
from quivermq.errors import Conflict, InvalidRequest
from quivermq.settings import BucketSettings
from quivermq.shared.bucket import BucketStore
from quivermq.shared.local import DirectoryStore
from quivermq.shared.objects import ObjectStore

TARGET_CHARACTERS_MAX = 4096


def check_target(target: str) -> None:
    """Raise InvalidRequest for what can be the name of no place."""
    if not target or "\0" in target or len(target) > TARGET_CHARACTERS_MAX:
        raise InvalidRequest(
            f"{target[:80]!r} is no place for backups: name a directory, or a URL such as s3://bucket/path"
        )


def is_url(target: str) -> bool:
    """Whether it is the URL of a bucket, or the path of a directory."""
    return "://" in target


def directory_of(target: str) -> Path | None:
    """The directory of this machine that a target is; None for a bucket. Raises InvalidRequest."""
    check_target(target)
    if not is_url(target):
        return Path(target).absolute()
    parts = urlsplit(target)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidRequest(f"{target!r:.80} is no directory of this machine: write file:///directory")
    return Path(unquote(parts.path))


def bucket_at(url: str, settings: BucketSettings | None) -> BucketStore:
    """A bucket, reached as the settings say."""
    settings = settings or BucketSettings()
    given = {"endpoint": settings.endpoint, "region": settings.region}
    options = {name: value for name, value in given.items() if value is not None}
    return BucketStore(url, options, timeout_s=settings.request_timeout_ms / 1000)


@contextmanager
def open_set(
    target: str,
    settings: BucketSettings | None = None,
    *,
    disk: Disk | None = None,
    data: Path | None = None,
) -> Iterator[BackupSet]:
    """The backups in a target, which need not be there. `data` is the directory of the queue, if any.

    Raises InvalidRequest, Conflict for a directory with something else in it, and as an `ObjectStore`.
    """
    directory = directory_of(target)
    if directory is None:
        store: ObjectStore = bucket_at(target, settings)
    else:
        disk = disk or SystemDisk()
        _check_directory(disk, directory, data)
        store = DirectoryStore(directory, disk)
    with closing(store):
        yield BackupSet(store, target)


def _check_directory(disk: Disk, directory: Path, data: Path | None) -> None:
    if data is not None:
        real, own = real_path(directory), real_path(data)
        if real.is_relative_to(own) or own.is_relative_to(real):
            raise InvalidRequest(
                f"{directory} and the data directory {data} lie in one another: use a directory elsewhere,"
                " best on another machine"
            )
    if disk.exists(directory) and not disk.is_directory(directory):
        raise InvalidRequest(f"{directory} is not a directory")
    names = [name for name in disk.names(directory) if name not in ("LOCK", "lost+found")]
    if names and not any(name.startswith(SET) for name in names):
        raise Conflict(
            f"{directory} has other things in it ({names[0]}): backups need a directory of their own"
        )
