"""Looking at a bucket beside its owner, as the settings say how it is reached."""

from pathlib import Path
from urllib.parse import unquote

from quivermq.disk import SystemDisk
from quivermq.errors import NotFound
from quivermq.settings import BucketSettings, check_bucket
from quivermq.shared.bucket import BucketStore
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.limits import SharedLimits
from quivermq.shared.stored_disk import StoredDisk


def stored_disk(url: str, settings: BucketSettings) -> StoredDisk:
    """What is in a bucket, to be looked at. Raises NotFound, at the first look, where there is no queue."""
    url = check_bucket(url)
    scheme, _, place = url.partition("://")
    if scheme == "file" and not SystemDisk().is_directory(Path(unquote(place))):
        # The store would make it.
        raise NotFound(f"there is no directory {place}")
    limits = store_limits(settings)
    store = BucketStore(url, store_options(settings), timeout_s=settings.request_timeout_ms / 1000)
    chunks = ConditionalChunks(store, readers=limits.readers)
    return StoredDisk(chunks, stored_root(url), limits=limits, name=url)


def stored_root(url: str) -> Path:
    """Where its files are: a path of no machine."""
    scheme, _, place = check_bucket(url).partition("://")
    return Path(f"/{scheme}:/{place}")


def store_options(settings: BucketSettings) -> dict[str, str]:
    """What `obstore` is told besides what it finds in the environment."""
    given = {"endpoint": settings.endpoint, "region": settings.region}
    return {name: value for name, value in given.items() if value is not None}


def store_limits(settings: BucketSettings) -> SharedLimits:
    """How a disk uses the bucket that it is in."""
    return SharedLimits(
        commit_timeout_s=settings.commit_timeout_ms / 1000,
        owner_check_s=settings.owner_check_ms / 1000,
        uncommitted_bytes_max=settings.uncommitted_bytes_max,
        checkpoint_bytes=settings.checkpoint_bytes,
        checkpoint_chunks=settings.checkpoint_chunks,
        cache_bytes_max=settings.cache_bytes_max,
        cache_free_bytes_min=settings.cache_free_bytes_min,
        garbage_delay_s=settings.garbage_delay_ms / 1000,
    )
