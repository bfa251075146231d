"""The real command in real pipes, on a directory."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.command import INHERITED, QUIVER

import quivermq

ENDLESS = ["--wait", "forever"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def shell(line: str, data: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell in which `quiver` is the command and the queue is known."""
    env = INHERITED | {"QUIVER_DATA": str(data), "PATH": f"{QUIVER.parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], env=env, capture_output=True)


def start(data: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(QUIVER), *arguments, "--data", str(data)]
    return subprocess.Popen(
        command, env=INHERITED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def values(data: Path, group: str = "default") -> list[bytes]:
    """Everything that the group may still have, now or once a lease is over."""
    found: list[bytes] = []
    with quivermq.open(data) as mq:
        queue = mq.queue("numbers", group)
        while (stats := queue.stats()).pending + stats.retrying + stats.in_flight > len(found):
            found += [message.value for message in queue.get_many(1000, timeout=1, lease=600)]
    return found


def numbers(data: Path) -> list[int]:
    # The numbers are short, but what is in front of them is long.
    return sorted(int(value[-4:]) for value in values(data))


def test_a_stream_goes_in_and_comes_out_in_order(data: Path) -> None:
    done = shell("seq 5000 | quiver put numbers && quiver get numbers --all", data)
    assert (done.returncode, done.stderr) == (0, b"put 5000 messages into numbers\n")
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 5001))


def test_any_bytes_survive_the_way_through(data: Path) -> None:
    done = shell(
        "head -c 100000 /dev/urandom > $QUIVER_DATA.in && quiver put numbers --file $QUIVER_DATA.in"
        " && quiver get numbers --format raw | cmp - $QUIVER_DATA.in",
        data,
    )
    assert done.returncode == 0, done.stderr


def test_a_copy_through_json_is_the_same(data: Path) -> None:
    done = shell(
        "printf 'a\\0\\377\\0' | quiver put numbers --null --key k --header h=1"
        " && quiver get numbers --all --json > $QUIVER_DATA.json"
        " && quiver put copy --ndjson < $QUIVER_DATA.json"
        " && quiver get copy --all --format null",
        data,
    )
    assert (done.returncode, done.stdout) == (0, b"a\0\377\0"), done.stderr


def test_a_reader_takes_what_it_reads_and_no_more(data: Path) -> None:
    done = shell(
        "seq 200 | quiver put numbers 2>/dev/null; set +o pipefail;"
        "quiver get numbers --all | head -1; quiver get numbers --all | head -1;"
        "quiver get numbers --all | head -3",
        data,
    )
    assert (done.stdout.split(), done.stderr) == ([b"1", b"2", b"3", b"4", b"5"], b"")
    assert numbers(data) == list(range(6, 201))


def test_a_reader_that_is_killed_takes_what_it_has_read(data: Path) -> None:
    # A shell reads byte by byte, up to the end of a line.
    reader = "while read -r line; do echo $line; if [ $line = 3 ]; then kill -9 $BASHPID; fi; done"
    done = shell(f"seq 200 | quiver put numbers; quiver get numbers --all | {reader}", data)
    assert done.stdout.split() == [b"1", b"2", b"3"]
    assert numbers(data) == list(range(4, 201))


def test_a_reader_that_goes_ends_a_command_that_waits(data: Path) -> None:
    shell("quiver put numbers 1", data)
    for command in (["get", "numbers", *ENDLESS], ["tail", "numbers", "--last", "1"]):
        process = start(data, *command, *(["--all"] if command[0] == "get" else []))
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
        process.stderr.close()
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_only_half_arrived_is_not_acked(data: Path, unbuffered: str) -> None:
    with quivermq.open(data) as mq:
        mq.queue("numbers").put(b"x" * 1_000_000)
    # The pipe takes 64 KiB, then its reader goes.
    done = shell(f"PYTHONUNBUFFERED={unbuffered} quiver get numbers --all | head -c 10", data)
    assert done.stdout == b"x" * 10
    assert values(data) == [b"x" * 1_000_000]


def test_lines_are_put_as_they_come(data: Path) -> None:
    with start(data, "put", "numbers") as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        # The input is still open, and the message is in the log already.
        done = shell("until quiver tail numbers --last 1 --count 1; do :; done 2>/dev/null", data)
        assert done.stdout == b"1\n"
        process.stdin.write(b"2")
        process.stdin.close()
        assert process.wait(60) == 0
    assert values(data) == [b"1", b"2"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_killed_loses_nothing(data: Path, number: signal.Signals) -> None:
    with quivermq.open(data) as mq:
        mq.create_topic("numbers", lease_ms=1)
        mq.queue("numbers").put_many([b"%010000d" % number for number in range(1, 201)])
    with start(data, "get", "numbers", "--all", "--lease", "1ms") as process:
        assert process.stdout is not None
        # Nobody reads on, so it is stuck in the middle of writing.
        first = process.stdout.readline()
        process.send_signal(number)
        process.wait(60)
    assert first.lstrip(b"0") == b"1\n"
    # The first was read, and is done with unless the command was killed before it could say so.
    assert numbers(data) in (list(range(1, 201)), list(range(2, 201)))


def test_an_interrupt_ends_a_tail_as_the_shell_expects(data: Path) -> None:
    shell("quiver put numbers 1", data)
    with start(data, "tail", "numbers", "--last", "1") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_burns_no_attempt(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.create_topic("numbers", attempts_max=2)
        mq.queue("numbers").put_many([b"x" * 2000 + b"%04d" % number for number in range(100)])
    for _ in range(3):
        assert shell("quiver get numbers --all | head -c 1", data).stdout == b"x"
    with quivermq.open(data) as mq:
        queue = mq.queue("numbers")
        assert queue.dead_letters() == []
        left = queue.get_many(100)
        assert {message.attempt for message in left} == {1}
        # In order, and half a message is none.
        assert [int(m.value[-4:]) for m in left] == list(range(100))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_told_to_stop_burns_no_attempt(data: Path, number: signal.Signals) -> None:
    with quivermq.open(data) as mq:
        mq.create_topic("numbers", attempts_max=1)
        mq.queue("numbers").put_many([b"x" * 20_000 + b"%04d" % number for number in range(20)])
    getting = start(data, "get", "numbers", "--all")
    assert getting.stdout is not None
    # It has begun to write, and cannot end: nobody reads on, and the pipe is full.
    getting.stdout.read(1)
    getting.send_signal(number)
    assert getting.wait(60) in (128 + number, -number)
    getting.communicate()
    with quivermq.open(data) as mq:
        queue = mq.queue("numbers")
        assert queue.dead_letters() == []
        assert {message.attempt for message in queue.get_many(100)} == {1}
