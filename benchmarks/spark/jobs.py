"""The jobs that do their work inside the executors: audit, report, archive."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import quivermq.spark
from benchmarks.measure import Prepare, Work, alternate, counted
from benchmarks.row import Goal, Row, row_of
from benchmarks.spark.store import Store, filled_store
from benchmarks.workload import Bench, fresh_directory

_INSIDE = Goal("at least", 20e6)


def spark_jobs(bench: Bench) -> Iterable[Row]:
    """Each over the same store."""
    with filled_store(bench) as store:
        measured = alternate(
            {
                "audit": counted(partial(_audit, store), store.messages),
                "report": counted(partial(_report, store), store.messages),
            },
            bench.scale.spark_rounds,
        )
        yield row_of("audit", measured["audit"], {}, goal=_INSIDE)
        yield row_of("report", measured["report"], {}, goal=_INSIDE)
        measured = alternate(
            {"archive": _writing(store, _archive), "write": _writing(store, _write_parquet)},
            bench.scale.spark_rounds,
        )
    beside = {"df.write.parquet": measured["write"]}
    yield row_of("archive", measured["archive"], beside, goal=Goal("share", 3))


def _audit(store: Store) -> None:
    found = quivermq.spark.audit(path=store.data, spark=store.spark)
    if found.messages != store.messages or found.findings:
        raise RuntimeError(f"the audit saw {found}")


def _report(store: Store) -> None:
    found = quivermq.spark.report(path=store.data, to=store.path / "report.html", spark=store.spark)
    if found.messages != store.messages:
        raise RuntimeError(f"the report saw {found}")


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


def _write_parquet(store: Store, target: Path) -> None:
    store.read().write.option("compression", "zstd").parquet(str(target))
