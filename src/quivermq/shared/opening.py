"""Opening a shared disk: claim it, read what there is, make the files anew, go on.

The directory that was there before is never trusted: it may be ahead of the store, and what it is ahead
with was never committed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk, remove_tree
from quivermq.errors import InvalidRequest, NotOwner, QuiverError
from quivermq.shared.blocks import Blocks
from quivermq.shared.bucket import REQUEST_TIMEOUT_S, BucketStore
from quivermq.shared.cache import FETCHED_NAME
from quivermq.shared.checkpoint import Checkpoint, Part, StoredFile, decode_checkpoint
from quivermq.shared.chunk import damaged
from quivermq.shared.chunks import Chunks
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.disk import CacheDisk, SharedDisk
from quivermq.shared.fetching import fetched
from quivermq.shared.limits import SharedLimits
from quivermq.shared.naming import CHUNK
from quivermq.shared.patience import patiently
from quivermq.shared.race import check_conditional_puts
from quivermq.shared.rebuilding import Rebuilding

# In the cache: the files, and the lock that keeps others from making them anew meanwhile.
ROOT_NAME = "data"
LOCK_NAME = "CACHE"


def open_shared(
    chunks: Chunks,
    cache: Path,
    *,
    disk: Disk | None = None,
    limits: SharedLimits | None = None,
    clock: Clock | None = None,
    check: Callable[[], None] = lambda: None,
) -> SharedDisk:
    """Become the owner of what is in a store, and return a disk with it; `root` says where its files are.

    Whoever was the owner can commit nothing from then on. `check` is called first, once the cache is this
    process's. Raises DirectoryLocked while another process has the cache, InvalidRequest for a directory
    with something else in it, StoreUnreachable, StoreDenied, StoreNotFound, DamagedChunk, UnsupportedChunk,
    and NotOwner when somebody else claims it at the same time.
    """
    disk = disk or CacheDisk()
    limits = limits or SharedLimits()
    clock = clock or SystemClock()
    _check_cache(disk, cache)
    disk.make_directory(cache)
    root = cache / ROOT_NAME
    with ExitStack() as on_failure:
        lock = disk.lock(cache / LOCK_NAME)
        on_failure.callback(lock.release)
        on_failure.callback(_close, chunks)
        patiently(check, limits, clock)
        patiently(chunks.claim, limits, clock)
        rebuilt, part_names = patiently(lambda: _rebuilt(chunks, disk, root, limits), limits, clock)
        shared = SharedDisk(
            chunks,
            rebuilt,
            cache=disk,
            root=root,
            blocks=Blocks(chunks, limits, clock),
            lock=lock,
            limits=limits,
            clock=clock,
            part_names=sorted(part_names),
        )
        on_failure.pop_all()
    return shared


def open_bucket(
    url: str,
    cache: Path,
    options: Mapping[str, str] | None = None,
    *,
    limits: SharedLimits | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
    clock: Clock | None = None,
) -> SharedDisk:
    """The same for a bucket alone, where conditional puts decide who is the owner.

    Whoever opens it is, and the one before has to stop. A request may take `timeout_s`. Raises UnsafeStore
    for a store whose conditional puts are not real: a new one is tried first.
    """
    store = BucketStore(url, options, timeout_s=timeout_s)
    chunks = ConditionalChunks(store, readers=(limits or SharedLimits()).readers)

    def check() -> None:
        if not store.names(CHUNK):
            check_conditional_puts(store)

    return open_shared(chunks, cache, limits=limits, clock=clock, check=check)


def is_in_bucket(
    url: str, options: Mapping[str, str] | None = None, *, timeout_s: float = REQUEST_TIMEOUT_S
) -> bool:
    """Whether somebody has opened a queue there before. Asks once, and raises what the store raises."""
    return bool(BucketStore(url, options, timeout_s=timeout_s).names(CHUNK))


def _check_cache(disk: Disk, cache: Path) -> None:
    """Refuse a directory that is not a cache: what is in one is taken away."""
    if disk.exists(cache) and not disk.is_directory(cache):
        raise InvalidRequest(f"{cache} is not a directory: a cache needs one of its own")
    if disk.names(cache) and not disk.exists(cache / LOCK_NAME):
        raise InvalidRequest(f"{cache} is not empty and not a cache: a cache needs a directory of its own")


def _close(chunks: Chunks) -> None:
    # What went wrong before is what the caller has to know.
    with suppress(QuiverError):
        chunks.close()


def _rebuilt(chunks: Chunks, disk: Disk, root: Path, limits: SharedLimits) -> tuple[Rebuilding, set[str]]:
    """The files as the store has them, in a directory that was empty."""
    remove_tree(disk, root)
    remove_tree(disk, root.with_name(FETCHED_NAME))
    disk.make_directory(root)
    rebuilding = Rebuilding(disk, root, limits=limits, fetch=partial(_fetched, chunks, limits))
    part_names: set[str] = set()
    # Only now, behind the claim: a checkpoint that came before it is seen.
    stored = chunks.checkpoint()
    try:
        if stored is not None:
            checkpoint = decode_checkpoint(f"checkpoint {stored.number}", stored.data)
            part_names = checkpoint.part_names()
            here = [file for file in checkpoint.files if not rebuilding.stays_away(file)]
            _check_there(chunks, checkpoint, here)
            rebuilding.load(
                checkpoint, _fetched(chunks, limits, (part for file in here for part in file.parts))
            )
        for number, data in chunks.read(rebuilding.number):
            rebuilding.apply(f"chunk {number}", data)
    finally:
        rebuilding.close()
    if rebuilding.epoch > chunks.epoch:
        raise NotOwner("another process has claimed the same disk meanwhile: let only one open it")
    return rebuilding, part_names


def _check_there(chunks: Chunks, checkpoint: Checkpoint, here: list[StoredFile]) -> None:
    """Raise DamagedChunk when an object is gone of a file that is read only later."""
    away = checkpoint.part_names() - {part.name for file in here for part in file.parts}
    if away and (gone := away.difference(chunks.left_files())):
        raise damaged(min(gone), f"it is not there, and checkpoint {checkpoint.number} names it")


def _fetched(chunks: Chunks, limits: SharedLimits, parts: Iterable[Part]) -> Iterator[tuple[Part, bytes]]:
    return fetched(parts, lambda part: chunks.get_file(part.name, part.size), limits.readers)
