"""The jobs that do their work inside the executors: audit, report, archive."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import quivermq.spark
from benchmarks.measure import Prepare, Work, counted
from benchmarks.race import Race, Subject, itself
from benchmarks.row import Goal
from benchmarks.shape import Shape
from benchmarks.spark.machine import on_machine
from benchmarks.spark.store import PARTITIONS, TOPIC, Store, filled_stores
from benchmarks.workload import Bench, check, fresh_directory, mapped

_INSIDE = Goal("at least", 20e6)
_AUDIT, _REPORT, _ARCHIVE = "audit", "report", "archive"


def spark_jobs(bench: Bench) -> Iterable[Race]:
    """Each over the same store."""
    run = on_machine(bench.scale.spark_rounds)
    inside = [
        Subject("audit", _AUDIT, _INSIDE, figure=itself),
        Subject("report, with its page", _REPORT, _INSIDE, figure=itself),
    ]
    with filled_stores(bench) as stores:
        yield Race(partial(_inside, stores), inside, run)
        archive = Subject("archive", _ARCHIVE, Goal("share", 3), figure=itself)
        yield Race(partial(_written, stores), [archive], run)


def _inside(stores: Mapping[Shape, Store], shape: Shape) -> dict[str, Prepare]:
    store = stores[shape]
    works: dict[str, Callable[[Store], None]] = {
        _AUDIT: _audit,
        _REPORT: _report,
        "crc32c of the mapped files, one core": _checksums,
    }
    return {name: counted(partial(work, store), store.messages) for name, work in works.items()}


def _written(stores: Mapping[Shape, Store], shape: Shape) -> dict[str, Prepare]:
    store = stores[shape]
    return {
        _ARCHIVE: _writing(store, _archive),
        "df.write.parquet, zstd too": _writing(store, _write_parquet),
    }


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
