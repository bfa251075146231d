"""How commands end when something outside of them fails: no room for output, a signal, a wrong option."""

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from support.command import INHERITED, QUIVER
from support.command_inside import run_inside

import quivermq
from quivermq.cli import main

FULL = Path("/dev/full")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", attempts_max=1)
        mq.queue("orders").put_many([b"a" * 1000 for _ in range(100)])
        mq.queue("orders").put(b"later", delay=3600)
        for message in mq.queue("orders").get_many(1):
            message.nack()
    return tmp_path / "data"


def into_nothing(*arguments: str) -> tuple[int, str]:
    """The code and the errors of a command whose output goes to a full disk, in this process."""
    err = io.StringIO()
    with FULL.open("w") as full, patch.multiple(sys, argv=list(arguments), stdout=full, stderr=err):
        try:
            return main(), err.getvalue()
        except SystemExit as end:
            return int(end.code or 0), err.getvalue()


COMMANDS = [
    ["get", "orders", "--count", "50"],
    ["get", "orders", "--json"],
    ["put", "orders", "value", "--json"],
    ["read", "orders"],
    ["read", "orders", "--json"],
    ["tail", "orders", "--last", "5", "--count", "5"],
    ["topic", "list"],
    ["topic", "show", "orders", "--json"],
    ["group", "list"],
    ["dlq", "list", "orders"],
    ["scheduled", "list", "orders", "--json"],
    ["stats"],
    ["stats", "--json"],
    ["verify"],
    ["compact"],
    ["export", "orders"],
    ["key", "list"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_room_for_the_output_is_one_line_and_a_code(arguments: list[str], data: Path) -> None:
    code, err = into_nothing("quiver", *arguments, "--data", str(data))
    assert (code, len(err.splitlines())) == (quivermq.DiskFull.exit_code, 1), err
    if "--json" in arguments:
        assert json.loads(err)["error"]["code"] == "disk_refused"
    else:
        assert err.startswith("error: cannot write the output: No space left on device")


def test_nor_in_a_real_process() -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [QUIVER, "settings", "show"], env=INHERITED, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (quivermq.DiskFull.exit_code, 1), done.stderr


def test_no_room_for_errors_either_leaves_the_code() -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [QUIVER, "stats", "--data", "/nowhere"], env=INHERITED, stdout=full, stderr=full
        )
    assert done.returncode == quivermq.NotFound.exit_code


def closed(stream: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as `quiver … >&-` does, with one of its standard streams closed."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {stream}>&-', "sh", QUIVER, *arguments],
        env=INHERITED,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_output_that_is_closed_takes_no_message(data: Path) -> None:
    done = closed(1, "get", "orders", "--data", data)
    assert (done.returncode, done.stderr) == (
        quivermq.InvalidRequest.exit_code,
        "error: cannot write the output: it is closed, say where it goes\n",
    )
    with quivermq.open(data) as mq:
        assert mq.queue("orders").stats().pending == 99


def test_errors_that_are_closed_go_into_no_file(data: Path) -> None:
    done = closed(2, "put", "orders", "tea", "--data", data)
    assert (done.returncode, done.stdout) == (0, "")
    assert closed(2, "stats", "--data", "/nowhere").returncode == quivermq.NotFound.exit_code
    assert quivermq.verify(data).is_sound


def test_a_broker_that_cannot_say_where_it_is_ends_in_order(tmp_path: Path) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [QUIVER, "serve", "--data", tmp_path / "data", "--port", "0", "--log-level", "warning"],
            env=INHERITED,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (quivermq.DiskFull.exit_code, 1), done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stats", "--nonsense", "--json"], "--nonsense"),
        (["get", "--json"], "topic"),
    ],
)
def test_a_wrong_option_is_json_for_a_program(arguments: list[str], words: str) -> None:
    done = run_inside(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    told = json.loads(done.stderr)["error"]
    assert (told["code"], told["retryable"]) == ("invalid_request", False)
    assert words in told["message"]


def test_help_and_codes_are_the_same_with_json(data: Path) -> None:
    assert run_inside("stats", "--json", "--help").returncode == 0
    assert run_inside("get", "none", "--json", "--data", data).returncode == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_bench_that_is_stopped_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [QUIVER, "bench", "--duration", "60s", "--durability", "os"],
        env=INHERITED | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        # It has begun once its topic is there.
        while not list(tmp_path.glob("quiver-bench-*/topics/*/p0/normal/*.log")):
            assert process.poll() is None
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode in (128 + number, 130)
    assert list(tmp_path.iterdir()) == []
