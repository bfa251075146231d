"""A client that knows nothing of the project: what a broker says is judged by somebody else's words."""

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any, NamedTuple

from quivermq.chaos.expectation import expect

# Long enough for a busy machine; whoever waits longer waits for nothing.
PATIENCE_S = 60.0


class Answer(NamedTuple):
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


class Caller:
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
    ) -> Answer:
        """Ask for something; a body that is not bytes is sent as JSON."""
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        told = {} if sent is None else {"Content-Type": content_type}
        self._connection.request(method, path, sent, {**told, **(headers or {})})
        response = self._connection.getresponse()
        data = response.read()
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        document = json.loads(data) if is_json and data else data
        return Answer(response.status, document, {k.lower(): v for k, v in response.headers.items()})

    def close(self) -> None:
        self._connection.close()

    # What nearly every case asks for.

    def publish(self, topic: str, value: str, **fields: Any) -> Answer:
        return self.call("POST", f"/v1/topics/{topic}/messages", {"value": value, **fields})

    def receive(self, topic: str, group: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
        asked = {"max": count, **fields}
        answer = self.call("POST", f"/v1/topics/{topic}/groups/{group}/receive", asked)
        expect(answer.is_done, f"a receive was refused: {answer}")
        found: list[dict[str, Any]] = answer.document["messages"]
        return found

    def settle(self, how: str, topic: str, group: str, receipts: list[str], **fields: Any) -> Answer:
        asked = {"receipts": receipts, **fields}
        return self.call("POST", f"/v1/topics/{topic}/groups/{group}/{how}", asked)

    def read(self, topic: str, partition: int = 0, limit: int = 1000, **query: Any) -> Answer:
        asked = "&".join(f"{name}={value}" for name, value in {"limit": limit, **query}.items())
        return self.call("GET", f"/v1/topics/{topic}/partitions/{partition}/messages?{asked}")

    def values(self, topic: str, partition: int = 0, limit: int = 1000) -> list[str]:
        """The values of a log, from its beginning."""
        answer = self.read(topic, partition, limit)
        expect(answer.is_done, f"a read was refused: {answer}")
        return [message["value"] for message in answer.document["messages"]]


def ask_once(port: int, method: str, path: str, body: object = None) -> Answer:
    """One call on a connection of its own."""
    with closing(Caller(port)) as caller:
        return caller.call(method, path, body)
