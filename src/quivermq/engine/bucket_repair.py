"""Repairing a queue in a bucket: first its objects, then the logs in it, as those of a directory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quivermq.engine.bucket import default_cache
from quivermq.errors import InvalidFrame
from quivermq.frame import MAGIC, parse_header
from quivermq.log import Repair, Report, repair
from quivermq.log.verify import Advance
from quivermq.settings import BucketSettings, check_bucket
from quivermq.shared import open_bucket
from quivermq.shared.beside import store_limits, store_options
from quivermq.shared.bucket import BucketStore
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.mending import Mending, mend
from quivermq.shared.opening import ROOT_NAME

# How the names of objects begin, also where an error says only which chunk it is.
_OBJECTS = ("chunk", "checkpoint", "file")


@dataclass(slots=True)
class BucketRepair:
    """What a repair did."""

    objects: Mending = field(default_factory=Mending)
    logs: Repair = field(default_factory=Repair)


def repair_bucket(
    url: str, found: Report, settings: BucketSettings, *, progress: Advance = lambda _: None
) -> BucketRepair:
    """Mend what a verification has found in a bucket. Whoever owns it can store nothing from then on.

    Nothing is done, and nobody fenced, where nothing has to be mended. Raises DirectoryLocked while another
    process has the cache, DamagedChunk where nothing is left to go on from, and what stores raise.
    """
    url, done = check_bucket(url), BucketRepair()
    if all(finding.kind in ("gap", "orphan") for finding in found.findings):
        return done
    limits, options = store_limits(settings), store_options(settings)
    timeout_s = settings.request_timeout_ms / 1000
    if any(finding.kind == "damage" and _is_object(finding.path) for finding in found.findings):
        chunks = ConditionalChunks(BucketStore(url, options, timeout_s=timeout_s), readers=limits.readers)
        done.objects = mend(chunks, limits=limits, times=append_times)
        chunks.close()
    cache = cache_root(url, settings).parent
    disk = open_bucket(url, cache, options, limits=limits, timeout_s=timeout_s)
    try:
        done.logs = repair(disk.root, disk=disk, progress=progress)
        disk.checkpoint()
        disk.close()
    finally:
        disk.abandon()
    return done


def cache_root(url: str, settings: BucketSettings) -> Path:
    """Below which the files are that are repaired."""
    return (settings.cache or default_cache(url, settings)) / ROOT_NAME


def _is_object(path: Path) -> bool:
    return path.parts[0].partition(" ")[0] in _OBJECTS


def append_times(data: bytes) -> Iterator[int]:
    """When the frames were appended that are in some bytes, wherever they lie there."""
    at = data.find(MAGIC)
    while at >= 0:
        try:
            header = parse_header(data, at)
        except InvalidFrame:
            header = None
        if header is not None and header.append_time > 0:
            yield header.append_time
        at = data.find(MAGIC, at + 1)
