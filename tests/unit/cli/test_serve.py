import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.command_inside import quiver

import quivermq
import quivermq.server.run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the server is asked for; it only says that it is ready."""
    found: dict[str, Any] = {}

    def serve(engine: quivermq.Engine, settings: object, **options: Any) -> None:
        found.update(options, settings=settings, path=engine.path)
        options["ready"](SimpleNamespace(url="http://127.0.0.1:7070"))
        engine.close()

    monkeypatch.setattr(quivermq.server.run, "serve", serve)
    package = logging.getLogger("quivermq")
    before = package.handlers[:], package.level, package.propagate
    yield found
    package.handlers, package.level, package.propagate = before


def test_where_to_look_is_told_once_it_is_ready(tmp_path: Path, asked: dict[str, Any]) -> None:
    ran = quiver("serve", "--data", tmp_path / "data")
    assert ran.code == 0, ran.err
    for place in (tmp_path / "data", "http://127.0.0.1:7070/docs", "http://127.0.0.1:7070/metrics"):
        assert str(place) in ran.text
    assert (asked["host"], asked["port"], asked["path"]) == ("127.0.0.1", 7070, tmp_path / "data")


def test_where_to_look_is_a_line_of_json_for_programs(tmp_path: Path, asked: dict[str, Any]) -> None:
    told = json.loads(quiver("serve", "--data", tmp_path, "--json").out)
    assert told == {
        "url": "http://127.0.0.1:7070",
        "docs": "http://127.0.0.1:7070/docs",
        "metrics": "http://127.0.0.1:7070/metrics",
        "data": str(tmp_path),
    }


def test_options_and_settings_reach_the_server(tmp_path: Path, asked: dict[str, Any]) -> None:
    (tmp_path / "own.toml").write_text("[server]\nthreads = 3\n")
    ran = quiver(
        *("serve", "--data", tmp_path / "data", "--host", "::1", "--port", "0"),
        *("--tls-certificate", "c.pem", "--tls-key", "k.pem", "--config", tmp_path / "own.toml"),
        *("--log-level", "warning"),
    )
    assert ran.code == 0, ran.err
    assert (asked["host"], asked["port"]) == ("::1", 0)
    assert (asked["tls_certificate"], asked["tls_key"]) == (Path("c.pem"), Path("k.pem"))
    assert asked["settings"].threads == 3
    assert logging.getLogger("quivermq").level == logging.WARNING


def test_a_directory_that_is_served_already_is_a_conflict(tmp_path: Path, asked: dict[str, Any]) -> None:
    with quivermq.open(tmp_path):
        ran = quiver("serve", "--data", tmp_path)
    assert (ran.code, asked) == (4, {})
    assert "in use by" in ran.err


@pytest.mark.parametrize(
    "arguments", [["--port", "99999"], ["--log", "xml"], ["--log-level", "loud"], ["--config", "none.toml"]]
)
def test_a_wrong_call_serves_nothing(tmp_path: Path, asked: dict[str, Any], arguments: list[str]) -> None:
    ran = quiver("serve", "--data", tmp_path / "data", *arguments)
    assert (ran.code, asked) == (2, {})
    assert not (tmp_path / "data").exists()


def test_without_a_directory_nothing_is_served(asked: dict[str, Any]) -> None:
    assert (quiver("serve").code, asked) == (2, {})
