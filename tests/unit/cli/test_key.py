import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import INHERITED, table_rows
from support.command_inside import Ran, quiver

import quivermq
from quivermq.server.keys import KeyStore


@pytest.fixture
def data(tmp_path: Path) -> Path:
    quivermq.open(tmp_path / "data").close()
    return tmp_path / "data"


def key(data: Path, *arguments: str | Path) -> Ran:
    return quiver("key", *arguments, "--data", data)


def test_a_key_is_printed_once_and_kept_nowhere(data: Path) -> None:
    ran = key(data, "create", "--scope", "write", "--topic", "orders", "--topic", "events.>")
    text = ran.text.strip()
    assert (ran.code, text.startswith("qk_")) == (0, True)
    assert "not shown again" in ran.err
    assert text not in ran.err
    secret = text.rpartition("_")[2].encode()
    assert not [path for path in data.rglob("*") if path.is_file() and secret in path.read_bytes()]
    [row] = table_rows(key(data, "list").text)
    assert (row[0] in text, row[1:3]) == (True, ["write", "orders, events.>"])


def test_a_key_is_one_document_for_programs(data: Path) -> None:
    made = json.loads(key(data, "create", "--scope", "admin", "--json").out)
    assert (made["scope"], made["topics"], made["key"].startswith("qk_")) == ("admin", [">"], True)
    [listed] = json.loads(key(data, "list", "--json").out)["keys"]
    assert listed.pop("created_at") > 0
    assert listed == {"id": made["id"], "scope": "admin", "topics": [">"]}


def test_keys_can_be_made_while_a_broker_has_the_directory(data: Path) -> None:
    with quivermq.open(data):
        assert key(data, "create", "--scope", "read").code == 0
        assert len(table_rows(key(data, "list").text)) == 1


def test_a_revoked_key_is_gone(data: Path) -> None:
    first = json.loads(key(data, "create", "--scope", "read", "--json").out)["id"]
    second = json.loads(key(data, "create", "--scope", "read", "--json").out)["id"]
    assert key(data, "revoke", first, "--yes").text == f"revoked {first}\n"
    assert json.loads(key(data, "revoke", second, "--yes", "--json").out) == {"revoked": second}
    assert json.loads(key(data, "list", "--json").out) == {"keys": []}


def test_a_broker_that_had_keys_is_opened_only_when_it_is_said(data: Path) -> None:
    made = json.loads(key(data, "create", "--scope", "read", "--json").out)["id"]
    ran = key(data, "allow-anonymous", "--yes")
    assert (ran.code, "quiver key revoke" in ran.err) == (4, True)
    key(data, "revoke", made, "--yes")
    assert KeyStore(data).is_required
    assert key(data, "allow-anonymous").code == 2
    assert KeyStore(data).is_required
    assert json.loads(key(data, "allow-anonymous", "--yes", "--json").out) == {"anonymous": True}
    assert not KeyStore(data).is_required


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["create"], 2),
        (["create", "--scope", "all"], 2),
        (["create", "--scope", "read", "--topic", "a/b"], 2),
        (["revoke", "000000000000"], 2),
        (["revoke", "000000000000", "--yes"], 3),
    ],
)
def test_a_wrong_call_makes_no_key(data: Path, arguments: list[str], code: int) -> None:
    ran = key(data, *arguments)
    assert (ran.code, ran.out) == (code, b"")
    assert json.loads(key(data, "list", "--json").out) == {"keys": []}


def test_without_the_parts_of_a_broker_it_says_what_to_install(data: Path) -> None:
    # In a process of its own, because modules cannot be taken out of this one without a trace.
    source = """
import sys
sys.modules["msgspec"] = None
from quivermq.cli import main
for command in (["key", "list"], ["serve"]):
    sys.argv[1:] = [*command, "--data", sys.argv[-1]]
    print(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", source, data], env=INHERITED, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "1"]
    assert done.stderr == "error: install the broker: pip install 'quivermq[server]'\n" * 2


def test_keys_go_where_the_settings_of_the_broker_say(tmp_path: Path) -> None:
    config = tmp_path / "quiver.toml"
    config.write_text('[server]\ndata = "data"\nkeys = "secret/clients.json"\n')
    quivermq.open(tmp_path / "data").close()
    asked = ("--config", config, "--json")
    made = json.loads(quiver("key", "create", "--scope", "read", *asked).out)
    assert (tmp_path / "secret" / "clients.json").exists()
    assert not (tmp_path / "data" / "keys.json").exists()
    [listed] = json.loads(quiver("key", "list", *asked).out)["keys"]
    assert listed["id"] == made["id"]
    assert quiver("key", "revoke", made["id"], "--yes", *asked).code == 0
    assert json.loads(quiver("key", "list", *asked).out) == {"keys": []}
