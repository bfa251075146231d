"""What `--json` prints: messages a line each, everything else one object, with lists under their names."""

import json
from pathlib import Path

import pytest
from support.command_inside import quiver

import quivermq


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", attempts_max=1)
        orders = mq.queue("orders")
        orders.put_many([b"a", b"b", b"c"])
        orders.put(b"later", delay=3600)
        for message in orders.get_many(1):
            message.nack()
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("arguments", "name", "type_"),
    [
        (["topic", "list"], "topics", list),
        (["group", "list"], "groups", list),
        (["dlq", "list", "orders"], "messages", list),
        (["scheduled", "list", "orders"], "scheduled", list),
        (["key", "list"], "keys", list),
        (["stats"], "topics", dict),
        (["stats"], "alerts", list),
        (["verify"], "findings", list),
        (["topic", "show", "orders"], "settings", dict),
        (["group", "show", "orders", "default"], "backlog", int),
        (["compact"], "segments", int),
    ],
)
def test_one_document_with_lists_under_their_names(
    arguments: list[str], name: str, type_: type, data: Path
) -> None:
    ran = quiver(*arguments, "--json", "--data", data)
    assert ran.code == 0, ran.err
    assert isinstance(json.loads(ran.text)[name], type_)


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "orders"],
        ["read", "orders"],
        ["tail", "orders", "-n", "2", "--count", "2"],
        ["put", "orders", "x"],
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_messages_are_a_line_each(arguments: list[str], data: Path) -> None:
    ran = quiver(*arguments, "--json", "--data", data)
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in ran.text.splitlines()]
    assert lines
    assert all(line["topic"] == "orders" and "offset" in line for line in lines)
