"""A client of etcd: keys, transactions, leases and watches, over its JSON gateway.

Every call goes to one endpoint. Where that does not answer, the next call goes to the next one; a call that
changes nothing goes there at once. One that changes something may have been carried out, and only whoever
made it knows how to find out.
"""

import http.client
import json
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from quivermq.errors import InvalidRequest, StoreDenied, StoreUnreachable

# How etcd says that the key or password is wrong, or does not allow it (gRPC's codes).
_PERMISSION_DENIED, _UNAUTHENTICATED = 7, 16
_REFUSED = ("authentication failed", "user name is empty", "permission denied")
# An answer is read only so far: no value of ours is longer.
_ANSWER_BYTES_MAX = 64 << 20
_KEYS_PER_CALL = 500

Json = dict[str, Any]


class EtcdKey(NamedTuple):
    """A key with its value, and when it was made and changed."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class EtcdEvent(NamedTuple):
    """What a watch tells: a key was put, or is gone."""

    is_put: bool
    key: EtcdKey


def created_at(key: str, revision: int) -> Json:
    """A comparison: the key was made at that revision; 0 for a key that is not there."""
    return {"key": _text(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(revision)}


def changed_at(key: str, revision: int) -> Json:
    """A comparison: the key was last put at that revision; 0 for a key that is not there."""
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def put_key(key: str, value: bytes, *, lease: int = 0) -> Json:
    """A part of a transaction: put a key, which goes with the lease if it has one."""
    return {"request_put": {"key": _text(key), "value": _text(value), "lease": str(lease)}}


def delete_keys(key: str, end: str | None = None) -> Json:
    """A part of a transaction: delete a key, or all from it up to `end`."""
    return {"request_delete_range": _span(key, end)}


class EtcdClient:
    """Thread-safe. `endpoints` are URLs of one cluster; those of https are checked by `tls`.

    Every call may raise StoreUnreachable and StoreDenied.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        user: str | None = None,
        password: str = "",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 3.0,
    ) -> None:
        if not endpoints or any(urlsplit(each).scheme not in ("http", "https") for each in endpoints):
            raise InvalidRequest(f"endpoints of etcd are URLs of http or https, not {list(endpoints)!r}")
        self._endpoints = [urlsplit(each) for each in endpoints]
        self._user, self._password = user, password
        self._tls = tls
        self._timeout_s = timeout_s
        self._turn = 0
        self._token: str | None = None
        # Connections that nobody uses now, each with the turn in which it was made.
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []

    def range(self, key: str, end: str | None = None) -> list[EtcdKey]:
        """A key, or all from it up to `end`, as the whole cluster agrees on them now."""
        found: list[EtcdKey] = []
        start = _text(key)
        while True:
            body = {"key": start, "limit": str(_KEYS_PER_CALL)}
            if end is not None:
                body["range_end"] = _text(end)
            answer = self._ask("/v3/kv/range", body, is_repeatable=True)
            keys = [_key(each) for each in answer.get("kvs", ())]
            found += keys
            if not answer.get("more"):
                return found
            start = _text(keys[-1].key.encode() + b"\0")

    def transact(self, compare: Sequence[Json], success: Sequence[Json]) -> int | None:
        """Do all of it if every comparison holds, and return the revision; None when one did not."""
        answer = self._ask("/v3/kv/txn", {"compare": list(compare), "success": list(success)})
        return int(answer["header"]["revision"]) if answer.get("succeeded") else None

    def grant_lease(self, seconds: int) -> int:
        """A lease: keys that are put under it go when nobody keeps it alive for so long."""
        # One that was granted without our knowing ends by itself.
        return int(self._ask("/v3/lease/grant", {"TTL": str(seconds)}, is_repeatable=True)["ID"])

    def keep_lease(self, lease: int) -> bool:
        """Let a lease begin anew; False when it has ended."""
        answer = self._ask("/v3/lease/keepalive", {"ID": str(lease)}, is_repeatable=True)
        if "result" not in answer:
            # It says nothing of the lease, which may well be there.
            raise StoreUnreachable(f"etcd does not say whether a lease is kept: {str(answer)[:200]}")
        return int(answer["result"].get("TTL", 0)) > 0

    def revoke_lease(self, lease: int) -> None:
        """End a lease, and delete its keys."""
        self._ask("/v3/lease/revoke", {"ID": str(lease)})

    def watch(
        self, key: str, end: str | None = None, *, revision: int = 0
    ) -> Iterator[tuple[int, list[EtcdEvent]]]:
        """What happens to keys from a revision on, as it happens, each time with the revision of then.

        Ends when nothing has happened for a while: watch again behind the last revision. Raises
        StoreUnreachable when the connection ends, or the revision is compacted: look at the keys again.
        """
        create = {"create_request": {**_span(key, end), "start_revision": str(revision)}}
        with closing(self._connected()) as connection:
            try:
                response = self._sent(connection, "/v3/watch", create)
                while line := response.readline(_ANSWER_BYTES_MAX):
                    yield _news(json.loads(line))
            except TimeoutError:
                return
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._turn += 1
                raise self._unreachable(error) from error
        raise StoreUnreachable("etcd ended a watch: look at the keys again")

    def watch_all(self, spans: Sequence[tuple[str, str | None]], *, silence_s: float) -> "EtcdWatch":
        """Watch keys and ranges of keys from now on, all of them in one request."""
        connection = self._connected()
        try:
            connection.connect()
            _keep_alive(connection.sock)
            bodies = [{"create_request": _span(key, end)} for key, end in spans]
            # Kept, because the answer may have it alone once its head was read.
            sock = connection.sock
            watch = EtcdWatch(connection, sock, self._sent(connection, "/v3/watch", *bodies))
            watch.begin(len(spans), silence_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            self._turn += 1
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        return watch

    def close(self) -> None:
        """Let go of connections. Calls may follow: they make new ones."""
        while self._idle:
            self._idle.pop()[1].close()

    def _ask(self, path: str, body: Json, *, is_repeatable: bool = False) -> Json:
        tries = len(self._endpoints) if is_repeatable else 1
        while True:
            tries -= 1
            try:
                return self._ask_once(path, body)
            except StoreUnreachable:
                if tries <= 0:
                    raise

    def _ask_once(self, path: str, body: Json, *, may_login: bool = True) -> Json:
        try:
            status, answer = self._exchanged(path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._turn += 1
            raise self._unreachable(error) from error
        if status == http.client.OK:
            return answer
        code, words = answer.get("code"), str(answer.get("error") or answer.get("message"))
        if code == _UNAUTHENTICATED and may_login and self._user is not None:
            # A token ends after some minutes.
            self._token = None
            return self._ask_once(path, body, may_login=False)
        if code in (_PERMISSION_DENIED, _UNAUTHENTICATED) or any(each in words for each in _REFUSED):
            raise StoreDenied(f"etcd does not allow it: {words}")
        if status == http.client.BAD_REQUEST:
            raise InvalidRequest(f"etcd does not understand {path}: {words}; it has to be 3.4 or later")
        self._turn += 1
        raise StoreUnreachable(f"etcd answers {status}: {words}")

    def _exchanged(self, path: str, body: Json) -> tuple[int, Json]:
        turn, connection = self._taken()
        try:
            response = self._sent(connection, path, body)
            data = response.read(_ANSWER_BYTES_MAX)
        except BaseException:
            connection.close()
            raise
        self._idle.append((turn, connection))
        # The lease's answer is one of a stream, which is closed behind it.
        answer = json.loads(data.splitlines()[0] if data else b"{}")
        if not isinstance(answer, dict):
            raise ValueError(f"{data[:80]!r} is no answer of etcd")
        return response.status, answer

    def _taken(self) -> tuple[int, http.client.HTTPConnection]:
        """A connection to the endpoint whose turn it is, for one thread."""
        turn = self._turn
        while self._idle:
            try:
                made, connection = self._idle.pop()
            except IndexError:
                break
            if made == turn:
                return made, connection
            connection.close()
        return turn, self._connected()

    def _sent(
        self, connection: http.client.HTTPConnection, path: str, *bodies: Json
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"}
        if self._user is not None:
            headers["Authorization"] = self._logged_in(connection)
        connection.request("POST", path, "\n".join(map(json.dumps, bodies)), headers)
        return connection.getresponse()

    def _logged_in(self, connection: http.client.HTTPConnection) -> str:
        if self._token is None:
            body = json.dumps({"name": self._user, "password": self._password})
            connection.request("POST", "/v3/auth/authenticate", body)
            answer = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
            if "token" not in answer:
                raise StoreDenied(f"etcd does not let {self._user} in: {answer.get('error')}")
            self._token = str(answer["token"])
        return self._token

    def _connected(self) -> http.client.HTTPConnection:
        endpoint = self._endpoints[self._turn % len(self._endpoints)]
        if endpoint.scheme == "https":
            return http.client.HTTPSConnection(
                endpoint.netloc, timeout=self._timeout_s, context=self._tls or ssl.create_default_context()
            )
        return http.client.HTTPConnection(endpoint.netloc, timeout=self._timeout_s)

    def _unreachable(self, error: Exception) -> StoreUnreachable:
        names = ", ".join(endpoint.netloc for endpoint in self._endpoints)
        return StoreUnreachable(f"etcd ({names}) does not answer: {error!r}")


class EtcdWatch:
    """What happens to some keys from the moment this is made. One thread takes it; any may close it."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        sock: socket.socket,
        response: http.client.HTTPResponse,
    ) -> None:
        self._connection = connection
        self._response = response
        self._socket = sock
        self._is_closed = False

    def begin(self, count: int, silence_s: float) -> None:
        """Return once so many watches are there: what happens from then on is told."""
        while count:
            answer = json.loads(self._response.readline(_ANSWER_BYTES_MAX))
            _news(answer)
            count -= bool(answer["result"].get("created"))
        self._socket.settimeout(silence_s)

    def events(self) -> Iterator[list[EtcdEvent]]:
        """What happens, as it happens. Ends when it is closed, and when nothing happened for a while.

        Raises StoreUnreachable when the connection ends: look at the keys again.
        """
        try:
            while line := self._response.readline(_ANSWER_BYTES_MAX):
                yield _news(json.loads(line))[1]
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self._is_closed:
                raise StoreUnreachable(f"etcd ended a watch: {error!r}") from error
        if not self._is_closed:
            raise StoreUnreachable("etcd ended a watch: look at the keys again")

    def close(self) -> None:
        """End it, and whoever waits for it."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Let go of the connection. For the thread that took the events."""
        self._response.close()
        self._connection.close()


def _keep_alive(sock: socket.socket) -> None:
    """Let the system find out when the other side is gone: it may have nothing to say for long."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)):
        # Not every system has them.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _span(key: str, end: str | None) -> Json:
    return {"key": _text(key), **({} if end is None else {"range_end": _text(end)})}


def _news(answer: Json) -> tuple[int, list[EtcdEvent]]:
    result = answer.get("result")
    if result is None or result.get("canceled"):
        reason = (result or answer).get("cancel_reason") or answer.get("error") or "it does not say why"
        raise StoreUnreachable(f"etcd ended a watch: {reason}")
    events = [
        EtcdEvent(each.get("type", "PUT") == "PUT", _key(each["kv"])) for each in result.get("events", ())
    ]
    return int(result["header"]["revision"]), events


def _text(value: str | bytes) -> str:
    return b64encode(value.encode() if isinstance(value, str) else value).decode()


def _key(found: Json) -> EtcdKey:
    return EtcdKey(
        b64decode(found["key"]).decode(),
        b64decode(found.get("value", "")),
        int(found.get("create_revision", 0)),
        int(found.get("mod_revision", 0)),
        int(found.get("lease", 0)),
    )
