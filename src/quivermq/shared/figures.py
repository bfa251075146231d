"""The figures of a shared disk, for people, metrics and dashboards."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from quivermq.metrics import Histogram
from quivermq.shared.counting import RequestKind, Requests

# Enough for a percentile, and soon forgotten.
_COMMITS_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFigures:
    """What was committed by this owner, and how long it took: from the first attempt to the answer."""

    chunks: int = 0
    bytes: int = 0
    last_s: float | None = None
    p50_s: float | None = None
    """Of the last few hundred, as the next."""
    p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFigures:
    """The latest checkpoint, and what waits to be taken away."""

    number: int | None = None
    """It covers every chunk before this one; None when there is none."""
    age_s: float | None = None
    """Since it was stored; one of an earlier owner, since this one read it."""
    garbage_objects: int = 0
    """Files in the store that nothing names any more, and that readers may still need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFigures:
    """Which files this machine has, and which are only in the store."""

    files: int = 0
    bytes: int = 0
    evicted_files: int = 0
    evicted_bytes: int = 0
    memory_bytes: int = 0
    """What is kept in memory of files that were read from the store."""
    bytes_max: int | None = field(default=None, compare=False)
    """From where on files are evicted; None where only the room on the file system counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFigures:
    """One shared disk at one moment, as its owner sees it. Counts begin when it was opened."""

    epoch: int
    failure: str | None
    """The code of the error that keeps everything from being changed; None while it can be."""
    uncommitted_bytes: int
    trouble: str | None = None
    """The code of the error with which the store refuses the latest chunk; None while it takes them."""
    replay_chunks: int = 0
    """How many chunks behind the latest checkpoint the next owner has to read."""
    seconds: float = 0.0
    """Since it was opened."""
    commits: CommitFigures
    checkpoint: CheckpointFigures
    cache: CacheFigures
    requests: Mapping[RequestKind, Requests] = field(default_factory=dict)


class CommitCounter:
    """Counts commits. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.times = Histogram(
            "quiver_store_commit_seconds", "How long it took to commit a chunk, all attempts together."
        )
        self._chunks = self._bytes = 0
        self._seconds: deque[float] = deque(maxlen=_COMMITS_MAX)

    def add(self, chunk_bytes: int, seconds: float) -> None:
        """Count a chunk that was committed."""
        self.times.observe(seconds)
        with self._lock:
            self._chunks += 1
            self._bytes += chunk_bytes
            self._seconds.append(seconds)

    def figures(self) -> CommitFigures:
        with self._lock:
            chunks, size, seconds = self._chunks, self._bytes, list(self._seconds)
        if not seconds:
            return CommitFigures()
        ordered = sorted(seconds)
        return CommitFigures(
            chunks=chunks,
            bytes=size,
            last_s=seconds[-1],
            p50_s=ordered[len(ordered) // 2],
            p99_s=ordered[len(ordered) * 99 // 100],
        )
