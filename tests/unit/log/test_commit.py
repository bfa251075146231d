"""Group commit by itself, without a log: who leads, who waits, who is told what."""

import _thread
import ast
import inspect
import itertools
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.threads import PATIENCE_S, start, wait_until

from quivermq.errors import DiskFull, QuiverError, StorageFailed
from quivermq.log import commit as commit_module
from quivermq.log.commit import GroupCommit

PATH = Path("log")


class Committed:
    """What a group commit calls: it remembers every group, and can be held and made to fail."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.error: BaseException | None = None
        self.is_held = False
        self.arrived = threading.Event()
        self.opened = threading.Event()
        self.commit = GroupCommit(self._commit, PATH)

    def _commit(self, entries: list[str]) -> int:
        base = sum(map(len, self.groups))
        self.groups.append(list(entries))
        if self.is_held:
            self.is_held = False
            self.arrived.set()
            assert self.opened.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return base

    def hold(self) -> Callable[[], None]:
        """Let the next commit wait; call the result to let it go on."""
        self.is_held = True
        self.arrived.clear()
        self.opened.clear()
        return self.opened.set

    def waiting(self) -> int:
        return len(self.commit._open.waiting)


@pytest.fixture
def committed() -> Committed:
    return Committed()


def test_alone_nobody_waits(committed: Committed) -> None:
    assert [committed.commit.join(name) for name in "abc"] == [0, 1, 2]
    assert committed.groups == [["a"], ["b"], ["c"]]


def test_those_who_come_during_a_commit_are_committed_together(committed: Committed) -> None:
    go_on = committed.hold()
    first = start(lambda: committed.commit.join("first"))
    assert committed.arrived.wait(PATIENCE_S)
    others = []
    for number in range(20):
        others.append(start(lambda name=str(number): committed.commit.join(name)))  # type: ignore[misc]
        wait_until(lambda number=number: committed.waiting() == number + 1)  # type: ignore[misc]
    go_on()
    assert first.result(PATIENCE_S) == 0
    assert [other.result(PATIENCE_S) for other in others] == list(range(1, 21))
    assert committed.groups == [["first"], [str(number) for number in range(20)]]
    assert committed.commit.join("next") == 21


def test_one_group_follows_the_other(committed: Committed) -> None:
    """Each commit has company: nobody is forgotten, nobody is committed twice."""
    count, each = 8, 50
    barrier = threading.Barrier(count)

    def run(name: int) -> list[int]:
        barrier.wait()
        return [committed.commit.join(f"{name}.{number}") for number in range(each)]

    threads = [start(lambda name=name: run(name)) for name in range(count)]  # type: ignore[misc]
    told = [thread.result(PATIENCE_S) for thread in threads]
    entries = [entry for group in committed.groups for entry in group]
    assert len(entries) == len(set(entries)) == count * each
    for name in range(count):
        assert [entries[offset] for offset in told[name]] == [f"{name}.{n}" for n in range(each)]


def failing_group(committed: Committed, error: BaseException) -> list[BaseException]:
    """What each of five members is told when the commit of their group fails; the leader first."""
    go_on = committed.hold()
    before = start(lambda: committed.commit.join("before"))
    assert committed.arrived.wait(PATIENCE_S)
    group = []
    for number in range(5):
        group.append(start(lambda: committed.commit.join("member")))
        wait_until(lambda number=number: committed.waiting() == number + 1)  # type: ignore[misc]
    original = committed.commit._commit

    def fail(entries: list[str]) -> int:
        committed.commit._commit = original
        raise error

    committed.commit._commit = fail
    go_on()
    before.result(PATIENCE_S)
    told = [member.exception(PATIENCE_S) for member in group]
    return [each for each in told if each is not None]


def test_an_error_reaches_every_member_as_an_exception_of_its_own(committed: Committed) -> None:
    error = DiskFull(PATH, needed_bytes=7)
    told = failing_group(committed, error)
    assert len(told) == len(set(map(id, told))) == 5
    for each in told:
        assert isinstance(each, DiskFull)
        assert each is not error
        assert (each.path, each.needed_bytes, str(each)) == (PATH, 7, str(error))
        assert each.__cause__ is error
    assert committed.commit.join("after") >= 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError(), SystemExit()])
def test_a_leader_that_dies_leaves_nobody_waiting(committed: Committed, error: BaseException) -> None:
    told = failing_group(committed, error)
    assert len(told) == 5
    leader, *others = told
    assert leader is error
    for each in others:
        assert isinstance(each, StorageFailed)
        assert each.path == PATH
        assert "interrupted" in str(each)
    assert committed.commit.join("after") == 1


def test_a_lone_leader_that_dies_leaves_the_lead(committed: Committed) -> None:
    committed.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        committed.commit.join("a")
    committed.error = None
    assert committed.commit.join("b") == 1


def test_one_who_waits_may_be_interrupted(committed: Committed) -> None:
    """The main thread waits for a commit when somebody presses Ctrl-C; the others go on."""
    go_on = committed.hold()
    first = start(lambda: committed.commit.join("first"))
    assert committed.arrived.wait(PATIENCE_S)

    def interrupt() -> None:
        wait_until(lambda: committed.waiting() == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        committed.commit.join("main")
    assert committed.waiting() == 0
    third = start(lambda: committed.commit.join("third"))
    wait_until(lambda: committed.waiting() == 1)
    go_on()
    assert first.result(PATIENCE_S) == 0
    # What was asked for before the interruption is committed: nobody could take it back any more.
    assert third.result(PATIENCE_S) == 2
    assert committed.groups == [["first"], ["main", "third"]]


def interrupted_at(line: int, committed: Committed) -> bool:
    """Join, and be interrupted before the given line of code, counted as they are executed.

    False when there were not as many lines. Lines that run because of the interruption do not count.
    """
    seen = 0

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != commit_module.__file__:
            return None
        if event == "line" and frame.f_lineno not in UNINTERRUPTED:
            seen += 1
            if seen == line:
                raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        committed.commit.join("interrupted")
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def uninterrupted() -> set[int]:
    """Lines that clean up, which cannot be survived, and `with`: no signal comes before its end."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(inspect.getsource(commit_module))):
        if isinstance(node, ast.Try):
            for statement in node.finalbody:
                lines |= set(range(statement.lineno, (statement.end_lineno or 0) + 1))
        if isinstance(node, ast.With):
            lines.add(node.lineno)
    return lines


