"""The benchmarks run and tell what they measured. How fast anything was is never asserted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from support.spark_classes import QUICK_START

from benchmarks import peers
from benchmarks.contest import Taking, put_each, put_round, take_each, take_round
from benchmarks.scale import TINY
from benchmarks.stores import Open, Quiver, QuiverPop, Store
from benchmarks.workload import Bench
from quivermq.settings import Durability

ROOT = Path(__file__).parents[2]
STORAGE_AND_QUEUE = [
    "append_many",
    "append_sustained",
    "append_one",
    "fsync_one",
    "fsync_many",
    "read",
    "open",
    "arrow",
    "memory",
    "codec",
    "queue_put",
    "queue_get",
    "backlog",
    "delayed",
    "reopen",
]
BROKER = [
    "broker_publish",
    "broker_frames",
    "broker_producer",
    "broker_receive",
    "broker_latency",
    "broker_memory",
]
SPARK = ["spark_scan", "spark_jobs", "spark_stream"]
GROUPS = [*STORAGE_AND_QUEUE, *BROKER, *SPARK]


def benchmarks(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        # A Java that is ready soon: how fast it would become is not asked here.
        env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_START},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "names", [STORAGE_AND_QUEUE, BROKER, SPARK], ids=["storage and queue", "broker", "spark"]
)
def test_every_row_has_a_figure_and_its_limits(names: Sequence[str], tmp_path: Path) -> None:
    data, report = tmp_path / "data", tmp_path / "report.json"
    only = [f"--only={name}" for name in names]
    result = benchmarks("--tiny", *only, "--json", report, "--data", data)
    assert result.returncode == 0, result.stderr
    content = json.loads(report.read_text())
    assert content["source"]["digest"] in result.stdout
    groups = content["groups"]
    assert list(groups) == names
    assert all(groups.values())
    for row in [row for rows in groups.values() for row in rows if "skipped" not in row]:
        assert row["value"] >= 0
        assert row["limits"]
        assert row["limited_by"]
        assert (row["met"] is None) == (row["goal"] is None)
    assert list(data.iterdir()) == [], "the logs were not removed"


def test_the_table_has_the_rows_and_fits_the_screen(tmp_path: Path) -> None:
    result = benchmarks("--tiny", "--only", "append_many", "--data", tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("append_many(")] == [
        "append_many(100)",
        "append_many(1000)",
    ]
    assert all("os.write" in line for line in lines if line.startswith("append_many("))
    assert "read values" not in result.stdout
    assert max(map(len, lines)) <= 140


def test_an_unknown_group_is_refused_with_those_there_are() -> None:
    result = benchmarks("--only", "nonsense")
    assert result.returncode == 2
    assert all(name in result.stderr for name in GROUPS)


DURABILITIES: list[Durability] = ["fsync", "os", "buffered"]


def stores(durability: Durability) -> dict[str, Open]:
    return {
        "Quiver": partial(Quiver, durability=durability),
        "Quiver's pop": partial(QuiverPop, durability=durability),
        **peers.with_acks(durability),
        **peers.without_acks(durability),
    }


STORES = {
    f"{name} at {durability}": opens
    for durability in DURABILITIES
    for name, opens in stores(durability).items()
}
VALUES = [b"a" * 100, b"b" * 100, b"c" * 100, b"d" * 100]


@pytest.mark.parametrize("opens", STORES.values(), ids=STORES)
def test_every_store_keeps_what_it_is_given_until_it_is_taken(opens: Open, tmp_path: Path) -> None:
    store = opens(tmp_path)
    store.put(VALUES)
    assert store.take(1) == VALUES[:1]
    store.close()
    store = opens(tmp_path)
    assert store.values() == VALUES[1:]
    store.close()


@pytest.mark.parametrize("opens", [STORES["Quiver at os"], *peers.in_batches("os").values()])
def test_a_store_puts_batches(opens: Open, tmp_path: Path) -> None:
    store = opens(tmp_path)
    store.put_batches([VALUES[:2], VALUES[2:]])
    assert store.values() == VALUES
    store.close()


class Forgetful(Store):
    """Keeps its messages in a list for as long as the test runs, and fails in one way."""

    def __init__(self, path: Path, kept: list[bytes], keep: Callable[[Sequence[bytes]], None]) -> None:
        self._kept = kept
        self._keep = keep

    def put(self, values: Sequence[bytes]) -> None:
        self._keep(values)

    def take(self, count: int) -> list[bytes]:
        taken = self._kept[:count]
        del self._kept[:count]
        return taken

    def values(self) -> list[bytes]:
        return list(self._kept)

    def close(self) -> None:
        pass


def forgetful(change: Callable[[list[bytes]], Sequence[bytes]]) -> Open:
    """A store that changes whatever comes after the message that every store is opened with."""
    kept: list[bytes] = []

    def keep(values: Sequence[bytes]) -> None:
        kept.extend(values if len(values) == 1 else change(list(values)))

    return lambda path: Forgetful(path, kept, keep)


LIES: dict[str, Callable[[list[bytes]], Sequence[bytes]]] = {
    "one is missing": lambda values: values[:-1],
    "one is there twice": lambda values: [*values, values[-1]],
    "one has another value": lambda values: [*values[:-1], b"x" * 100],
    "two changed places": lambda values: [values[1], values[0], *values[2:]],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_figure_is_not_told_of_a_store_that_did_something_else(
    lie: Callable[[list[bytes]], Sequence[bytes]], tmp_path: Path
) -> None:
    bench = Bench(tmp_path, TINY)
    with pytest.raises(RuntimeError), put_round(bench, forgetful(lie), VALUES, put_each) as work:
        assert work() == len(VALUES)
    with (
        pytest.raises(RuntimeError),
        take_round(bench, forgetful(lie), VALUES, put_each, take_each) as work,
    ):
        work()


def test_a_figure_is_not_told_of_a_taker_that_settles_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TINY)
    peek: Taking = lambda store, count: store.values()[:count]  # noqa: E731 - It stands for a call.
    with pytest.raises(RuntimeError), take_round(bench, forgetful(list), VALUES, put_each, peek) as work:
        work()


def test_an_honest_store_gets_its_figure(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TINY)
    with take_round(bench, forgetful(list), VALUES, put_each, take_each) as work:
        assert work() == len(VALUES) // 2
