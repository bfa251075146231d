"""The tree itself: every setting with its type, default, range and one line of doc.

A section checks itself when it is made, so a `Settings` in hand is a valid one, whoever made it.
docs/reference/settings.md is generated from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from quivermq.errors import InvalidSettings
from quivermq.settings.setting import (
    GIB,
    KIB,
    MIB,
    MS_MAX,
    choice,
    endpoint,
    flag,
    number,
    path,
    place,
    settings_of,
    text,
)

LogShape = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
Durability = Literal["fsync", "os", "buffered"]
CodecName = Literal["none", "zstd", "lz4", "gzip"]

# Offsets inside of a body are Arrow's int32.
_BODY_BYTES_MAX = 2 * GIB - 1
# Each message has at least its offset in a body.
_BATCH_MESSAGES_MAX = _BODY_BYTES_MAX // 4 - 1
# What a frame needs besides its messages' bytes: the header, offsets, bitmaps and padding.
_FRAME_OVERHEAD_BYTES = 4 * KIB
_GZIP_LEVEL_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """How a log is written and how much of it is kept. Raises InvalidSettings."""

    durability: Durability = choice(
        "fsync", "When a write is done: on stable storage, with the OS, or in the buffer."
    )
    fsync_interval_ms: int = number(
        1000, "How often durability `os` makes the log safe from power loss.", highest=MS_MAX
    )
    linger_ms: int = number(
        5, "How long durability `buffered` holds a message back at most.", lowest=0, highest=MS_MAX
    )
    batch_messages: int = number(
        1000, "How many messages are gathered into one frame at most.", highest=_BATCH_MESSAGES_MAX
    )
    batch_bytes: int = number(
        1 * MIB, "A batch that has gathered this much becomes a frame.", highest=_BODY_BYTES_MAX
    )
    segment_bytes: int = number(64 * MIB, "A segment of this size is followed by a new one.")
    segment_messages: int | None = number(None, "A segment of this many messages is followed by a new one.")
    segment_ms: int | None = number(None, "A segment of this age is followed by a new one.", highest=MS_MAX)
    index_interval_bytes: int = number(
        4 * KIB, "How far apart in the log the entries of its sparse index are."
    )
    retention_ms: int | None = number(
        None, "A segment goes once all its messages are older.", highest=MS_MAX
    )
    retention_bytes: int | None = number(None, "The oldest segments go while the log is larger than this.")
    retention_messages: int | None = number(
        None, "The oldest segments go while the log holds more messages than this."
    )
    segments_max: int | None = number(None, "The oldest segments go while there are more.")
    segments_min: int = number(1, "This many segments stay, whatever the retention limits say.")
    codec: CodecName = choice("none", "How a frame is compressed, if that saves 5 % or more.")
    compression_level: int | None = number(
        None,
        "How hard the codec tries: 1 to 22 for zstd, which has 1 by default, 1 to 9 for gzip, which has 6.",
        highest=22,
    )
    compression_bytes_min: int = number(0, "A frame with a smaller body is not compressed.", lowest=0)
    message_bytes_max: int = number(2 * MIB, "A larger message is refused.", highest=_BODY_BYTES_MAX)
    frame_messages_max: int = number(
        100_000, "A batch of more messages is refused.", highest=_BATCH_MESSAGES_MAX
    )
    frame_bytes_max: int = number(
        16 * MIB, "A frame that is larger as stored is refused.", highest=_BODY_BYTES_MAX
    )
    frame_raw_bytes_max: int = number(
        64 * MIB, "A body that is larger after decompression is refused.", highest=_BODY_BYTES_MAX
    )

    def __post_init__(self) -> None:
        for name, setting in settings_of(StorageSettings).items():
            try:
                setting.check(getattr(self, name))
            except ValueError as error:
                raise _invalid(name, str(error)) from None
        self._check_order("segments_min", "segments_max")
        self._check_order("batch_messages", "frame_messages_max")
        self._check_order("message_bytes_max", "frame_bytes_max", margin=_FRAME_OVERHEAD_BYTES)
        self._check_order("batch_bytes", "frame_bytes_max", margin=_FRAME_OVERHEAD_BYTES)
        if reason := wrong_level(self.codec, self.compression_level):
            raise _invalid("compression_level", reason)
        # Without a codec the stored body is the raw one, so one limit must not forbid the other.
        self._check_order("frame_bytes_max", "frame_raw_bytes_max")

    def _check_order(self, small: str, large: str, *, margin: int = 0) -> None:
        low, high = getattr(self, small), getattr(self, large)
        if high is None or low + margin <= high:
            return
        # Blame the one that was changed: that is the one somebody can look up.
        blamed = large if high != settings_of(StorageSettings)[large].default else small
        raise _invalid(
            blamed,
            f"{large} is {high} and must be at least {low + margin}, that is {small}"
            + (f" + {margin}" if margin else ""),
        )


def wrong_level(codec: str, level: int | None) -> str:
    """Why a codec cannot have a level, or nothing."""
    is_wrong = codec == "gzip" and level is not None and level > _GZIP_LEVEL_MAX
    return f"{level} is more than {_GZIP_LEVEL_MAX}, the highest of gzip" if is_wrong else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How the queue as a whole looks after itself. Raises InvalidSettings."""

    free_bytes_min: int = number(
        32 * MIB,
        "Messages are refused while the disk has less room, so that acks still have some.",
        lowest=0,
    )
    topics_max: int = number(20_000, "How many topics there may be. Dead letters get theirs all the same.")
    partitions_max: int = number(100_000, "How many partitions all topics may have together.")
    groups_max: int = number(
        100_000, "How many groups there may be, each counted once for every topic that it is in."
    )
    topic_groups_max: int = number(10_000, "How many groups one topic may have.")
    files_max: int | None = number(
        None,
        "How many files are kept open for writing; by default half of what the process may have open.",
        lowest=4,
    )
    maintenance_interval_ms: int = number(
        500, "How often leases that ran out and the room on the disk are looked at.", highest=MS_MAX
    )
    retention_interval_ms: int = number(
        30_000, "How often what is no longer kept is removed.", highest=MS_MAX
    )

    def __post_init__(self) -> None:
        for name, setting in settings_of(EngineSettings).items():
            try:
                setting.check(getattr(self, name))
            except ValueError as error:
                raise _invalid(name, str(error), "engine") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where and how the broker serves, and what it refuses. Raises InvalidSettings."""

    data: Path | str | None = place("The data directory, or the URL of a bucket.")
    host: str = text(
        "127.0.0.1",
        "The address to listen on. One that others can reach needs a key first.",
        pattern=r"[A-Za-z0-9:%._-]*",
        expected="an address such as 127.0.0.1, ::1 or 0.0.0.0, or the name of one",
    )
    port: int = number(7070, "The port to listen on; 0 takes one that is free.", lowest=0, highest=65535)
    tls_certificate: Path | None = path("A certificate in PEM, with its chain: then it serves https.")
    tls_key: Path | None = path("The private key of the certificate, if it is in another file.")
    keys: Path | None = path(
        "The file of the hashes of API keys; by default `keys.json` in the data directory."
    )
    backup_target: str = text(
        "",
        "Where clients may have the broker write backups: a directory, or a URL such as s3://bucket/path.",
        pattern=r"[^\x00-\x1f]*",
        expected="a directory, or a URL",
    )
    log: LogShape = choice("text", "How the log on standard error is written.")
    log_level: LogLevel = choice("info", "What is worth a line in the log.")
    threads: int = number(8, "How many calls may wait for the disk at the same time.", highest=256)
    connections_max: int = number(12_000, "A connection more is answered with 503 and closed.")
    body_bytes_max: int = number(
        32 * MIB, "A request with a larger body is answered with 413 before it is read."
    )
    memory_bytes_max: int = number(
        256 * MIB,
        "How much all clients together may make the broker hold: bodies that arrive, answers until they are"
        " taken, TLS handshakes. Then who stands still is cut off, and a body more is answered with 503.",
    )
    head_bytes_max: int = number(
        32 * KIB, "A request with a longer line and headers is answered with 431.", lowest=KIB
    )
    read_timeout_ms: int = number(
        30_000, "A client that takes longer to send a request is cut off.", highest=MS_MAX
    )
    idle_timeout_ms: int = number(
        600_000, "A connection without a request for so long is closed.", highest=MS_MAX
    )
    write_timeout_ms: int = number(
        30_000, "A client that takes nothing of its answer for so long is cut off.", highest=MS_MAX
    )
    drain_timeout_ms: int = number(
        10_000, "How long calls that have begun may take once the broker is told to stop.", highest=MS_MAX
    )
    wait_ms_max: int = number(60_000, "A receive waits no longer, whatever it asks for.", highest=MS_MAX)
    requests_per_second: int | None = number(
        None, "A client that sends more is answered with 429; a burst of one second's worth may pass."
    )
    session_timeout_ms: int = number(
        30_000,
        "A member of a group that is not heard of for so long has left, unless it names a time itself.",
        lowest=100,
        highest=3_600_000,
    )

    def __post_init__(self) -> None:
        for name, setting in settings_of(ServerSettings).items():
            try:
                setting.check(getattr(self, name))
            except ValueError as error:
                raise _invalid(name, str(error), "server") from None
        if self.memory_bytes_max < self.body_bytes_max:
            # Blame the one that was changed.
            is_small = self.memory_bytes_max != settings_of(ServerSettings)["memory_bytes_max"].default
            raise _invalid(
                "memory_bytes_max" if is_small else "body_bytes_max",
                f"memory_bytes_max is {self.memory_bytes_max} and must be at least {self.body_bytes_max},"
                " that is body_bytes_max",
                "server",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSettings:
    """How a queue uses the bucket that it is in. What is secret is not here. Raises InvalidSettings."""

    endpoint: str | None = endpoint(
        "Where the store answers, unless where its maker's does. `http://` is without TLS."
    )
    region: str | None = text(
        None, "The region of the bucket.", pattern=r"[A-Za-z0-9-]+", expected="a name such as eu-central-1"
    )
    cache: Path | None = path(
        "The directory on this machine for what is open of the queue; by default one in the user's cache."
    )
    cache_bytes_max: int | None = number(
        None,
        "How large the cache may get before sealed segments leave it and are read from the store.",
        lowest=0,
    )
    cache_free_bytes_min: int = number(
        1024 * MIB, "How much room is left on the disk of the cache before they do.", lowest=0
    )
    request_timeout_ms: int = number(
        10_000, "How long the store may take for one request, large ones included.", highest=3_600_000
    )
    commit_timeout_ms: int = number(
        30_000,
        "How long a call waits for a store that does not answer, before it fails.",
        highest=86_400_000,
    )
    owner_check_ms: int = number(
        10_000,
        "How often an owner that has nothing to store looks whether somebody else has taken over.",
        highest=86_400_000,
    )
    uncommitted_bytes_max: int = number(
        64 * MIB, "How far writes may be ahead of the store before they have to wait for it."
    )
    checkpoint_bytes: int = number(
        16 * MIB, "After so many bytes a checkpoint is made, so that the queue opens sooner."
    )
    checkpoint_chunks: int = number(
        256, "After so many chunks a checkpoint is made, whichever comes first.", highest=100_000
    )
    garbage_delay_ms: int = number(
        300_000,
        "How long an object that is not needed any more is kept, for those who are still reading it.",
        lowest=0,
        highest=MS_MAX,
    )

    def __post_init__(self) -> None:
        for name, setting in settings_of(BucketSettings).items():
            try:
                setting.check(getattr(self, name))
            except ValueError as error:
                raise _invalid(name, str(error), "bucket") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a client of a broker waits and tries again. Raises InvalidSettings."""

    timeout_ms: int = number(30_000, "How long a broker may be silent.", highest=86_400_000)
    retries: int = number(
        8, "How often a call that is safe to repeat is made again.", lowest=0, highest=2**31
    )
    backoff_ms: int = number(
        50, "How long the first repetition waits at most; doubles with each.", highest=3_600_000
    )
    backoff_ms_max: int = number(5000, "Where that doubling ends.", highest=3_600_000)
    failover_ms: int = number(
        30_000,
        "In a cluster, how long a call waits for the next owner of its shard.",
        lowest=0,
        highest=3_600_000,
    )
    session_timeout_ms: int = number(
        30_000,
        "A consumer that the broker does not hear of for so long has left its group.",
        lowest=100,
        highest=3_600_000,
    )
    heartbeat_ms: int | None = number(
        None,
        "How often a consumer is heard of; by default four times in `session_timeout_ms`.",
        lowest=10,
        highest=3_600_000,
    )

    def __post_init__(self) -> None:
        for name, setting in settings_of(ClientSettings).items():
            try:
                setting.check(getattr(self, name))
            except ValueError as error:
                raise _invalid(name, str(error), "client") from None
        if self.backoff_ms > self.backoff_ms_max:
            reason = f"is {self.backoff_ms_max} and must be at least {self.backoff_ms}, that is backoff_ms"
            raise _invalid("backoff_ms_max", reason, "client")
        if self.heartbeat_ms is not None and self.heartbeat_ms >= self.session_timeout_ms:
            reason = f"is {self.heartbeat_ms} and must be less than {self.session_timeout_ms}"
            raise _invalid("heartbeat_ms", f"{reason}, that is session_timeout_ms", "client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Which cluster a broker belongs to, and as what. Raises InvalidSettings."""

    etcd: str = text(
        "",
        "Where etcd is, and the name of the cluster, such as etcd://a:2379,b:2379,c:2379/quiver.",
        pattern=r"(etcd://[A-Za-z0-9\[\]:._-]+(,[A-Za-z0-9\[\]:._-]+)*(/[A-Za-z0-9._-]*)?)?",
        expected="etcd://host:2379,host2:2379/name, the name being `quiver` if it is left out",
    )
    etcd_user: str = text(
        "",
        "Whom etcd knows this broker as. The password goes into `QUIVER_ETCD_PASSWORD`.",
        pattern=r"[^\x00-\x1f]*",
        expected="the name of a user",
    )
    etcd_ca: Path | None = path("The certificates in PEM that vouch for etcd: then it is asked over https.")
    etcd_certificate: Path | None = path("The certificate in PEM by which etcd knows this broker.")
    etcd_key: Path | None = path("The private key of that certificate, if it is in another file.")
    bucket: str = text(
        "",
        "The bucket of the cluster. It need not be said: the cluster knows it.",
        pattern=r"([a-z0-9]+://\S+)?",
        expected="a URL such as s3://bucket/prefix",
    )
    advertise: str = text(
        "",
        "The URL by which clients and the other brokers reach this one; by default where it listens.",
        pattern=r"(https?://\S+)?",
        expected="a URL such as http://broker-1:7070",
    )
    id: str = text(
        "",
        "What this broker is called; by default the host and the port of its URL.",
        pattern=r"[A-Za-z0-9._:\[\]-]{0,200}",
        expected="letters, digits, dots, dashes and colons",
    )
    capacity: int = number(
        1, "One of capacity 2 owns twice as many shards as one of capacity 1.", highest=1000
    )
    lease_s: int = number(
        6, "A broker that etcd does not hear of for so many seconds has lost its shards.", highest=3600
    )
    forward: bool = flag(
        True, "Whether a call for another broker's shard is handed on, or answered with 307 and its URL."
    )

    def __post_init__(self) -> None:
        for name, setting in settings_of(ClusterSettings).items():
            try:
                setting.check(getattr(self, name))
            except ValueError as error:
                raise _invalid(name, str(error), "cluster") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, one attribute a section."""

    storage: StorageSettings = field(default_factory=StorageSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    bucket: BucketSettings = field(default_factory=BucketSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    topics: Mapping[str, Any] = field(default_factory=dict)
    """What topics are made with, as in `[topics]` of the file: settings of a topic by name, and by pattern
    settings of the topics that it stands for. Checked by whoever knows topics."""
    topic_origins: Mapping[tuple[str, str], str] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    """Where each came from, by pattern, which is empty for all topics, and name."""


def _invalid(name: str, reason: str, section: str = "storage") -> InvalidSettings:
    return InvalidSettings(f"{section}.{name}", reason, origin="arguments")
