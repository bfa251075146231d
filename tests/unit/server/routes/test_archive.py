"""Naming the archive over HTTP."""

from collections.abc import Iterator

import pytest
from support.archives import ARCHIVE, archive_queue
from support.site import Site
from unit.server.routes.conversation import get, status_and_code, told

from quivermq.engine import engine_of
from quivermq.model.json import FRAME
from quivermq.server.routes import operations, reading
from quivermq.server.routes import tending as archive


@pytest.fixture
def site() -> Iterator[Site]:
    with Site([*archive.ROUTES, *operations.ROUTES, *reading.ROUTES]) as site:
        yield site


def test_the_archive_is_named_and_read(site: Site) -> None:
    assert get(site, "/v1/archive") == {"directory": None}
    queue = site.engine.queue("orders")
    queue.put_many([b"tea", b"milk"])
    archive_queue(engine_of(site.engine).path, ARCHIVE, "orders", disk=site.disk)
    named = told(site.ask("POST", "/v1/archive", {"directory": str(ARCHIVE)}))
    assert named == get(site, "/v1/archive") == {"directory": str(ARCHIVE)}
    queue.ack(queue.get_many(2))
    assert told(site.ask("POST", "/v1/compact?archived=true"))["messages"] == 2
    page = get(site, "/v1/topics/orders/partitions/0/messages")
    assert [message["value"] for message in page["messages"]] == ["tea", "milk"]
    assert (page["next"], page["start"], page["end"]) == (2, 0, 2)
    assert told(site.ask("POST", "/v1/archive", {"directory": None})) == {"directory": None}


def test_a_page_behind_the_archived_rest_goes_on(site: Site) -> None:
    queue = site.engine.queue("orders")
    queue.put_many([b"%d" % number for number in range(10)])
    queue.reject(queue.get_many(10), "never")
    queue.discard(lambda letter: letter.value >= b"5")
    archive_queue(engine_of(site.engine).path, ARCHIVE, "orders.dlq", disk=site.disk)
    site.engine.use_archive(ARCHIVE)
    log = engine_of(site.engine).catalog.get("orders.dlq").topic.partitions[0].logs[1]
    assert log is not None
    log.retain(finished=10)
    path = "/v1/topics/orders.dlq/partitions/0/messages"
    for offset in (0, 5, 9):
        page = get(site, f"{path}?offset={offset}")
        assert (page["next"], page["start"], page["end"]) == (10, 0, 10)
        frames = site.ask("GET", f"{path}?offset={offset}", headers={"Accept": FRAME})
        assert frames.headers is not None
        assert [frames.headers[f"Quiver-{name}"] for name in ("Next", "Start", "End")] == ["10", "0", "10"]


def test_what_is_no_archive_is_refused(site: Site) -> None:
    for directory, expected in [
        (str(ARCHIVE), (404, "not_found")),
        ("", (400, "invalid_request")),
        ("x" * 300, (400, "invalid_request")),
        ("\0", (400, "invalid_request")),
    ]:
        found = status_and_code(site, "POST", "/v1/archive", {"directory": directory})
        assert found == expected
    assert status_and_code(site, "POST", "/v1/compact?archived=perhaps") == (400, "invalid_request")
