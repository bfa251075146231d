"""What is told over HTTP says nothing of where things lie on this machine."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.queues import DATA
from support.site import Site

from quivermq.errors import (
    Conflict,
    Corruption,
    DirectoryLocked,
    DiskFull,
    DiskRefused,
    FsyncFailed,
    QuiverError,
    StorageFailed,
)
from quivermq.server.http import Hiding, error_response
from quivermq.server.routes import all_routes

LOG = Path("topics/orders/p0/normal/00000000000000000000.log")
PUBLISH = "/v1/topics/orders/messages"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(all_routes()) as site:
        yield site


@pytest.mark.parametrize("root", [Path("/srv/queues/a b"), Path("data"), Path("/data")])
@pytest.mark.parametrize(
    "make",
    [
        lambda path: DiskFull(path, needed_bytes=7),
        lambda path: DiskRefused(f"{path} cannot be used now", path=path),
        lambda path: StorageFailed(f"cannot open {path}: no", path=path),
        lambda path: FsyncFailed(f"cannot sync {path}: no", path=path),
        lambda path: Corruption("a checksum", path=path, position=1, offsets=(0, None)),
        lambda path: Conflict(f"{path} was removed meanwhile"),
        lambda path: DirectoryLocked(path, pid=1),
    ],
)
def test_an_error_names_a_file_by_where_it_lies_in_the_queue(
    root: Path, make: Callable[[Path], QuiverError]
) -> None:
    error = make(root / LOG)
    assert str(root) in str(error)
    told = json.loads(error_response(error, Hiding(root)).body)["error"]
    assert str(root) not in json.dumps(told)
    assert str(LOG) in told["message"]
    whole = json.loads(error_response(make(root), Hiding(root)).body)["error"]
    assert "the data directory" in whole["message"]
    elsewhere = json.loads(error_response(make(root.parent / "x" / "f"), Hiding(root)).body)["error"]
    assert not hasattr(error, "path") or str(root.parent / "x") not in json.dumps(elsewhere)


def test_other_words_stay_as_they_are() -> None:
    text = "the metadata/x of my.data/y, and /docs: see data-center/z"
    assert Hiding(Path("data")).text(text) == text


def full(site: Site) -> None:
    site.disk.fill_after(0)


def read_only(site: Site) -> None:
    site.disk.refuse("append", "create", "rename")


def syncs_fail(site: Site) -> None:
    site.disk.fail_sync()


@pytest.mark.parametrize("break_it", [full, read_only, syncs_fail])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", PUBLISH, b"x"),
        ("POST", PUBLISH, {"messages": [{"value": "a"}, {"value": "b"}]}),
        ("POST", f"{PUBLISH}?delay_ms=60000", b"x"),
        ("POST", "/v1/topics/new/messages", b"x"),
        ("POST", "/v1/topics", {"name": "new"}),
        ("PATCH", "/v1/topics/orders", {"lease_ms": 1}),
        ("POST", "/v1/topics/orders/groups/g/receive", {}),
        ("POST", "/v1/topics/orders/groups/g/seek", {"to": "latest"}),
        ("POST", "/v1/topics/orders/producers/1", b""),
    ],
)
def test_no_call_tells_of_paths_when_the_disk_fails(
    site: Site, break_it: Callable[[Site], None], method: str, path: str, body: Any
) -> None:
    site.post(PUBLISH, b"x")
    break_it(site)
    response = site.ask(method, path, body)
    assert response.status in (500, 503, 507), response.body
    assert f"{DATA}/".encode() not in response.body
    for shown in ("/v1/stats", "/readyz"):
        assert f"{DATA}/".encode() not in site.ask("GET", shown).body


def test_no_call_tells_of_paths_when_a_log_is_damaged(site: Site) -> None:
    site.engine.create_topic("orders", segment_messages=1)
    for _ in range(3):
        site.post(PUBLISH, b"some value")
    site.disk.flip(DATA / LOG, 90)
    for path in ("/v1/topics/orders/partitions/0/messages", "/v1/topics/orders/groups/g/peek"):
        response = site.ask("GET", path)
        assert response.status == 500
        assert b"is damaged" in response.body
        assert f"{DATA}/".encode() not in response.body
    verified = site.ask("POST", "/v1/verify")
    assert str(LOG).encode() in verified.body
    assert f"{DATA}/".encode() not in verified.body
    told = json.loads(site.ask("GET", "/v1/stats").body)["problems"]
    assert str(LOG) in json.dumps(told)
    assert f"{DATA}/" not in json.dumps(told)
