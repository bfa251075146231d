"""As much of etcd's JSON gateway as a client of ours asks for, in memory, with faults.

The rules are etcd's: one revision for all keys, transactions, leases that end when the test says so.
"""

import json
import ssl
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

GatewayFault = Literal["fail", "lose_answer", "unavailable"]


@dataclass
class Stored:
    """A key, as etcd has it."""

    value: str
    created: int
    changed: int
    lease: int


@dataclass
class EtcdGateway:
    """The state of a cluster, and what it answers."""

    keys: dict[bytes, Stored] = field(default_factory=dict)
    leases: set[int] = field(default_factory=set)
    revision: int = 1
    fault: Callable[[str, int], GatewayFault | None] = lambda _path, _number: None
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    password: str | None = None
    """Where there is one, everybody has to log in."""
    news: list[dict[str, Any]] = field(default_factory=list)
    """What a watch is told before it ends."""
    guard: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, body: dict[str, Any], token: str | None) -> tuple[int, dict[str, Any]]:
        with self.guard:
            if path == "/v3/auth/authenticate":
                return self._login(body)
            if self.password is not None and token not in self.tokens:
                return 401, {"error": "etcdserver: invalid auth token", "code": 16}
            act = getattr(self, "_" + path.removeprefix("/v3/").replace("/", "_"))
            return 200, {"header": {"revision": str(self.revision)}, **act(body)}

    def end_lease(self, lease: int) -> None:
        """As if nobody had kept it alive."""
        with self.guard:
            self._lease_revoke({"ID": str(lease)})

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
                self.keys = {key: value for key, value in self.keys.items() if not start <= key < stop}
        return {"succeeded": True, "header": {"revision": str(self.revision)}}

    def _holds(self, compare: dict[str, Any]) -> bool:
        assert compare["result"] == "EQUAL"
        stored = self.keys.get(b64decode(compare["key"]), Stored("", 0, 0, 0))
        if compare["target"] == "CREATE":
            return stored.created == int(compare["create_revision"])
        return stored.changed == int(compare["mod_revision"])

    def _put(self, put: dict[str, Any]) -> None:
        key, lease = b64decode(put["key"]), int(put["lease"])
        assert not lease or lease in self.leases, "etcd refuses a lease that has ended"
        before = self.keys.get(key)
        created = self.revision if before is None else before.created
        self.keys[key] = Stored(put["value"], created, self.revision, lease)

    def _lease_grant(self, body: dict[str, Any]) -> dict[str, Any]:
        lease = 1000 + len(self.asked)
        self.leases.add(lease)
        return {"ID": str(lease), "TTL": body["TTL"]}

    def _lease_keepalive(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"ID": body["ID"], **({"TTL": "5"} if int(body["ID"]) in self.leases else {})}}

    def _lease_revoke(self, body: dict[str, Any]) -> dict[str, Any]:
        lease = int(body["ID"])
        self.leases.discard(lease)
        self.revision += 1
        self.keys = {key: value for key, value in self.keys.items() if value.lease != lease}
        return {}


@contextmanager
def served(gateway: EtcdGateway, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of an endpoint of that cluster."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # An answer goes in one piece: of two, the second would wait for the first to be received.
        wbufsize = 1 << 16

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            gateway.asked.append(self.path)
            fault = gateway.fault(self.path, len(gateway.asked))
            if fault == "fail":
                self.close_connection = True
                return
            if fault == "unavailable":
                self._send(503, {"error": "etcdserver: no leader", "code": 14})
                return
            if self.path == "/v3/watch":
                self._send_news()
                return
            answer = gateway.answer(self.path, body, self.headers["Authorization"])
            if fault == "lose_answer":
                self.close_connection = True
            else:
                self._send(*answer)

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _send_news(self) -> None:
            self.send_response(200)
            self.end_headers()
            for each in gateway.news:
                self.wfile.write(json.dumps(each).encode() + b"\n")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
