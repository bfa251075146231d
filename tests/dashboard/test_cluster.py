"""The page of a cluster, below the path of a shard, in front of a broker that tells of a cluster."""

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from dashboard.test_proxy import Proxy
from dashboard.visits import Visit, Visiting
from playwright.sync_api import Page, expect
from support.broker import Served

ALERT = {"alert": "QuiverNoStandby", "severity": "ticket", "summary": "start another one"}


class Front(Proxy):
    """A broker of a cluster behind a proxy, which has shard 0; what was asked of it is in `asked`."""

    asked: list[tuple[str, str, bytes]]
    looks: list[int]

    def do_GET(self) -> None:  # noqa: N802 - As the server calls it.
        shard, root = "/quiver/shards/0", "/quiver/v1/cluster"
        if self.path.startswith(f"{shard}/"):
            self.path = f"/quiver{self.path.removeprefix(shard)}"
            super().do_GET()
        elif self.command != "GET":
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.asked.append((self.command, self.path.removeprefix(root), body))
            self._tell({})
        else:
            self._tell(self._figures() if self.path == f"{root}/figures" else self._map())

    do_POST = do_DELETE = do_GET  # noqa: N815

    def _map(self) -> dict[str, Any]:
        brokers = [
            {
                "id": name,
                "url": f"http://{name}",
                "version": "1",
                "is_draining": name == "c",
                "shards": shards,
            }
            for name, shards in (("a", [0, 1]), ("b", []), ("c", []))
        ]
        owners = [
            {"shard": shard, "broker": broker, "epoch": 7, "standby": "b"}
            for shard, broker in ((0, "a"), (1, "a"), (2, None))
        ]
        return {"shards": 3, "brokers": brokers, "owners": owners, "alerts": [ALERT]}

    def _figures(self) -> dict[str, Any]:
        self.looks.append(1)
        count = len(self.looks)
        shard = {
            "epoch": 7,
            "uncommitted_bytes": 10,
            "replay_chunks": 12,
            "commits": {"chunks": 10 * count, "p99_s": 0.02},
            "requests": {"put": {"count": 40, "bytes": 1000}},
            "estimated_dollars_a_month": 1.25,
        }
        return {"time": count * 2_000_000, "shards": {"0": shard, "1": shard}, "silent": ["c"]}

    def _tell(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def front(broker: Served) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """The address of the proxy, and what is asked of the cluster."""
    asked: list[tuple[str, str, bytes]] = []
    handler = type("FrontOfOne", (Front,), {"port": broker.port, "asked": asked, "looks": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/quiver", asked
        server.shutdown()


def at(view: Visit, root: str) -> Page:
    """Go to the page of the cluster, as the first shard shows it."""
    view.url = root
    view.page.goto(f"{root}/shards/0/#/cluster")
    return view.page


@pytest.mark.parametrize("dark", [False, True])
def test_the_cluster_is_shown(front: tuple[str, Any], broker: Served, visit: Visiting, dark: bool) -> None:
    view = visit(broker, dark=dark)
    page = at(view, front[0])
    expect(page.get_by_role("link", name="Cluster")).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("alert")).to_contain_text("start another one")
    figures = page.locator(".tiles")
    expect(figures).to_contain_text("1 without an owner")
    expect(figures).to_contain_text("c does not answer")
    expect(figures).to_contain_text("$2.50")
    # Ten of each of two shards within two seconds.
    expect(figures).to_contain_text("10")
    shards = page.get_by_role("table", name="Shards of the cluster")
    expect(shards.get_by_role("row")).to_have_count(4)
    expect(shards.get_by_role("row").nth(3)).to_contain_text("nobody")
    expect(shards.get_by_role("row").nth(1)).to_contain_text("12")
    assert shards.get_by_role("link", name="1").get_attribute("href") == "/quiver/shards/1/"
    view.shoot(f"cluster-{'dark' if dark else 'light'}")


def test_a_shard_is_moved_and_a_broker_drained_after_a_question(
    front: tuple[str, list[tuple[str, str, bytes]]], broker: Served, visit: Visiting
) -> None:
    view, asked = visit(broker), front[1]
    page = at(view, front[0])
    page.get_by_role("button", name="Move shard 1").click()
    dialog = page.get_by_role("dialog")
    # Neither its owner nor one that is drained.
    expect(dialog.get_by_role("option")).to_have_text(["b", "wherever placement has it"])
    dialog.get_by_role("button", name="Move").click()
    expect(page.locator(".toasts")).to_contain_text("Shard 1 goes there")
    page.get_by_role("button", name="Drain a", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("It gives its 2 shards to the others")
    assert [path for _, path, _ in asked] == ["/shards/1/move"]
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.locator(".toasts")).to_contain_text("a gives its shards to the others")
    page.get_by_role("button", name="Undo the drain of c").click()
    expect(page.locator(".toasts")).to_contain_text("c may own shards again")
    assert [(method, path) for method, path, _ in asked[1:]] == [
        ("POST", "/brokers/a/drain"),
        ("DELETE", "/brokers/c/drain"),
    ]
    assert json.loads(asked[0][2]) == {"broker": "b"}


def test_it_fits_a_phone(front: tuple[str, Any], broker: Served, visit: Visiting) -> None:
    view = visit(broker, phone=True)
    page = at(view, front[0])
    expect(page.get_by_role("button", name="Move shard 2")).to_be_visible()
    assert not view.has_sideways_scroll()
    view.shoot("cluster-phone")


def test_a_broker_of_no_cluster_has_no_such_page(broker: Served, visit: Visiting) -> None:
    page = visit(broker).open("cluster")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
    expect(page.get_by_role("link", name="Cluster")).to_have_count(0)
