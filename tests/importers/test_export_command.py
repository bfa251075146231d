"""`quiver export`, in this process and as a command in real pipes."""

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.broker import serving
from support.command import INHERITED, QUIVER, run_at_terminal, table_rows
from support.command_inside import Ran, quiver

import quivermq


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queue") / "data"
    with quivermq.open(path) as mq:
        mq.create_topic("numbers", partitions=2)
        mq.queue("numbers").put_many([quivermq.Message(b"%d" % n, partition=n % 2) for n in range(2000)])
        mq.queue("long").put_many([os.urandom(2000) for _ in range(1000)])
    return path


@pytest.fixture
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


def exported(data: Path, *arguments: str | Path) -> Ran:
    ran = quiver("export", "numbers", *arguments, "--data", data)
    assert "Traceback" not in ran.err
    return ran


def shell(line: str, data: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell in which `quiver` is the command and the queue is known."""
    env = INHERITED | {
        "PYTHONUNBUFFERED": "1",
        "QUIVER_DATA": str(data),
        "PATH": f"{QUIVER.parent}:{os.environ['PATH']}",
    }
    return subprocess.run(["bash", "-c", line], env=env, capture_output=True)


def test_messages_go_to_standard_output_and_the_summary_beside_it(data: Path) -> None:
    ran = exported(data, "--partition", "1", "--from", "10", "--to", "12")
    assert [json.loads(line)["value"] for line in ran.out.splitlines()] == ["21", "23"]
    assert ran.err.startswith("exported 2 messages of numbers as ndjson, ")


def test_a_file_is_written_and_a_table_tells_what_is_in_it(data: Path, out: Path) -> None:
    ran = exported(data, "-o", out / "numbers.parquet", "--from", "900")
    assert ran.code == 0, ran.err
    assert table_rows(ran.text) == [
        ["0", "normal", "900", "1000", "100"],
        ["1", "normal", "900", "1000", "100"],
    ]
    assert "exported 200 messages of numbers as parquet" in ran.text
    assert pq.read_table(out / "numbers.parquet").num_rows == 200


def test_the_summary_is_json_for_programs(data: Path, out: Path) -> None:
    ran = exported(data, "-o", out / "numbers", "--format", "arrow", "--json")
    told = json.loads(ran.out)
    assert (told["messages"], told["format"], told["output"]) == (2000, "arrow", str(out / "numbers"))
    assert told["lanes"][0] == {
        "partition": 0,
        "priority": "normal",
        "start": 0,
        "end": 1000,
        "messages": 1000,
    }
    assert pa.ipc.open_stream((out / "numbers").read_bytes()).read_all().num_rows == 2000


def test_moments_and_offsets_are_told_apart(data: Path) -> None:
    assert exported(data, "--from", "2026-01-01T00:00:00Z", "--partition", "0").out.count(b"\n") == 1000
    assert exported(data, "--from", "2199-01-01").out == b""
    assert exported(data, "--to", "2000-01-01T00:00:00+02:00").out == b""
    assert exported(data, "--to", "1767225600.5").out == b""
    assert exported(data, "--to", "1").out.count(b"\n") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (
            ["--from", "soon"],
            2,
            "--from is an offset, or a moment such as 2026-01-31T12:00:00Z, not 'soon'",
        ),
        (["--to", "-1"], 2, "--to is an offset"),
        (["--from", "5", "--to", "3"], 2, "the range ends at 3, before it begins at 5"),
        (["--partition", "7"], 2, "there is no partition 7: the topic has 2"),
        (["--priority", "urgent"], 2, "urgent"),
        (["--format", "csv"], 2, "there is no format 'csv': use ndjson, arrow, parquet"),
        (["--json"], 2, "say -o FILE"),
        (["-o", "{out}/missing/file"], 3, "there is no directory"),
        (["-o", "{out}"], 2, "is not a file that could be replaced"),
    ],
)
def test_mistakes_are_told_by_their_exit_code(
    data: Path, out: Path, arguments: list[str], code: int, reason: str
) -> None:
    ran = exported(data, *(each.format(out=out) for each in arguments))
    assert ran.code == code
    assert reason in ran.err
    assert list(out.iterdir()) == []


def test_a_file_that_is_there_needs_force(data: Path, out: Path) -> None:
    (out / "file").write_text("mine")
    ran = exported(data, "-o", out / "file")
    assert (ran.code, (out / "file").read_text()) == (4, "mine")
    assert "--force overwrites it" in ran.err
    assert exported(data, "-o", out / "file", "--force").code == 0
    assert (out / "file").read_bytes().count(b"\n") == 2000


def test_a_topic_or_directory_that_is_not_there(data: Path, tmp_path: Path) -> None:
    assert quiver("export", "nothing", "--data", data).code == 3
    assert quiver("export", "numbers", "--data", tmp_path / "nowhere").code == 3
    assert quiver("export", "numbers").code == 2


def test_a_broker_is_asked_in_the_same_words(data: Path, out: Path) -> None:
    expected = exported(data).out
    with serving(data) as broker:
        assert quiver("export", "numbers", "--server", broker.url).out == expected
        # Beside the broker, by its files.
        assert exported(data).out == expected
    assert quiver("export", "numbers", "--server", "http://127.0.0.1:9").code == 5


@pytest.mark.parametrize("format_name", ["ndjson", "parquet"])
def test_a_reader_that_has_enough_ends_it_without_a_word(data: Path, format_name: str) -> None:
    done = shell(
        f"quiver export long --format {format_name} | head -c 10; echo ${{PIPESTATUS[0]}} >&2", data
    )
    assert len(done.stdout) == 10
    assert done.stderr.strip() == b"1"


def test_a_terminal_gets_no_binary_and_a_bar_while_it_takes_long(data: Path, out: Path) -> None:
    session = run_at_terminal("export", "numbers", "-o", out / "file", "--data", data)
    assert session.returncode == 0
    assert "exported 2000 messages" in session.stdout
    assert "2000/2000" in session.terminal
