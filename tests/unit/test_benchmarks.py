"""The benchmarks run and tell what they measured. How fast anything was is never asserted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.spark_classes import QUICK_START

import quivermq
from benchmarks import peers
from benchmarks.contest import Taking, put_each, put_round, take_each, take_round
from benchmarks.markdown import markdown
from benchmarks.messages import contents, random_messages
from benchmarks.race import PLAIN_MESSAGES
from benchmarks.row import Figure, Row, Skipped
from benchmarks.scale import TINY
from benchmarks.shape import SHAPES
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
CLUSTER = ["cluster_owner"]
SPARK = ["spark_scan", "spark_jobs", "spark_stream"]
GROUPS = [*STORAGE_AND_QUEUE, *BROKER, *CLUSTER, *SPARK]
# Nothing is put while it is measured.
WITHOUT_MESSAGES = {"broker_memory"}


def benchmarks(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        # A Java that is ready soon: how fast it would become is not asked here.
        env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_START},
        capture_output=True,
        text=True,
    )


def assert_every_row_has_a_twin(rows: list[dict[str, Any]]) -> None:
    plain, real = ([row for row in rows if row["messages"] == shape] for shape in SHAPES)
    assert [row["name"] for row in plain] == [row["name"] for row in real]
    for row, twin in zip(plain, real, strict=True):
        assert (twin["limits"][0]["name"], twin["limits"][0]["value"]) == (PLAIN_MESSAGES, row["value"])


@pytest.mark.parametrize(
    "names",
    [STORAGE_AND_QUEUE, BROKER, CLUSTER, SPARK],
    ids=["storage and queue", "broker", "cluster", "spark"],
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
        assert row["cpu_s"] is None or row["cpu_s"] >= 0
        assert row["unit"] != "messages/s" or row["cpu_s"] is not None
    for name in set(names) - WITHOUT_MESSAGES:
        assert_every_row_has_a_twin([row for row in groups[name] if "skipped" not in row])
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


def test_only_messages_of_one_shape_are_measured_when_that_is_asked_for(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    only = ["--only", "append_many", "--messages", "real"]
    result = benchmarks("--tiny", *only, "--data", tmp_path / "data", "--json", report)
    assert result.returncode == 0, result.stderr
    rows = json.loads(report.read_text())["groups"]["append_many"]
    assert [row["messages"] for row in rows] == ["real", "real"]
    assert not [limit for row in rows for limit in row["limits"] if limit["name"] == PLAIN_MESSAGES]


def another_version(tmp_path: Path) -> Path:
    """This one, but without the messages that have a key: as if it were from before them."""
    package = Path(quivermq.__file__).parent
    (tmp_path / "src" / "quivermq").mkdir(parents=True)
    (tmp_path / "src" / "quivermq" / "__init__.py").write_text(
        f"__path__ = [{str(package)!r}]\n"
        f"exec(open({str(package / '__init__.py')!r}).read())\n"
        "Message = None\n"
    )
    return tmp_path / "src"


def test_two_versions_take_turns_and_what_one_cannot_run_is_said(tmp_path: Path) -> None:
    other, report, data = another_version(tmp_path), tmp_path / "report.json", tmp_path / "data"
    only = ["--only", "queue_put", "--only", "append_many"]
    result = benchmarks(
        "--tiny", *only, "--beside", other, "--rounds", "2", "--json", report, "--data", data
    )
    assert result.returncode == 0, result.stderr
    assert "put_many(100) at os, real cannot run in the other version: TypeError" in result.stdout
    rows = json.loads(report.read_text())["groups"]
    for row in rows["queue_put"]:
        assert row["values"]["this"] > 0
        assert row["cpu_s"]["this"] > 0
        assert (row["ratio"] is None) == (row["messages"] == "real")
        assert ("the other" in row["missing"]) == (row["messages"] == "real")
    assert all(row["missing"] for row in rows["append_many"])
    assert list(data.iterdir()) == [], "the logs were not removed"


def test_another_version_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = benchmarks("--beside", tmp_path)
    assert result.returncode == 2
    assert f"there is no quivermq in {tmp_path}" in result.stderr


def test_the_table_of_the_readme_has_plain_and_real_messages_beside_the_peers() -> None:
    plain = {"append to the log": Figure(150e3), "huey, NORMAL": Figure(20e3)}
    real = {PLAIN_MESSAGES: Figure(100e3), "append to the log": Figure(90e3)}
    rows: list[Row | Skipped] = [
        Row("put at os, 1 thread", "messages/s", Figure(100e3), plain),
        Row("put at os, 1 thread", "messages/s", Figure(62e3), real, shape="real"),
        Row("put at buffered, 1 thread", "messages/s", Figure(1e6)),
        Skipped("put at fsync, 1 thread", "no disk"),
    ]
    assert markdown({"queue_put": rows}).splitlines()[1:] == [
        "|---|---|---|---|---|",
        "| `put`, one by one, `os` | 100 k | 62 k | 0.62 | the log alone 150 k (90 k), huey 20 k |",
    ]


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


@pytest.mark.parametrize("store_class", [Quiver, QuiverPop])
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_store_of_real_messages_keeps_all_that_is_in_them(
    store_class: type[Quiver], durability: Durability, tmp_path: Path
) -> None:
    messages = random_messages(4, "real")
    store = store_class(tmp_path, durability, "real")
    store.put(messages[:2])
    store.put_batches([messages[2:]])
    assert store.take(1) == contents(messages[:1])
    assert store.take_batches(2, 1) == contents(messages[1:3])
    store.close()
    store = store_class(tmp_path, durability, "real")
    assert store.values() == contents(messages[3:])
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
