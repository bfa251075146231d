"""`quiver ack`, `nack`, `release`, `reject`, `extend`, by the receipts of `quiver get --no-ack`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving
from support.command_inside import Ran, quiver

import quivermq


@pytest.fixture(params=["data", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    data = tmp_path / "data"
    with quivermq.open(data) as mq:
        mq.create_topic("orders", attempts_max=3)
        mq.queue("orders").put_many([b"a", b"b", b"c"])
    if request.param == "data":
        yield ["--data", str(data)]
        return
    with serving(data) as broker:
        yield ["--server", broker.url]


def taken(where: list[str], count: int = 3) -> list[dict[str, Any]]:
    ran = quiver("get", "orders", "--count", str(count), "--no-ack", "--json", *where)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.text.splitlines()]


def stats(where: list[str]) -> dict[str, int]:
    told: dict[str, int] = json.loads(quiver("group", "show", "orders", "default", "--json", *where).text)
    return told


def settle(command: str, where: list[str], *more: str) -> Ran:
    return quiver(command, "orders", *more, *where)


def test_what_is_acked_is_done_with(where: list[str]) -> None:
    receipts = [message["receipt"] for message in taken(where)]
    ran = settle("ack", where, *receipts[:2])
    assert (ran.code, ran.text) == (0, "acked 2 messages\n")
    assert (stats(where)["in_flight"], stats(where)["backlog"]) == (1, 1)
    ran = settle("ack", where, receipts[2], "--json")
    assert json.loads(ran.text) == {"results": [{"ok": True, "receipt": receipts[2]}]}
    assert stats(where)["backlog"] == 0


def test_a_receipt_that_is_over_is_told_with_the_others(where: list[str]) -> None:
    first, second, _ = (message["receipt"] for message in taken(where))
    assert settle("ack", where, first).code == 0
    ran = settle("ack", where, first, second, "--json")
    assert ran.code == quivermq.LeaseExpired.exit_code
    late, done = json.loads(ran.text)["results"]
    assert (late["ok"], late["receipt"], late["error"]["code"]) == (False, first, "lease_expired")
    assert done == {"ok": True, "receipt": second}
    assert json.loads(ran.err)["error"]["code"] == "lease_expired"
    ran = settle("ack", where, first)
    assert (ran.code, ran.text) == (quivermq.LeaseExpired.exit_code, "acked 0 messages\n")
    assert "is over" in ran.err


def test_what_is_released_comes_again_and_no_attempt_counts(where: list[str]) -> None:
    for _ in range(5):
        [message] = taken(where, 1)
        assert (message["value"], message["attempt"]) == ("a", 1)
        assert settle("release", where, message["receipt"]).text == "released 1 message\n"


def test_what_is_nacked_comes_again_with_another_attempt(where: list[str]) -> None:
    [message] = taken(where, 1)
    ran = settle("nack", where, message["receipt"], "--delay", "0s", "--reason", "not now")
    assert (ran.code, ran.text) == (0, "nacked 1 message\n")
    assert [(each["value"], each["attempt"]) for each in taken(where)] == [("a", 2), ("b", 1), ("c", 1)]


def test_what_is_rejected_is_a_dead_letter(where: list[str]) -> None:
    [message] = taken(where, 1)
    assert settle("reject", where, message["receipt"], "--reason", "never").code == 0
    [letter] = json.loads(quiver("dlq", "list", "orders", "--json", *where).text)["messages"]
    assert (letter["value"], letter["reason"]) == ("a", "never")


def test_what_is_extended_stays(where: list[str]) -> None:
    [message] = taken(where, 1)
    assert settle("extend", where, message["receipt"], "--lease", "5m").text == "extended 1 message\n"
    assert settle("ack", where, message["receipt"]).code == 0


def test_receipts_come_from_a_pipe_as_get_writes_them(where: list[str]) -> None:
    messages = taken(where)
    lines = "\n".join([json.dumps(messages[0]), "", messages[1]["receipt"], messages[2]["receipt"]])
    ran = quiver("ack", "orders", "-", *where, stdin=lines.encode())
    assert (ran.code, ran.text) == (0, "acked 3 messages\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "words"),
    [
        (["orders", "nonsense"], b"", 2, "receipt"),
        (["ordres", "x"], b"", 3, "did you mean orders?"),
        (["orders", "-"], b'{"value": "a"}\n', 2, "line 1 has no receipt"),
        (["orders", "-"], b"{nonsense\n", 2, "line 1 is neither a receipt nor JSON"),
    ],
)
def test_a_mistake_is_told(
    where: list[str], arguments: list[str], stdin: bytes, code: int, words: str
) -> None:
    for command in ("ack", "nack", "release", "reject", "extend"):
        ran = quiver(command, *arguments, *where, stdin=stdin)
        assert (ran.code, ran.text, words in ran.err) == (code, "", True), (command, ran.err)
