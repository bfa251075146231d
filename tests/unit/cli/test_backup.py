"""`quiver backup` and `quiver restore`."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving
from support.command_inside import Ran
from support.command_inside import quiver as run_inside

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put_many([b"tea", b"milk"])
    return tmp_path / "data"


def quiver(*words: object, status: int = 0) -> Ran:
    ran = run_inside(*map(str, words))
    assert ran.code == status, ran.err
    return ran


def told(*words: object) -> Any:
    return json.loads(quiver(*words, "--json").out)


def put_one(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.queue("orders").put(b"more")


def test_make_list_verify_prune_restore(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    first = told("backup", target, "--data", data)
    put_one(data)
    second = told("backup", "make", target, "--data", data)
    assert [each["number"] for each in told("backup", "list", target)["backups"]] == [1, 2]
    assert told("backup", "verify", target)["whole"] == [1, 2]
    assert "2 whole backups" in quiver("backup", "verify", target).text
    at = first["taken_us"] / 1_000_000
    restored = told("restore", target, tmp_path / "old", "--at", f"{at:.6f}")
    assert (restored["backup"]["number"], restored["report"]["messages"]) == (1, 2)
    assert told("backup", "prune", target, "--keep", 1) == {"pruned": [1]}
    text = quiver("restore", target, tmp_path / "new").text
    assert "restored backup 2 of" in text
    assert "1 topic, 3 messages" in text
    assert second["new_bytes"] > 0


def test_keep_prunes_afterwards(data: Path, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        put_one(data)
        made = told("backup", tmp_path / "backups", "--data", data, "--keep", 2)
        assert (made["number"], made["pruned"]) == (number, int(number == 3))


def test_damage_is_found_and_named(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    told("backup", target, "--data", data)
    [stored] = sorted((target / "part").iterdir())[-1:]
    stored.write_bytes(stored.read_bytes()[:-1] + b"!")
    found = quiver("backup", "verify", target, status=6).text
    assert stored.name in found
    refused = quiver("restore", target, tmp_path / "new", status=6)
    assert "no backup before it is whole" in refused.err
    (target / "moment" / "1".zfill(20)).write_bytes(b"{}")
    assert "is not as it should be" in quiver("backup", "list", target).text
    assert not (tmp_path / "new").exists()


def test_a_broker_makes_them_where_its_settings_say(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    with serving(data, backup_target=str(target)) as broker:
        assert told("backup", target, "--server", broker.url)["number"] == 1
        refused = quiver("backup", tmp_path / "elsewhere", "--server", broker.url, status=7)
        assert "server.backup_target" in refused.err
        # It is in use.
        quiver("backup", target, "--data", data, status=4)
    assert told("restore", target, tmp_path / "new")["report"]["messages"] == 2


def test_what_makes_no_sense_is_refused(data: Path, tmp_path: Path) -> None:
    quiver("backup", tmp_path / "backups", "--data", data, "--every", "0.1", status=2)
    quiver("backup", tmp_path / "backups", "--data", tmp_path / "nowhere", status=3)
    quiver("backup", "list", tmp_path / "nowhere", status=3)
    quiver("restore", tmp_path / "nowhere", tmp_path / "new", status=3)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_every_goes_on_after_a_failure(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, waits = tmp_path / "backups", []

    def wait(_: float) -> None:
        waits.append(len(list((target / "moment").iterdir())))
        if len(waits) == 1:
            # Something is in the way, for one attempt.
            (target / "set.json").rename(tmp_path / "set.json")
            (target / "other").touch()
        if len(waits) == 2:
            (tmp_path / "set.json").rename(target / "set.json")
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("quivermq.cli.backup.time.sleep", wait)
    ended = quiver("backup", target, "--data", data, "--every", "60s", status=130)
    assert waits == [1, 1, 2]
    assert "no backup was made" in ended.err
