"""How much is measured: enough to trust, enough for a glance, or only enough to see that it runs."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of rounds and logs. Counts are messages unless they say otherwise."""

    name: str
    rounds: int
    many: int
    """Messages a round of append_many."""
    sustained: int
    buffered: int
    single: int
    sync_rounds: int
    sync_appends: int
    thread_rounds: int
    thread_appends: int
    """Messages a thread and round."""
    read: int
    open_batches: int
    open_singles: int
    arrow_bytes: int
    arrow_rounds: int
    memory_bytes: int
    codec_batches: int
    queue_rounds: int
    queue_buffered: int
    queue_single: int
    queue_many: int
    queue_synced: int
    """One by one at `fsync`, for the peers as well."""
    peer_messages: int
    """Other queues get fewer, which is no disadvantage: some slow down with every message that is done."""
    queue_threads: int
    peer_thread_messages: int
    """A thread."""
    backlogs: tuple[int, ...]
    peer_backlogs: tuple[int, ...]
    backlog_rounds: int
    backlog_taken: int
    """A round. Enough for several frames, which are read ahead as a whole."""
    peer_backlog_taken: int
    delayed: int
    reopened: int
    reopen_rounds: int
    broker_rounds: int
    broker_s: float
    """Seconds of load a round."""
    broker_connections: int
    broker_batch: int
    broker_sent: int
    """By the library's producer."""
    broker_taken: int
    broker_per_second: int
    """The rate at which latency is measured."""
    broker_polls: int
    spark_rounds: int
    spark_messages: int
    spark_tuples: int
    """For the source that yields tuples, which would take minutes for all."""
    spark_ticks: int
    """Messages that are sent one by one through a stream."""


FULL = Scale(
    name="full",
    rounds=9,
    many=400_000,
    sustained=8_000_000,
    buffered=300_000,
    single=20_000,
    sync_rounds=200,
    sync_appends=15,
    thread_rounds=6,
    thread_appends=400,
    read=1_000_000,
    open_batches=1_000_000,
    open_singles=1_000_000,
    arrow_bytes=64 * MIB,
    arrow_rounds=4,
    memory_bytes=2048 * MIB,
    codec_batches=100,
    queue_rounds=5,
    queue_buffered=200_000,
    queue_single=20_000,
    queue_many=200_000,
    queue_synced=200,
    peer_messages=2_000,
    queue_threads=64,
    peer_thread_messages=10,
    backlogs=(1_000, 100_000, 1_000_000, 10_000_000),
    peer_backlogs=(1_000, 100_000),
    backlog_rounds=8,
    backlog_taken=4_000,
    peer_backlog_taken=100,
    delayed=1_000_000,
    reopened=1_000_000,
    reopen_rounds=5,
    broker_rounds=3,
    broker_s=4.0,
    broker_connections=64,
    broker_batch=1_000,
    broker_sent=1_000_000,
    broker_taken=200_000,
    broker_per_second=5_000,
    broker_polls=10_000,
    spark_rounds=4,
    spark_messages=10_000_000,
    spark_tuples=400_000,
    spark_ticks=100,
)
QUICK = Scale(
    name="quick",
    rounds=3,
    many=200_000,
    sustained=2_000_000,
    buffered=100_000,
    single=8_000,
    sync_rounds=80,
    sync_appends=10,
    thread_rounds=3,
    thread_appends=150,
    read=300_000,
    open_batches=1_000_000,
    open_singles=100_000,
    arrow_bytes=32 * MIB,
    arrow_rounds=2,
    memory_bytes=256 * MIB,
    codec_batches=20,
    queue_rounds=2,
    queue_buffered=40_000,
    queue_single=4_000,
    queue_many=20_000,
    queue_synced=15,
    peer_messages=100,
    queue_threads=64,
    peer_thread_messages=1,
    backlogs=(1_000, 100_000, 1_000_000),
    peer_backlogs=(1_000,),
    backlog_rounds=4,
    backlog_taken=3_000,
    peer_backlog_taken=100,
    delayed=30_000,
    reopened=100_000,
    reopen_rounds=2,
    broker_rounds=1,
    broker_s=0.5,
    broker_connections=64,
    broker_batch=1_000,
    broker_sent=100_000,
    broker_taken=20_000,
    broker_per_second=5_000,
    broker_polls=2_000,
    spark_rounds=2,
    spark_messages=2_000_000,
    spark_tuples=100_000,
    spark_ticks=30,
)
TINY = Scale(
    name="tiny",
    rounds=1,
    many=2_000,
    sustained=2_000,
    buffered=2_000,
    single=100,
    sync_rounds=1,
    sync_appends=2,
    thread_rounds=1,
    thread_appends=2,
    read=2_000,
    open_batches=2_000,
    open_singles=200,
    arrow_bytes=MIB,
    arrow_rounds=1,
    memory_bytes=MIB,
    codec_batches=1,
    queue_rounds=1,
    queue_buffered=1_500,
    queue_single=100,
    queue_many=1_000,
    queue_synced=2,
    peer_messages=20,
    queue_threads=4,
    peer_thread_messages=1,
    backlogs=(20, 200),
    peer_backlogs=(20, 200),
    backlog_rounds=1,
    backlog_taken=10,
    peer_backlog_taken=5,
    delayed=500,
    reopened=500,
    reopen_rounds=1,
    broker_rounds=1,
    broker_s=0.1,
    broker_connections=4,
    broker_batch=100,
    broker_sent=2_000,
    broker_taken=1_000,
    broker_per_second=500,
    broker_polls=20,
    spark_rounds=1,
    spark_messages=8_000,
    spark_tuples=4_000,
    spark_ticks=10,
)
