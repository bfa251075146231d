"""Every call by every scope, for a topic of the key and another: who is let in, and who learns of what."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.site import Site

from quivermq.engine import engine_of
from quivermq.server.access import MEANINGS, PERMISSIONS, SCOPES, calls_of
from quivermq.server.app import App
from quivermq.server.gate import Gate
from quivermq.server.http import Response
from quivermq.server.keys import KeyStore, create_key
from quivermq.server.routes import all_routes
from quivermq.server.routing import Route

OWN, SECRET = "orders.tea", "secret"
ROUTES = {f"{route.method} {route.path}": route for route in all_routes()}
PARTS = {
    "group": "g",
    "partition": "0",
    "producer_id": "1",
    "base_offset": "0",
    "file": "app.js",
    "id": "1-1-1",
}
# Calls that have topics in their body, or that are about a member, whose topics are known.
OF_MEMBERS = ("heartbeat", "leave", "sync")


class Locked(Site):
    """A broker that asks for keys: one of each scope for the topics `orders.*`, and one for all."""

    def __init__(self, path: Path) -> None:
        # Without a target a backup is refused whoever asks for it.
        super().__init__(all_routes(), backup_target=str(path / "backups"))
        self.some = {scope: create_key(path, scope, ["orders.*"]).text for scope in SCOPES}
        self.every = {scope: create_key(path, scope).text for scope in SCOPES}
        self.app = App(self.broker, all_routes(), Gate(KeyStore(path), None))
        for topic in (OWN, SECRET):
            self.engine.create_topic(topic, durability="os")
            self.engine.queue(topic, "g").put(b"x")
            self.engine.queue(topic, "g").get()
        self.members = {
            topic: engine_of(self.engine).members.join("g", [topic], strategy="range", client="192.0.2.1")
            for topic in (OWN, SECRET)
        }

    def call(self, route: Route, topic: str, key: str | None) -> Response:
        """Make a call about a topic."""
        path = "/".join(
            {**PARTS, "topic": topic}.get(part.strip("{}"), part) if part[:1] == "{" else part
            for part in route.path.split("/")
        )
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return self.ask(route.method, path, self._body(route, topic), headers)

    def _body(self, route: Route, topic: str) -> Any:
        match f"{route.method} {route.path}".rsplit("/", 1):
            case ["POST /v1", "topics"]:
                return {"name": topic}
            case [_, "join"]:
                return {"topics": [topic]}
            case ["PUT /v1/groups/{group}", "offsets"]:
                return {"offsets": [{"topic": topic, "partition": 0, "offset": 0}]}
            case [_, word] if word in OF_MEMBERS:
                member = self.members[topic]
                generation = {} if word == "leave" else {"generation": member.generation}
                return {"member_id": member.member_id, **generation}
        return {} if route.body is not None else b""


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    site = Locked(tmp_path)
    with site:
        yield site


def test_the_table_has_every_call_and_no_other() -> None:
    assert set(PERMISSIONS) == set(ROUTES)
    for name, route in ROUTES.items():
        assert route.permission is PERMISSIONS[name]
    assert list(MEANINGS) == list(SCOPES)


def test_what_a_read_key_may_do_changes_nothing() -> None:
    assert {call.partition(" ")[0] for scope in ("none", "read") for call in calls_of(scope)} == {"GET"}
    # And nothing that changes the messages is for somebody who consumes.
    assert not any("messages" in call or "scheduled" in call for call in calls_of("consume"))


def test_a_topic_in_the_path_is_always_looked_at() -> None:
    for name, permission in PERMISSIONS.items():
        assert (permission.topics == "named") == ("{topic}" in name)


@pytest.mark.parametrize("name", PERMISSIONS)
def test_nobody_comes_in_without_a_key(locked: Locked, name: str) -> None:
    status = locked.call(ROUTES[name], OWN, None).status
    assert (status == 401) == (PERMISSIONS[name].scope != "none")


@pytest.mark.parametrize("name", PERMISSIONS)
def test_a_key_is_let_in_by_its_scope(locked: Locked, name: str) -> None:
    needed = PERMISSIONS[name].scope
    for rank, scope in enumerate(SCOPES):
        is_enough = needed == "none" or SCOPES.index(needed) <= rank
        status = locked.call(ROUTES[name], OWN, locked.every[scope]).status
        assert (status not in (401, 403)) == is_enough, scope


@pytest.mark.parametrize("name", PERMISSIONS)
def test_a_key_is_let_in_for_its_topics(locked: Locked, name: str) -> None:
    permission = PERMISSIONS[name]
    if permission.scope == "none":
        return
    key = locked.some[permission.scope]
    refused = locked.call(ROUTES[name], SECRET, key)
    allowed = locked.call(ROUTES[name], OWN, key)
    if permission.topics == "all":
        assert (refused.status, allowed.status) == (403, 403)
        return
    assert allowed.status not in (401, 403)
    assert SECRET.encode() not in allowed.body
    if permission.topics == "named" or ROUTES[name].body is not None:
        assert refused.status == 403
    else:
        # A list has only what the key may know of.
        assert SECRET.encode() not in refused.body


@pytest.mark.parametrize("word", ["ack", "nack", "release", "reject", "extend"])
def test_a_receipt_of_another_topic_is_refused_like_one_that_is_over(locked: Locked, word: str) -> None:
    secret = locked.engine.queue(SECRET, "h").get()
    assert secret is not None
    held = {"topic": SECRET, "partition": 0, "token": "1", "runs": [0, 1]}
    headers = {"authorization": f"Bearer {locked.some['consume']}"}
    for body in ({"receipts": [secret.receipt]}, {"leases": [held]}):
        path = f"/v1/topics/{OWN}/groups/h/{word}"
        assert locked.ask("POST", path, body, headers).status in (400, 409)
    secret.ack()
