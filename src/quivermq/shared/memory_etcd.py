"""etcd in memory, for tests: as much of it as a client of ours asks for, and a client without a network.

The rules are etcd's: one revision for all keys, transactions, leases that end when the test says so. Its
answers are those of the JSON gateway, so that the client under test is the one that is used.
"""

import json
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quivermq.shared.etcd import EtcdClient, Json
from quivermq.shared.memory import MemoryStore


@dataclass
class StoredKey:
    """A key, as etcd has it."""

    value: str
    created: int
    changed: int
    lease: int


@dataclass
class MemoryEtcd:
    """The state of a cluster, and what it answers."""

    keys: dict[bytes, StoredKey] = field(default_factory=dict)
    leases: set[int] = field(default_factory=set)
    revision: int = 1
    granted: int = 1000
    tokens: set[str] = field(default_factory=set)
    password: str | None = None
    """Where there is one, everybody has to log in."""
    news: list[dict[str, Any]] = field(default_factory=list)
    """What a watch is told before it ends."""
    guard: threading.Lock = field(default_factory=threading.Lock)
    history: list[dict[str, Any]] = field(default_factory=list)
    """Every event, with its revision: what watches are told as it happens, unless there are `news`."""
    has_happened: threading.Condition = field(default_factory=threading.Condition)
    is_closed: bool = False

    def answer(self, path: str, body: dict[str, Any], token: str | None) -> tuple[int, dict[str, Any]]:
        with self.guard:
            if path == "/v3/auth/authenticate":
                return self._login(body)
            if self.password is not None and token not in self.tokens:
                return 401, {"error": "etcdserver: invalid auth token", "code": 16}
            act = getattr(self, "_" + path.removeprefix("/v3/").replace("/", "_"))
            answer = 200, {"header": {"revision": str(self.revision)}, **act(body)}
        with self.has_happened:
            self.has_happened.notify_all()
        return answer

    def end_lease(self, lease: int) -> None:
        """As if nobody had kept it alive."""
        with self.guard:
            self._lease_revoke({"ID": str(lease)})
        with self.has_happened:
            self.has_happened.notify_all()

    def end_watches(self) -> None:
        """Let every watch end, and every one that is begun from now on."""
        self.is_closed = True
        with self.has_happened:
            self.has_happened.notify_all()

    def watched(self, creates: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """What watches are told, until they are ended."""
        seen = len(self.history)
        for number, _ in enumerate(creates):
            yield {
                "result": {"header": {"revision": str(self.revision)}, "watch_id": number, "created": True}
            }
        while not self.is_closed:
            self._wait_for_news(seen)
            for event in self.history[seen:]:
                seen += 1
                if any(
                    _covers(create["create_request"], b64decode(event["kv"]["key"])) for create in creates
                ):
                    yield {"result": {"header": {"revision": str(self.revision)}, "events": [event]}}

    def _wait_for_news(self, seen: int) -> None:
        with self.has_happened:
            self.has_happened.wait_for(lambda: self.is_closed or len(self.history) > seen)

    def _login(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["password"] != self.password:
            return 400, {
                "error": "etcdserver: authentication failed, invalid user ID or password",
                "code": 3,
            }
        self.tokens.add(f"token {len(self.tokens)}")
        return 200, {"token": f"token {len(self.tokens) - 1}"}

    def _kv_range(self, body: dict[str, Any]) -> dict[str, Any]:
        start, limit = b64decode(body["key"]), int(body.get("limit", 0))
        end = b64decode(body["range_end"]) if "range_end" in body else start + b"\0"
        found = sorted(key for key in self.keys if start <= key < end)
        shown = [self._shown(key) for key in (found[:limit] if limit else found)]
        # As protobuf has it in JSON, what is empty is left out.
        return {"kvs": shown, "more": True} if len(shown) < len(found) else {"kvs": shown} if shown else {}

    def _shown(self, key: bytes) -> dict[str, Any]:
        stored = self.keys[key]
        return {
            "key": b64encode(key).decode(),
            "value": stored.value,
            "create_revision": str(stored.created),
            "mod_revision": str(stored.changed),
            "lease": str(stored.lease),
        }

    def _kv_txn(self, body: dict[str, Any]) -> dict[str, Any]:
        if not all(self._holds(each) for each in body["compare"]):
            return {}
        self.revision += 1
        for each in body["success"]:
            if put := each.get("request_put"):
                self._put(put)
            else:
                start = b64decode(each["request_delete_range"]["key"])
                end = each["request_delete_range"].get("range_end")
                stop = start + b"\0" if end is None else b64decode(end)
                self._delete(lambda key: start <= key < stop)  # noqa: B023 - It is called at once.
        return {"succeeded": True, "header": {"revision": str(self.revision)}}

    def _holds(self, compare: dict[str, Any]) -> bool:
        assert compare["result"] == "EQUAL"
        stored = self.keys.get(b64decode(compare["key"]), StoredKey("", 0, 0, 0))
        if compare["target"] == "CREATE":
            return stored.created == int(compare["create_revision"])
        return stored.changed == int(compare["mod_revision"])

    def _put(self, put: dict[str, Any]) -> None:
        key, lease = b64decode(put["key"]), int(put["lease"])
        assert not lease or lease in self.leases, "etcd refuses a lease that has ended"
        before = self.keys.get(key)
        created = self.revision if before is None else before.created
        self.keys[key] = StoredKey(put["value"], created, self.revision, lease)
        self.history.append({"kv": self._shown(key)})

    def _delete(self, is_meant: Callable[[bytes], bool]) -> None:
        for key in [key for key in self.keys if is_meant(key)]:
            del self.keys[key]
            gone = {"key": b64encode(key).decode(), "mod_revision": str(self.revision)}
            self.history.append({"type": "DELETE", "kv": gone})

    def _lease_grant(self, body: dict[str, Any]) -> dict[str, Any]:
        self.granted += 1
        lease = self.granted
        self.leases.add(lease)
        return {"ID": str(lease), "TTL": body["TTL"]}

    def _lease_keepalive(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"ID": body["ID"], **({"TTL": "5"} if int(body["ID"]) in self.leases else {})}}

    def _lease_revoke(self, body: dict[str, Any]) -> dict[str, Any]:
        lease = int(body["ID"])
        self.leases.discard(lease)
        self.revision += 1
        self._delete(lambda key: self.keys[key].lease == lease)
        return {}


def _covers(create: dict[str, Any], key: bytes) -> bool:
    start = b64decode(create["key"])
    end = b64decode(create["range_end"]) if "range_end" in create else start + b"\0"
    return start <= key < end


class MemoryEtcdClient(EtcdClient):
    """The client of a process whose steps are those of its store: the same faults strike both."""

    def __init__(self, etcd: MemoryEtcd, store: MemoryStore) -> None:
        super().__init__(["http://memory"])
        self._etcd = etcd
        self._steps = store

    def _exchanged(self, path: str, body: Json) -> tuple[int, Json]:
        sent = json.loads(json.dumps(body))
        return self._steps.step("etcd", path, lambda: self._etcd.answer(path, sent, None))
