"""The real command at a terminal: it asks before it destroys, and shows that it works."""

import json
from pathlib import Path

import pytest
from support.command import run_at_terminal

import quivermq
from quivermq.engine import engine_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        orders = mq.queue("orders")
        orders.put_many([b"tea", b"coffee"])
        message = orders.get()
        assert message is not None
        message.reject()
    return tmp_path / "data"


def state(data: Path) -> tuple[bool, list[str], int]:
    with quivermq.open(data) as mq:
        there = "orders" in mq.topics()
        return (
            there,
            mq.groups("orders") if there else [],
            engine_of(mq).statistics.dead_letter_count("orders"),
        )


COMMANDS = [
    (["topic", "delete", "orders"], (False, [], 1)),
    (["group", "delete", "orders", "default"], (True, [], 1)),
    (["dlq", "discard", "orders"], (True, ["default"], 0)),
]


@pytest.mark.parametrize(("command", "after"), COMMANDS, ids=lambda item: " ".join(map(str, item)))
def test_what_is_confirmed_is_done(
    data: Path, command: list[str], after: tuple[bool, list[str], int]
) -> None:
    session = run_at_terminal(*command, "--data", data, answer="y\n")
    assert session.returncode == 0, session.terminal
    assert state(data) == after


@pytest.mark.parametrize(("command", "after"), COMMANDS, ids=lambda item: " ".join(map(str, item)))
def test_what_is_not_confirmed_is_not_done(
    data: Path, command: list[str], after: tuple[bool, list[str], int]
) -> None:
    before = state(data)
    session = run_at_terminal(*command, "--data", data, answer="n\n")
    assert (session.returncode, session.stdout.strip()) == (1, "")
    assert state(data) == before != after


def test_long_work_shows_that_it_goes_on_and_spoils_no_pipe(data: Path) -> None:
    session = run_at_terminal("bench", "--duration", "1ms", "--data", data, "--json")
    assert "measured: " in session.terminal
    assert len(json.loads(session.stdout)["results"]) == 9
