"""Clients that know nothing of the project: the standard library judges what a broker answers."""

import json
from collections import defaultdict
from contextlib import closing
from http.client import HTTPConnection
from itertools import count
from typing import Any, NamedTuple

from quivermq.chaos import PATIENCE_S, expect

# Of a publish that ended so, the disk took nothing.
_REFUSED = {"disk_full", "disk_refused", "overloaded"}


class HttpReply(NamedTuple):
    """What came back."""

    status: int
    document: Any
    headers: dict[str, str]

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def code(self) -> str:
        """The code of the error; empty when it is none."""
        return "" if self.is_done else str(self.document["error"]["code"])


class HttpClient:
    """One connection at a time to a broker. Raises OSError and HTTPException when it is not there."""

    def __init__(self, port: int, timeout_s: float = PATIENCE_S) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> HttpReply:
        """Ask for something; a body that is not bytes is sent as JSON."""
        self.send(method, path, body, content_type=content_type, headers=headers)
        return self.answer()

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Ask, and leave the answer for later."""
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = {} if sent is None else {"Content-Type": content_type}
        self._connection.request(method, path, sent, {**kind, **(headers or {})})

    def answer(self) -> HttpReply:
        """What is answered to what was sent last."""
        response = self._connection.getresponse()
        data = response.read()
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        document = json.loads(data) if is_json and data else data
        return HttpReply(response.status, document, {k.lower(): v for k, v in response.headers.items()})

    def close(self) -> None:
        self._connection.close()

    def publish(self, topic: str, value: str, **fields: Any) -> HttpReply:
        return self.call("POST", f"/v1/topics/{topic}/messages", {"value": value, **fields})

    def receive(self, topic: str, group: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
        asked = {"max": count, **fields}
        answer = self.call("POST", f"/v1/topics/{topic}/groups/{group}/receive", asked)
        expect(answer.is_done, f"a receive was refused: {answer}")
        found: list[dict[str, Any]] = answer.document["messages"]
        return found

    def settle(self, how: str, topic: str, group: str, receipts: list[str], **fields: Any) -> HttpReply:
        asked = {"receipts": receipts, **fields}
        return self.call("POST", f"/v1/topics/{topic}/groups/{group}/{how}", asked)

    def read(self, topic: str, partition: int = 0, limit: int = 1000, **query: Any) -> HttpReply:
        asked = "&".join(f"{name}={value}" for name, value in {"limit": limit, **query}.items())
        return self.call("GET", f"/v1/topics/{topic}/partitions/{partition}/messages?{asked}")

    def values(self, topic: str, partition: int = 0, limit: int = 1000) -> list[str]:
        """The values of a log, from its beginning."""
        answer = self.read(topic, partition, limit)
        expect(answer.is_done, f"a read was refused: {answer}")
        return [message["value"] for message in answer.document["messages"]]


def ask_once(port: int, method: str, path: str, body: object = None) -> HttpReply:
    """One call on a connection of its own."""
    with closing(HttpClient(port)) as client:
        return client.call(method, path, body)


class Publisher:
    """Publishes messages to one topic, and knows of each whether it must be there, may be, or must not."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._numbers = count()
        self.acknowledged: dict[int, list[str]] = defaultdict(list)
        self._refused: set[str] = set()

    def publish(self, client: HttpClient, partition: int = 0) -> HttpReply:
        """Publish one more message."""
        value = f"message {next(self._numbers)}"
        answer = client.publish(self.topic, value, partition=partition)
        if answer.is_done:
            self.acknowledged[partition].append(value)
        elif answer.code in _REFUSED:
            self._refused.add(value)
        return answer

    def check(self, client: HttpClient) -> None:
        """What was acknowledged is there, once and in order; what was refused is not."""
        for partition, acknowledged in self.acknowledged.items():
            found = client.values(self.topic, partition, 100_000)
            expect(len(set(found)) == len(found), f"something is there twice: {found}")
            kept = [value for value in found if value in set(acknowledged)]
            expect(
                kept == acknowledged,
                f"partition {partition} has {kept}, and {acknowledged} were acknowledged",
            )
            expect(self._refused.isdisjoint(found), "something is there that was refused")
