"""How much a shared disk may gather, how long it waits, and when it makes a checkpoint."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimits:
    """The numbers of one shared disk. The defaults are for a store that answers within 100 ms."""

    commit_timeout_s: float = 30.0
    """How long a sync waits for the store before it is refused; what it waited for is tried on."""

    uncommitted_bytes_max: int = 64 * MIB
    """How far writers may be ahead of the store before they have to wait for it."""

    chunk_bytes_max: int = 8 * MIB
    """How many bytes of changes go into one chunk. Larger ones take longer, and many wait for them."""

    checkpoint_bytes: int = 16 * MIB
    checkpoint_chunks: int = 256
    """After so many bytes or chunks a checkpoint is made, whichever comes first."""

    part_bytes_min: int = MIB
    """From so many bytes on, what a file has got since the last checkpoint becomes an object of its own."""

    quiet_bytes_min: int = 64 << 10
    """From so many bytes on, a file that does not change any more becomes one object and may be evicted."""

    inline_bytes_max: int = 32 * MIB
    """How many bytes of files a checkpoint holds itself; from there on, all else become objects."""

    part_bytes_max: int = 64 * MIB
    """The largest object that is made of a file; one that is longer has several."""

    cache_bytes_max: int | None = None
    """How many bytes of files the cache may have before those that were not used for long are evicted."""

    cache_free_bytes_min: int = 1 << 30
    """How much room the file system of the cache is left, as far as there are files to evict."""

    block_bytes: int = MIB
    """How much is fetched at least of an object that is read by range."""

    read_ahead_bytes: int = 8 * MIB
    """How much is fetched at most at a time for somebody who reads such an object from front to back."""

    read_cache_bytes: int = 64 * MIB
    """How much of what was fetched by range is kept in memory for the next reader."""

    garbage_delay_s: float = 300.0
    """How long an object that nothing names any more is kept, for those who are still reading it."""

    owner_check_s: float | None = None
    """How often an owner that has nothing to commit looks whether it still is one; None for never."""

    backoff_s: float = 0.05
    backoff_s_max: float = 2.0
    """How long to wait before a store that did not answer is asked again, at first and at most."""

    readers: int = 8
    """How many objects are fetched at a time."""
