"""API keys: made, found, taken away, and never readable in the file."""

import json
import logging
import stat
from pathlib import Path

import pytest
from support.manual_clock import ManualClock

from quivermq.disk import SystemDisk
from quivermq.errors import Conflict, InvalidName, InvalidRequest, NotFound, StorageFailed
from quivermq.server.keys import KeyStore, allow_anonymous, create_key, list_keys, revoke_key


def test_a_key_is_found_by_what_the_client_sends(tmp_path: Path) -> None:
    new = create_key(tmp_path, "write", ["orders.*"], clock=ManualClock())
    found = KeyStore(tmp_path).find(new.text)
    assert found == new.key
    assert (new.key.scope, new.key.topics, new.key.created_us) == (
        "write",
        ("orders.*",),
        1_700_000_000_000_000,
    )


def test_the_file_has_only_a_hash_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    new = create_key(tmp_path, "admin")
    path = tmp_path / "keys.json"
    assert new.text.rpartition("_")[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_is_not_shown_by_accident(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        new = create_key(tmp_path, "admin")
    secret = new.text.rpartition("_")[2]
    assert secret not in repr(new)
    assert secret not in caplog.text


@pytest.mark.parametrize("text", ["", "qk_", "qk_000000000000_" + "0" * 64, "x" * 100_000, "qk_ä_ß"])
def test_what_is_no_key_is_not_found(tmp_path: Path, text: str) -> None:
    create_key(tmp_path, "admin")
    assert KeyStore(tmp_path).find(text) is None


def test_another_secret_for_a_known_id_is_not_found(tmp_path: Path) -> None:
    one, other = create_key(tmp_path, "admin"), create_key(tmp_path, "read")
    mixed = one.text.rpartition("_")[0] + "_" + other.text.rpartition("_")[2]
    assert KeyStore(tmp_path).find(mixed) is None


def test_keys_are_listed_and_revoked(tmp_path: Path) -> None:
    clock = ManualClock()
    first = create_key(tmp_path, "read", clock=clock)
    clock.advance(1)
    second = create_key(tmp_path, "admin", clock=clock)
    assert list_keys(tmp_path) == [first.key, second.key]
    assert revoke_key(tmp_path, first.key.id) == first.key
    assert list_keys(tmp_path) == [second.key]
    assert KeyStore(tmp_path).find(first.text) is None
    with pytest.raises(NotFound, match="quiver key list"):
        revoke_key(tmp_path, first.key.id)


def test_a_directory_without_keys_has_none(tmp_path: Path) -> None:
    assert list_keys(tmp_path) == []
    assert not KeyStore(tmp_path).is_required


def test_a_running_broker_learns_of_changes_within_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    store = KeyStore(tmp_path, clock=clock)
    assert not store.is_required
    new = create_key(tmp_path, "read")
    assert store.find(new.text) is None
    clock.advance(1)
    assert store.is_required
    assert store.find(new.text) == new.key
    revoke_key(tmp_path, new.key.id)
    clock.advance(1)
    assert store.find(new.text) is None


@pytest.mark.parametrize("how", ["revoke", "remove"])
def test_a_broker_that_wants_a_key_goes_on_wanting_one(tmp_path: Path, how: str) -> None:
    clock = ManualClock()
    new = create_key(tmp_path, "read")
    store = KeyStore(tmp_path, clock=clock)
    if how == "revoke":
        revoke_key(tmp_path, new.key.id)
    else:
        (tmp_path / "keys.json").unlink()
    clock.advance(1)
    assert store.is_required
    assert store.find(new.text) is None


@pytest.mark.parametrize("how", ["revoke", "remove"])
def test_a_broker_that_is_started_without_the_last_key_wants_one_until_it_is_told(
    tmp_path: Path, how: str
) -> None:
    new = create_key(tmp_path, "read")
    with pytest.raises(Conflict, match="quiver key revoke"):
        allow_anonymous(tmp_path)
    if how == "revoke":
        revoke_key(tmp_path, new.key.id)
    else:
        (tmp_path / "keys.json").unlink()
    started = KeyStore(tmp_path)
    assert (started.is_required, started.is_empty) == (True, True)
    allow_anonymous(tmp_path)
    # One that may be reached by others checked that it asks for keys when it began.
    assert started.look()
    assert started.is_required
    assert not KeyStore(tmp_path).is_required
    create_key(tmp_path, "read")
    assert KeyStore(tmp_path).is_required


def test_a_file_without_keys_asks_for_one_also_where_it_was_copied_without_its_lock(tmp_path: Path) -> None:
    revoke_key(tmp_path, create_key(tmp_path, "read").key.id)
    (tmp_path / "keys.lock").unlink()
    assert KeyStore(tmp_path).is_required


def test_looking_for_a_key_where_none_was_leaves_the_broker_open(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        revoke_key(tmp_path, "0" * 12)
    assert not KeyStore(tmp_path).is_required
    assert list(tmp_path.iterdir()) == []


def test_who_may_stay_is_known_after_each_look(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    assert store.is_welcome(None)
    one, other = create_key(tmp_path, "read"), create_key(tmp_path, "admin")
    assert (store.look(), store.look()) == (True, False)
    assert [store.is_welcome(key) for key in (None, one.key, other.key)] == [False, True, True]
    revoke_key(tmp_path, one.key.id)
    assert store.look()
    assert [store.is_welcome(key) for key in (None, one.key, other.key)] == [False, False, True]


def test_who_came_with_a_key_that_is_for_less_now_may_not_stay(tmp_path: Path) -> None:
    key = create_key(tmp_path, "read").key
    store = KeyStore(tmp_path)
    path = tmp_path / "keys.json"
    document = json.loads(path.read_text())
    document["keys"][0]["topics"] = ["orders"]
    del document["checksum"]
    path.write_text(json.dumps(document))
    assert store.is_welcome(key)
    assert store.look()
    assert not store.is_welcome(key)


def test_a_broker_keeps_its_keys_while_the_file_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    new = create_key(tmp_path, "read")
    store = KeyStore(tmp_path, clock=clock)
    (tmp_path / "keys.json").write_text("{")
    clock.advance(1)
    assert store.find(new.text) == new.key
    assert "could not be read" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"scope": "root"},
        {"topics": []},
        {"topics": "orders"},
        {"topics": ["a b"]},
        {"topics": [1]},
        {"hash": "00"},
        {"id": 1},
        {"created_us": "now"},
        {"more": 1},
    ],
)
def test_a_file_that_was_edited_wrongly_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    create_key(tmp_path, "read")
    path = tmp_path / "keys.json"
    document = json.loads(path.read_text())
    document["keys"][0] |= change
    # With the checksum it would be refused whatever the change is.
    del document["checksum"]
    path.write_text(json.dumps(document))
    with pytest.raises(StorageFailed, match=r"keys\.json cannot be understood"):
        KeyStore(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        "{}",
        '{"version": 2, "open": false, "keys": []}',
        '{"version": 1, "open": 1, "keys": []}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(StorageFailed, match=r"keys\.json cannot be understood"):
        list_keys(tmp_path)


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    create_key(tmp_path, "read")
    path = tmp_path / "keys.json"
    path.write_bytes(path.read_bytes() + b" " * 4 * 1024 * 1024)
    with pytest.raises(StorageFailed):
        KeyStore(tmp_path)


def test_a_key_that_makes_no_sense_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no scope"):
        create_key(tmp_path, "root")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="list of topics"):
        create_key(tmp_path, "read", [])
    with pytest.raises(InvalidRequest, match="list of topics"):
        create_key(tmp_path, "read", "orders")
    with pytest.raises(InvalidName):
        create_key(tmp_path, "read", ["a b"])
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_change_the_keys_at_once(tmp_path: Path) -> None:
    lock = SystemDisk().lock(tmp_path / "keys.lock")
    with pytest.raises(Conflict, match="try again"):
        create_key(tmp_path, "read")
    lock.release()
    create_key(tmp_path, "read")
