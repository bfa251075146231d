"""What is wrong with the object store that a queue is in: more rules, judged with those of `alerts`."""

from collections.abc import Iterator

from quivermq.engine.rules import Evidence, Rule, RuleMatch, many, size
from quivermq.engine.watch import ChangeTracker

COMMIT_S = 2
REPLAY_CHUNKS = 4096
GARBAGE_OBJECTS = 10_000
CACHE_OVER = 1.1


def _store_refuses(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if (store := evidence.store) is not None and store.trouble is not None:
        yield RuleMatch(
            f"the object store takes nothing ({store.trouble}): look at its endpoint, credentials and room",
            1,
        )


def _slow_commits(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if evidence.commit_p99_s is not None and evidence.commit_p99_s > COMMIT_S:
        words = (
            f"one commit in a hundred takes longer than {evidence.commit_p99_s:.1f} s:"
            " look at the store, and at the way to it"
        )
        yield RuleMatch(words, evidence.commit_p99_s)


def _checkpoint_is_old(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if (store := evidence.store) is not None and store.replay_chunks > REPLAY_CHUNKS:
        words = (
            f"the next owner has {many(store.replay_chunks, 'chunk')} to read: no checkpoint succeeds,"
            " and the log says why"
        )
        yield RuleMatch(words, store.replay_chunks)


def _cache_pressure(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    cache = None if evidence.store is None else evidence.store.cache
    if cache is not None and cache.bytes_max is not None and cache.bytes > CACHE_OVER * cache.bytes_max:
        words = (
            f"the cache has {size(cache.bytes)} of which nothing can leave: raise bucket.cache_bytes_max,"
            " or have smaller segments"
        )
        yield RuleMatch(words, cache.bytes)


def _garbage(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if (store := evidence.store) is not None and store.checkpoint.garbage_objects > GARBAGE_OBJECTS:
        count = store.checkpoint.garbage_objects
        words = (
            f"{many(count, 'object')} of the store wait to be removed: may the broker delete,"
            " and is bucket.garbage_delay_ms right?"
        )
        yield RuleMatch(words, count)


STORE_RULES: tuple[Rule[Evidence], ...] = (
    Rule(
        "QuiverStoreRefuses",
        "page",
        60,
        "quiver_store_refuses > 0",
        _store_refuses,
    ),
    Rule(
        "QuiverSlowCommits",
        "ticket",
        300,
        "histogram_quantile(0.99,"
        " sum by (instance, shard, le) (rate(quiver_store_commit_seconds_bucket[5m])))"
        f" > {COMMIT_S}",
        _slow_commits,
    ),
    Rule(
        "QuiverCheckpointIsOld",
        "ticket",
        300,
        f"quiver_store_replay_chunks > {REPLAY_CHUNKS}",
        _checkpoint_is_old,
    ),
    Rule(
        "QuiverCachePressure",
        "ticket",
        600,
        f"quiver_store_cache_bytes > {CACHE_OVER} * quiver_store_cache_limit_bytes",
        _cache_pressure,
    ),
    Rule(
        "QuiverGarbageGrows",
        "ticket",
        600,
        f"quiver_store_garbage_objects > {GARBAGE_OBJECTS}",
        _garbage,
    ),
)
