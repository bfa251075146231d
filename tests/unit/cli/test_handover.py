"""What the reader of a pipe has read is done with, and nothing else."""

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from support.threads import wait_until

import quivermq
from quivermq.cli import handover as module
from quivermq.cli import main
from quivermq.cli.handover import Handover, PipeHandover, handing_over

LARGE = 50_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@contextmanager
def output(writing: int) -> Iterator[None]:
    """Let standard output be this."""
    with os.fdopen(os.dup(writing), "w") as stdout, patch.object(sys, "stdout", stdout):
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("numbers", attempts_max=1)
        mq.queue("numbers").put_many([b"%d" % number for number in range(1, 31)])
    return tmp_path / "data"


def get(data: Path, read: Callable[[int], object], *arguments: str) -> int:
    """Run `quiver get --all` into a pipe, and have a thread read from it, which then closes it."""
    reading, writing = os.pipe()

    def run() -> None:
        read(reading)
        os.close(reading)

    reader = threading.Thread(target=run)
    reader.start()
    arguments = ("quiver", "get", "numbers", "--all", "--data", str(data), *arguments)
    with output(writing), patch.object(sys, "argv", list(arguments)):
        os.close(writing)
        try:
            code = main()
        except SystemExit as end:
            code = int(end.code or 0)
    reader.join()
    return code


def left(data: Path) -> list[bytes]:
    """What the group still gets, none of it for a second time."""
    with quivermq.open(data) as mq:
        queue = mq.queue("numbers")
        found = queue.get_many(1000)
        assert {message.attempt for message in found} <= {1}
        assert queue.stats().dead_letters == 0
        queue.release(found)
        return [message.value for message in found]


def from_number(first: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, 31)]


@pytest.mark.parametrize("shape", [(), ("--json",), ("--format", "null"), ("--format", "raw")])
def test_a_reader_takes_what_it_reads(data: Path, shape: tuple[str, ...]) -> None:
    seen: list[bytes] = []

    def read(number: int) -> None:
        # As much as there is, as `head` does.
        seen.append(os.read(number, 65536))

    assert get(data, read, *shape) == 1
    assert left(data) == from_number(2)

    def read_three(number: int) -> None:
        for _ in range(3):
            read(number)

    assert get(data, read_three, *shape) == 1
    assert left(data) == from_number(5)
    assert len(seen) == 4


def test_a_reader_of_all_ends_it(data: Path) -> None:
    seen: list[bytes] = []

    def read(number: int) -> None:
        while part := os.read(number, 65536):
            seen.append(part)

    assert get(data, read, "--batch", "7") == 0
    assert seen == [value + b"\n" for value in from_number(1)]
    assert left(data) == []


def test_a_reader_that_reads_nothing_takes_nothing(data: Path) -> None:
    assert get(data, lambda _: None) == 1
    assert left(data) == from_number(1)


