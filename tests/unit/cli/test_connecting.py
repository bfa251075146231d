import json
from pathlib import Path
from typing import Any

import pytest
from support.command import everything
from support.command_inside import quiver

import quivermq
from quivermq.cli.connecting import connected
from quivermq.client.blocking.backend import HttpBackend
from quivermq.client.blocking.pool import Pool


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders")
    return tmp_path / "data"


def test_without_a_place_the_command_says_how_to_give_one() -> None:
    ran = quiver("stats")
    assert (ran.code, ran.out) == (2, b"")
    for word in ("--data", "--server", "QUIVER_DATA", "QUIVER_SERVER"):
        assert word in ran.err


def test_two_places_are_one_too_many(data: Path) -> None:
    ran = quiver("stats", "--data", data, "--server", "http://127.0.0.1:1")
    assert (ran.code, ran.out) == (2, b"")
    assert "give one of them" in ran.err


def test_two_places_in_the_environment_are_one_too_many(data: Path) -> None:
    env = {"QUIVER_DATA": str(data), "QUIVER_SERVER": "http://127.0.0.1:1"}
    ran = quiver("stats", env=env)
    assert ran.code == 2
    assert "unset one" in ran.err
    assert quiver("stats", "--data", data, env=env).code == 0


def test_the_directory_may_come_from_the_environment(data: Path) -> None:
    assert "orders" in quiver("topic", "list", env={"QUIVER_DATA": str(data)}).text


def test_an_option_counts_more_than_the_environment(data: Path) -> None:
    ran = quiver("topic", "list", "--data", data, env={"QUIVER_SERVER": "http://127.0.0.1:1"})
    assert (ran.code, "orders" in ran.text) == (0, True)


def test_an_error_is_json_for_a_program() -> None:
    ran = quiver("stats", "--json")
    assert json.loads(ran.err)["error"]["code"] == "invalid_request"


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "list"],
        ["topic", "show", "t"],
        ["topic", "alter", "t", "--set", "lease_ms=1"],
        ["topic", "delete", "t", "--yes"],
        ["group", "list"],
        ["group", "seek", "t", "g", "--to", "latest"],
        ["dlq", "list", "t"],
        ["scheduled", "list", "t"],
        ["get", "t"],
        ["read", "t"],
        ["tail", "t"],
        ["stats"],
        ["compact"],
        ["verify"],
    ],
    ids=" ".join,
)
def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path, command: list[str]) -> None:
    ran = quiver(*command, "--data", tmp_path / "none")
    assert (ran.code, ran.out) == (3, b"")
    assert str(tmp_path / "none") in ran.err
    assert not list(tmp_path.iterdir())


def test_another_directory_is_not_made_a_queue_by_asking(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"...")
    ran = quiver("topic", "list", "--data", tmp_path)
    assert ran.code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


@pytest.mark.parametrize(
    "command",
    [["topic", "create", "x"], ["put", "orders", "x"], ["get", "orders"], ["compact"]],
    ids=" ".join,
)
def test_a_locked_directory_is_left_alone_and_a_server_suggested(data: Path, command: list[str]) -> None:
    with quivermq.open(data):
        before = everything(data)
        ran = quiver(*command, "--data", data)
        assert (ran.code, ran.out) == (4, b"")
        assert "in use by" in ran.err
        assert "--server" in ran.err
        assert everything(data) == before


def test_a_locked_directory_keeps_its_code_for_programs(data: Path) -> None:
    with quivermq.open(data):
        ran = quiver("compact", "--data", data, "--json")
    assert json.loads(ran.err)["error"]["code"] == "directory_locked"


def test_a_broker_that_is_not_there_is_unavailable() -> None:
    ran = quiver("stats", "--server", "http://127.0.0.1:1")
    assert (ran.code, ran.out) == (5, b"")


def test_settings_of_the_environment_count(tmp_path: Path) -> None:
    env = {"QUIVER_STORAGE__DURABILITY": "os"}
    ran = quiver("topic", "create", "t", "--data", tmp_path / "data", "--json", env=env)
    assert json.loads(ran.out)["settings"]["durability"] == "os"


def patience(url: str = "http://127.0.0.1:1", **given: Any) -> tuple[float, int]:
    with connected(url, **given) as client:
        assert isinstance(client.backend, HttpBackend)
        pool = client.backend.shell._pool
        assert isinstance(pool, Pool)
        return pool._timeout_s, client.backend.calls.retry.retries


def test_the_command_is_as_patient_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert patience() == (30, 4)
    (tmp_path / "quiver.toml").write_text("[client]\ntimeout_ms = 7000\nretries = 2\n")
    assert patience() == (7, 2)
    monkeypatch.setenv("QUIVER_CLIENT__RETRIES", "8")
    assert patience() == (7, 8)
    assert patience(timeout=1, retries=0) == (1, 0)


def test_a_client_setting_that_cannot_be_is_told_before_anything_is_sent() -> None:
    ran = quiver("stats", "--server", "http://127.0.0.1:1", env={"QUIVER_CLIENT__RETRIES": "many"})
    assert (ran.code, ran.out) == (2, b"")
    assert "client.retries" in ran.err
