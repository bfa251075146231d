"""The jobs that do their work inside the executors: audit, report, archive."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import quivermq.spark
from benchmarks.measure import Prepare, Work, counted
from benchmarks.row import Goal, Row
from benchmarks.spark.machine import Contest
from benchmarks.spark.store import PARTITIONS, TOPIC, Store, filled_store
from benchmarks.workload import Bench, check, fresh_directory, mapped

_INSIDE = Goal("at least", 20e6)
_CHECKSUMS = {"crc32c of the mapped files, one core": "checksums"}


def spark_jobs(bench: Bench) -> Iterable[Row]:
    """Each over the same store."""
    contest = Contest(bench.scale.spark_rounds)
    with filled_store(bench) as store:
        contest.run(
            {
                "audit": counted(partial(_audit, store), store.messages),
                "report": counted(partial(_report, store), store.messages),
                "checksums": counted(partial(_checksums, store), store.messages),
            }
        )
        yield contest.row("audit", "audit", _CHECKSUMS, _INSIDE)
        yield contest.row("report, with its page", "report", _CHECKSUMS, _INSIDE)
        contest.run({"archive": _writing(store, _archive), "write": _writing(store, _write_parquet)})
    yield contest.row("archive", "archive", {"df.write.parquet, zstd too": "write"}, Goal("share", 3))


def _audit(store: Store) -> None:
    found = quivermq.spark.audit(path=store.data, spark=store.spark)
    if found.messages != store.messages or found.findings:
        raise RuntimeError(f"the audit saw {found}")


def _report(store: Store) -> None:
    found = quivermq.spark.report(path=store.data, to=store.path / "report.html", spark=store.spark)
    if found.messages != store.messages:
        raise RuntimeError(f"the report saw {found}")


def _checksums(store: Store) -> None:
    for partition in range(PARTITIONS):
        with mapped(
            sorted((store.data / "topics" / TOPIC / f"p{partition}" / "normal").glob("*.log"))
        ) as files:
            check(files)


def _writing(store: Store, write: Callable[[Store, Path], None]) -> Prepare:
    @contextmanager
    def prepare() -> Iterator[Work]:
        with fresh_directory(store.path) as target:

            def work() -> int:
                write(store, target / "out")
                return store.messages

            yield work
            rows = store.spark.read.parquet(str(target / "out")).count()
            if rows != store.messages:
                raise RuntimeError(f"{rows} rows were written, there are {store.messages}")

    return prepare


def _archive(store: Store, target: Path) -> None:
    quivermq.spark.archive(path=store.data, to=target, age=0, spark=store.spark)
    # Only here is a store archived again and again, each time to another place.
    (store.data / "archive.json").unlink(missing_ok=True)


def _write_parquet(store: Store, target: Path) -> None:
    store.read().write.option("compression", "zstd").parquet(str(target))