UNINTERRUPTED = uninterrupted()


@pytest.mark.parametrize("is_led", [False, True])
def test_an_interruption_at_any_line_leaves_nobody_waiting(is_led: bool) -> None:
    lines = itertools.count(1)
    while True:
        committed = Committed()
        line = next(lines)
        go_on = committed.hold()
        if is_led:
            leader = start(lambda c=committed: c.commit.join("leader"))  # type: ignore[misc]
            assert committed.arrived.wait(PATIENCE_S)
            joining = start(lambda line=line, c=committed: interrupted_at(line, c))  # type: ignore[misc]
            wait_until(lambda c=committed, j=joining: c.waiting() or j.done())  # type: ignore[misc]
            go_on()
            was_interrupted = joining.result(PATIENCE_S)
            leader.result(PATIENCE_S)
        else:
            go_on()
            was_interrupted = interrupted_at(line, committed)
        others = [start(lambda c=committed: c.commit.join("other")) for _ in range(3)]  # type: ignore[misc]
        told = sorted(other.result(PATIENCE_S) for other in others)
        entries = [entry for group in committed.groups for entry in group]
        assert [entries[offset] for offset in told] == ["other"] * 3
        if not was_interrupted:
            assert line > 5
            return


def test_a_successor_that_is_interrupted_in_the_moment_of_being_woken_leads_first(
    committed: Committed,
) -> None:
    group = committed.commit._open
    group.entries.append("mine")
    committed.commit._led = group
    committed.commit._leave(group, _thread.allocate_lock())
    assert committed.groups == [["mine"]]
    assert committed.commit.join("next") == 1


def test_one_who_is_interrupted_in_the_moment_of_being_told_wakes_the_next(committed: Committed) -> None:
    group = committed.commit._open
    group.done = True
    wake = _thread.allocate_lock()
    wake.acquire()
    group.waiting.append(wake)
    committed.commit._leave(group, _thread.allocate_lock())
    assert not wake.locked()
    assert committed.groups == []


def test_errors_of_ours_are_told_as_they_are(committed: Committed) -> None:
    committed.error = QuiverError("ours")
    with pytest.raises(QuiverError, match="ours") as told:
        committed.commit.join("a")
    assert told.value is not committed.error
