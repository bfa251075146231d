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
from quivermq.engine import Engine


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the server is asked for; it only says that it is ready."""
    found: dict[str, Any] = {}

    def serve(engine: Engine, settings: object, **options: Any) -> None:
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
    assert (asked["settings"].host, asked["settings"].port, asked["path"]) == (
        "127.0.0.1",
        7070,
        tmp_path / "data",
    )


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
    server = asked["settings"]
    assert (server.host, server.port) == ("::1", 0)
    assert (server.tls_certificate, server.tls_key) == (Path("c.pem"), Path("k.pem"))
    assert server.threads == 3
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


FILE = """
[server]
data = "data"
host = "::1"
port = 7171
tls_certificate = "tls/cert.pem"
keys = "/etc/quiver/keys.json"
log = "json"
log_level = "error"

[topics]
partitions = 4
"""


def test_one_file_is_enough(tmp_path: Path, asked: dict[str, Any]) -> None:
    (tmp_path / "quiver.toml").write_text(FILE)
    ran = quiver("serve", "--config", tmp_path / "quiver.toml")
    assert ran.code == 0, ran.err
    server = asked["settings"]
    assert (asked["path"], server.host, server.port) == (tmp_path / "data", "::1", 7171)
    assert (server.tls_certificate, server.keys) == (
        tmp_path / "tls" / "cert.pem",
        Path("/etc/quiver/keys.json"),
    )
    assert logging.getLogger("quivermq").level == logging.ERROR


def test_an_option_counts_more_than_the_environment_and_that_more_than_the_file(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    (tmp_path / "own.toml").write_text(FILE)
    env = {
        "QUIVER_CONFIG": str(tmp_path / "own.toml"),
        "QUIVER_DATA": str(tmp_path / "named"),
        "QUIVER_SERVER__PORT": "7272",
        "QUIVER_SERVER__LOG_LEVEL": "debug",
    }
    ran = quiver("serve", "--log-level", "warning", env=env)
    assert ran.code == 0, ran.err
    assert (asked["path"], asked["settings"].port) == (tmp_path / "named", 7272)
    assert logging.getLogger("quivermq").level == logging.WARNING


def test_a_mistake_in_the_file_serves_nothing(tmp_path: Path, asked: dict[str, Any]) -> None:
    (tmp_path / "own.toml").write_text('[topics."events.*"]\nleese_ms = 5\n')
    ran = quiver("serve", "--data", tmp_path / "data", "--config", tmp_path / "own.toml")
    assert (ran.code, asked) == (2, {})
    assert 'topics."events.*".leese_ms' in ran.err
    assert "own.toml" in ran.err
    assert not (tmp_path / "data").exists()
