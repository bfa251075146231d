"""The table of the README, made of the rows of a run: plain and real messages, and the peers beside it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.row import Figure, Row, Skipped, short
from benchmarks.shape import SHAPES, Shape

_HEAD = ("in messages a second", "plain", "real", "real / plain", "beside it, plain (real)")


@dataclass(frozen=True, slots=True)
class _Line:
    """What a line is called, the row that it shows, and the limits beside it, by how their names begin."""

    label: str
    group: str
    row: str
    beside: Mapping[str, str]


_SQLITE = {
    "persist-queue Ack": "persist-queue",
    "huey": "huey",
    "litequeue": "litequeue",
    "diskcache": "diskcache",
}
_BROKERS = {"NATS": "NATS JetStream", "Redis": "Redis Streams"}
_LOG = {"append to the log": "the log alone", "append_many to the log": "the log alone"}

_LINES = (
    _Line("`put`, one by one, `os`", "queue_put", "put at os, 1 thread", _LOG | _SQLITE),
    _Line("`put`, 64 threads, `fsync`", "queue_put", "put at fsync, * threads", _LOG | _SQLITE),
    _Line("`put_many(100)`, `os`", "queue_put", "put_many(100) at os", _LOG | _SQLITE),
    _Line("`get` + `ack`, one by one, `os`", "queue_get", "get + ack at os", _SQLITE),
    _Line("`get_many(100)` + `ack`, `os`", "queue_get", "get_many(100) + ack at os", _SQLITE),
    _Line(
        "the broker, a message a request, 64 connections, `os`",
        "broker_publish",
        "raw at os, * connections",
        _BROKERS,
    ),
    _Line("the same as JSON", "broker_publish", "JSON at os, * connections", {}),
    _Line(
        "the broker, a message a request, `fsync`",
        "broker_publish",
        "raw at fsync, * connections",
        _BROKERS,
    ),
    _Line("the same as JSON", "broker_publish", "JSON at fsync, * connections", {}),
    _Line("the broker, frames of 1000, `os`", "broker_frames", "frames of * at os", _BROKERS),
    _Line("the same, `fsync`", "broker_frames", "frames of * at fsync", _BROKERS),
    _Line("the client's producer, `os`", "broker_producer", "producer.send at os", {}),
    _Line(
        "the client, `get_many(100)` + `ack`, `os`", "broker_receive", "get_many(100) + ack at os", _BROKERS
    ),
    _Line(
        "Spark, `audit` of every byte and offset",
        "spark_jobs",
        "audit",
        {"crc32c": "CRC of the files alone, on one core,"},
    ),
    _Line(
        "Spark, `sum(length(value))`, all columns",
        "spark_scan",
        "all columns",
        {"Parquet": "uncompressed Parquet, native", "a source": "a source of tuples"},
    ),
    _Line(
        "Spark, a stream that catches up",
        "spark_stream",
        "catching up from a directory",
        {"the same": "the same as a batch"},
    ),
    _Line(
        "Spark, `archive` to Parquet, zstd",
        "spark_jobs",
        "archive",
        {"df.write": "`df.write.parquet` from the same source"},
    ),
)


def markdown(groups: Mapping[str, Iterable[Row | Skipped]]) -> str:
    """The lines whose rows were measured."""
    found = {name: [row for row in rows if isinstance(row, Row)] for name, rows in groups.items()}
    rows = [_HEAD, tuple("---" for _ in _HEAD)]
    for line in _LINES:
        twins = {
            row.shape: row for row in found.get(line.group, ()) if fnmatchcase(row.name, _literal(line.row))
        }
        if twins:
            rows.append(_cells(line, twins))
    return (
        "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
        .replace("| --- ", "|---")
        .replace("--- |", "---|")
    )


def _literal(pattern: str) -> str:
    """Only `*` stands for something: names have brackets of their own."""
    return pattern.replace("[", "[[]")


def _cells(line: _Line, twins: Mapping[Shape, Row]) -> tuple[str, ...]:
    values = {shape: row.figure.value for shape, row in twins.items()}
    plain, real = values.get("plain"), values.get("real")
    return (
        line.label,
        *("" if value is None else short(value) for value in (plain, real)),
        f"{real / plain:.2f}" if plain and real else "",
        ", ".join(_beside(line, twins)),
    )


def _beside(line: _Line, twins: Mapping[Shape, Row]) -> Iterator[str]:
    for begin, label in line.beside.items():
        plain, real = (_limit(twins.get(shape), begin) for shape in SHAPES)
        if plain is not None:
            yield f"{label} {short(plain.value)}{'' if real is None else f' ({short(real.value)})'}"


def _limit(row: Row | None, begin: str) -> Figure | None:
    if row is None:
        return None
    return next((limit for name, limit in row.limits.items() if name.startswith(begin)), None)
