"""The metrics of a shared disk, as Prometheus is told of them.

All of them are made of one look at its figures, whenever somebody asks: nothing is counted twice.
"""

from quivermq.metrics import Metrics, Number, Sample
from quivermq.shared.disk import SharedDisk
from quivermq.shared.figures import SharedFigures


def measure(disk: SharedDisk) -> list[Sample]:
    """Every metric of a disk as it is now. Counters begin when it was opened."""
    figures, metrics = disk.figures(), Metrics()
    for name, help_text, value in _gauges(figures):
        if value is not None:
            metrics.gauge(name, help_text).set(value)
    commits, counter = figures.commits, metrics.counter
    counter("quiver_store_commits_total", "Chunks that were committed.").add(commits.chunks)
    counter("quiver_store_committed_bytes_total", "Bytes of the chunks committed.").add(commits.bytes)
    for kind, requests in figures.requests.items():
        counter("quiver_store_requests_total", "Requests to the store.", kind=kind).add(requests.count)
        counter(
            "quiver_store_requests_failed_total", "Requests without an answer, or refused.", kind=kind
        ).add(requests.failed)
        counter(
            "quiver_store_request_bytes_total", "Bytes sent with puts, or that came back.", kind=kind
        ).add(requests.bytes)
    return [*metrics.collect(), disk.commit_times.sample()]


def _gauges(figures: SharedFigures) -> list[tuple[str, str, Number | None]]:
    cache, checkpoint = figures.cache, figures.checkpoint
    return [
        ("quiver_store_epoch", "The number of this owner's claim.", figures.epoch),
        (
            "quiver_store_fenced",
            "1 once nothing can be changed any more.",
            int(figures.failure is not None),
        ),
        ("quiver_store_refuses", "1 while the store refuses a chunk.", int(figures.trouble is not None)),
        ("quiver_store_uncommitted_bytes", "How far the store is behind.", figures.uncommitted_bytes),
        ("quiver_store_replay_chunks", "Chunks that the next owner has to read.", figures.replay_chunks),
        ("quiver_store_checkpoint_number", "The chunk of the latest checkpoint.", checkpoint.number),
        ("quiver_store_checkpoint_age_seconds", "Since the latest checkpoint.", checkpoint.age_s),
        ("quiver_store_garbage_objects", "Objects that wait to be removed.", checkpoint.garbage_objects),
        ("quiver_store_cache_bytes", "Bytes of files on this machine.", cache.bytes),
        ("quiver_store_cache_limit_bytes", "From where on files leave it.", cache.bytes_max),
        ("quiver_store_evicted_bytes", "Bytes of files that are only in the store.", cache.evicted_bytes),
        ("quiver_store_memory_bytes", "Bytes read from the store, in memory.", cache.memory_bytes),
    ]