def test_half_a_message_is_not_taken(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.queue("numbers").purge()
        mq.queue("numbers").put_many([b"x" * LARGE, b"y"])
    assert get(data, lambda number: os.read(number, 10)) == 1
    assert left(data) == [b"x" * LARGE, b"y"]


def test_a_message_larger_than_a_page_is_taken_at_its_end(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.queue("numbers").purge()
        mq.queue("numbers").put_many([b"x" * LARGE, b"y"])
    with_end = LARGE + 1

    def read(number: int) -> None:
        missing = with_end
        while missing:
            missing -= len(os.read(number, missing))

    assert get(data, read) == 1
    assert left(data) == [b"y"]


def test_without_an_ack_only_what_was_read_stays_leased(data: Path) -> None:
    assert get(data, lambda number: os.read(number, 65536), "--no-ack") == 1
    assert left(data) == from_number(2)
    with quivermq.open(data) as mq:
        assert mq.queue("numbers").stats().in_flight == 1


def test_what_a_slow_reader_has_taken_is_done_with_meanwhile(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acked: list[int] = []
    ack = quivermq.Queue.ack

    def count(queue: quivermq.Queue, held: list[quivermq.Delivery]) -> None:
        ack(queue, held)
        acked.append(len(held))

    def read(number: int) -> None:
        for _ in range(3):
            os.read(number, 65536)
        # It is at the third one for as long as this takes.
        wait_until(lambda: sum(acked) == 3)

    monkeypatch.setattr(quivermq.Queue, "ack", count)
    assert get(data, read) == 1
    assert left(data) == from_number(4)


def test_a_stop_takes_back_what_was_not_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    give = PipeHandover.give

    def stop_at_the_third(self: PipeHandover, what: object, data: bytes, _: Callable[[], None]) -> None:
        def stop() -> None:
            stopped.set()
            raise KeyboardInterrupt

        give(self, what, data, stop)

    def read(number: int) -> None:
        for _ in range(2):
            os.read(number, 65536)
        # Alive, and reading no more.
        assert stopped.wait(60)

    monkeypatch.setattr(PipeHandover, "give", stop_at_the_third)
    assert get(data, read) == 130
    assert left(data) == from_number(3)


def test_a_stop_behind_the_reading_takes_nothing_back(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bytes] = []
    give = PipeHandover.give

    def stop(self: PipeHandover, what: object, data: bytes, while_waiting: Callable[[], None]) -> None:
        give(self, what, data, while_waiting)
        given.append(data)
        if len(given) == 3:
            # As a signal handler does, before anybody was told that the message was taken.
            raise KeyboardInterrupt

    def read(number: int) -> None:
        while os.read(number, 65536):
            continue

    monkeypatch.setattr(PipeHandover, "give", stop)
    assert get(data, read) == 130
    assert left(data) == from_number(4)


def test_a_stop_before_a_message_is_given_keeps_the_one_before_apart(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bytes] = []
    give = PipeHandover.give

    def stop(self: PipeHandover, what: object, data: bytes, while_waiting: Callable[[], None]) -> None:
        if len(given) == 3:
            raise KeyboardInterrupt
        give(self, what, data, while_waiting)
        given.append(data)

    def read(number: int) -> None:
        while os.read(number, 65536):
            continue

    monkeypatch.setattr(PipeHandover, "give", stop)
    assert get(data, read) == 130
    assert left(data) == from_number(4)


def test_a_pipe_is_as_large_as_before(pipe: tuple[int, int]) -> None:
    _, writing = pipe
    before = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    with output(writing), handing_over() as handover:
        assert isinstance(handover, PipeHandover)
        assert fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) == os.sysconf("SC_PAGESIZE")
    assert fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) == before


@pytest.mark.parametrize("is_blocking", [True, False])
def test_what_others_wrote_before_is_read_before(pipe: tuple[int, int], is_blocking: bool) -> None:
    reading, writing = pipe
    os.set_blocking(writing, is_blocking)
    # Too much for a page; and where no write waits, as much as there is room for.
    before = b"x" * (20_000 if is_blocking else 65536)
    os.write(writing, before)
    found: list[bytes] = []

    def read() -> None:
        while sum(map(len, found)) < len(before) + 6:
            found.append(os.read(reading, 1000))

    with output(writing), handing_over() as handover:
        waited: list[bool] = []

        def while_waiting() -> None:
            if not waited:
                waited.append(True)
                reader.start()

        reader = threading.Thread(target=read)
        handover.give("a", b"abc", while_waiting)
        handover.give("b", b"def", while_waiting)
        assert handover.is_taken("b")
        assert not handover.is_taken("a")
        reader.join()
        # Nobody reads this before it was looked for, and then there is room beside it.
        handover.give("c", b"ghi", lambda: found.append(os.read(reading, 1000)))
        assert fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) == os.sysconf("SC_PAGESIZE")
    assert b"".join(found) == before + b"abcdefghi"


def test_nothing_at_all_is_taken_at_once(pipe: tuple[int, int]) -> None:
    with output(pipe[1]), handing_over() as handover:
        handover.give("a", b"", lambda: None)
        assert handover.is_taken("a")


def test_files_and_systems_that_do_not_tell_are_believed(
    pipe: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        (tmp_path / "out").open("w") as file,
        patch.object(sys, "stdout", file),
        handing_over() as handover,
    ):
        assert isinstance(handover, Handover)
        handover.give("a", b"abc", lambda: None)
        assert handover.is_taken("a")
        assert not handover.is_taken("b")
    assert (tmp_path / "out").read_bytes() == b"abc"
    monkeypatch.setattr(module, "_PIPES_TELL", False)
    with output(pipe[1]), handing_over() as handover:
        assert isinstance(handover, Handover)
        # Nobody has read it.
        handover.give("a", b"abc", lambda: None)
        assert handover.is_taken("a")
