import json
import tempfile
from pathlib import Path

import pytest
from support.command import table_rows
from support.command_inside import quiver

import quivermq

QUICK = ("--duration", "1ms", "--batch", "10")


def test_without_a_place_a_temporary_directory_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ran = quiver("bench", *QUICK, "--json", env={"QUIVER_SERVER": "http://127.0.0.1:1"})
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["where"].startswith(str(tmp_path))
    assert [(each["what"], each["durability"]) for each in told["results"]] == [
        (what, durability)
        for durability in ("fsync", "os", "buffered")
        for what in ("put", "put_many", "get_many + ack")
    ]
    assert all(each["messages"] > 0 and each["messages_per_second"] > 0 for each in told["results"])
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders")
    ran = quiver("bench", *QUICK, "--durability", "os", "--threads", "2", "--data", tmp_path)
    assert [row[:2] for row in table_rows(ran.text)] == [
        ["put", "os"],
        ["put_many, 10 a call", "os"],
        ["get_many + ack, 10 a call", "os"],
    ]
    assert f"measured in {tmp_path}: messages of 100 bytes, 2 threads call" in ran.err
    with quivermq.open(tmp_path) as mq:
        assert mq.topics() == ["orders"]


@pytest.mark.parametrize(
    "arguments", [["--durability", "paper"], ["--duration", "long"], ["--size", "0"], ["--threads", "0"]]
)
def test_a_wrong_call_measures_nothing(tmp_path: Path, arguments: list[str]) -> None:
    ran = quiver("bench", *arguments, "--data", tmp_path / "data")
    assert (ran.code, ran.out) == (2, b"")
    assert not (tmp_path / "data").exists()


def test_what_a_killed_bench_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with quivermq.open(tmp_path / "quiver-bench-left") as mq:
        mq.create_topic("quiver-bench-1")
    with quivermq.open(tmp_path / "quiver-bench-running"):
        assert quiver("bench", *QUICK, "--durability", "os").code == 0
        assert [path.name for path in tmp_path.iterdir()] == ["quiver-bench-running"]
