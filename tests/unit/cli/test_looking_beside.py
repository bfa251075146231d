"""Commands that only look, at a directory that is in use, or that nobody can write to."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.command_inside import quiver

import quivermq
from quivermq.disk import SystemDisk
from quivermq.engine import engine_of
from quivermq.errors import DiskRefused, QuiverError, StorageFailed

LOOKING = [
    ["stats"],
    ["topic", "list"],
    ["topic", "show", "orders"],
    ["group", "list"],
    ["group", "show", "orders", "default"],
    ["dlq", "list", "orders"],
    ["scheduled", "list", "orders"],
]
READING = [
    ["read", "orders"],
    ["tail", "orders", "-n", "2", "--count", "2"],
    ["export", "orders"],
    ["verify"],
]


def fill(mq: quivermq.Connection) -> None:
    mq.create_topic("orders", attempts_max=1)
    orders = mq.queue("orders")
    orders.put_many([b"a", b"b", b"c"])
    orders.put(b"later", delay=3600)
    for message in orders.get_many(1):
        message.nack()


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_a_directory_in_use_is_looked_at_by_its_files_and_that_is_said(
    arguments: list[str], tmp_path: Path
) -> None:
    with quivermq.open(tmp_path) as mq:
        fill(mq)
        ran = quiver(*arguments, "--json", "--data", tmp_path)
        assert ran.code == 0, ran.err
        assert ran.err == f"{tmp_path} is in use by process {os.getpid()}: this is what its files show\n"
    alone = quiver(*arguments, "--json", "--data", tmp_path)
    assert alone.err == ""
    # What the disk has free, and how old things are, changes from moment to moment.
    seen, real = json.loads(ran.text), json.loads(alone.text)
    assert seen.keys() == real.keys()
    if arguments[0] != "stats":
        assert seen == real


def refuse_to_lock(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(_: SystemDisk, path: Path, **__: Any) -> Any:
        cause = OSError(number, os.strerror(number))
        error: QuiverError = StorageFailed(f"cannot write {path}", path=path)
        if number == errno.EROFS:
            error = DiskRefused(f"{path} cannot be written", path=path)
        raise error from cause

    monkeypatch.setattr(SystemDisk, "lock", refuse)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("arguments", [*LOOKING, *READING], ids=" ".join)
def test_a_directory_that_cannot_be_written_to_can_be_looked_at(
    arguments: list[str], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quivermq.open(tmp_path) as mq:
        fill(mq)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    refuse_to_lock(monkeypatch, number)
    ran = quiver(*arguments, "--data", tmp_path)
    assert ran.code == 0, ran.err
    assert ran.text
    assert ("cannot be written to: this is what its files show" in ran.err) == (arguments in LOOKING)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_what_changes_something_is_still_refused(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        fill(mq)
        for arguments in (["put", "orders", "x"], ["get", "orders"], ["dlq", "redrive", "orders"]):
            ran = quiver(*arguments, "--data", tmp_path)
            assert (ran.code, ran.text) == (quivermq.DirectoryLocked.exit_code, "")
            assert f"in use by process {os.getpid()}" in ran.err


def test_who_has_it_says_where_it_serves(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        fill(mq)
        with pytest.raises(quivermq.DirectoryLocked) as refused:
            quivermq.open(tmp_path)
        assert (refused.value.pid, refused.value.url) == (os.getpid(), None)
        assert "quiver serve" in str(refused.value)
        assert "quivermq.connect(url)" in str(refused.value)
        engine_of(mq).announce("http://127.0.0.1:7070")
        with pytest.raises(quivermq.DirectoryLocked) as refused:
            quivermq.open(tmp_path)
        assert (refused.value.pid, refused.value.url) == (os.getpid(), "http://127.0.0.1:7070")
        assert "quivermq.connect('http://127.0.0.1:7070')" in str(refused.value)
        ran = quiver("put", "orders", "x", "--data", tmp_path)
        assert "say --server http://127.0.0.1:7070 in place of --data" in ran.err
    # The next one to have it serves nothing.
    with quivermq.open(tmp_path), pytest.raises(quivermq.DirectoryLocked) as refused:
        quivermq.open(tmp_path)
    assert refused.value.url is None


@pytest.mark.parametrize("command", ["read", "tail"])
def test_a_misspelt_topic_is_told_with_the_one_that_may_be_meant(command: str, tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        fill(mq)
        ran = quiver(command, "order", "--data", tmp_path)
    assert (ran.code, ran.err) == (
        3,
        "error: there is no topic order: did you mean orders or orders.dlq?\n",
    )
