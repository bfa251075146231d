import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_inside import Ran, quiver

import quivermq
from quivermq.model.lanes import priority_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def stored(data: Path, priority: str = "normal") -> list[quivermq.StoredMessage]:
    with quivermq.open(data) as mq:
        return mq.queue("orders").read(priority=priority_of(priority))


def values(data: Path) -> list[bytes]:
    return [message.value for message in stored(data)]


def put(data: Path, *arguments: str | Path, stdin: bytes = b"") -> Ran:
    return quiver("put", "orders", *arguments, "--data", data, stdin=stdin)


def test_a_value_is_put_and_its_place_told_beside_the_output(data: Path) -> None:
    assert put(data, "tea") == (0, b"", "put into orders, partition 0, offset 0\n")
    assert values(data) == [b"tea"]


def test_where_a_message_is_is_one_document_of_json(data: Path) -> None:
    ran = put(data, "tea", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == {
        "topic": "orders",
        "partition": 0,
        "priority": "normal",
        "offset": 0,
        "duplicate": False,
        "scheduled_id": None,
    }


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_standard_input_is_a_message_a_line(data: Path, dash: list[str]) -> None:
    ran = put(data, *dash, stdin=b"tea\n\ncoffee")
    assert ran == (0, b"", "put 3 messages into orders\n")
    assert values(data) == [b"tea", b"", b"coffee"]


def test_zeros_may_separate_messages(data: Path) -> None:
    put(data, "--null", stdin=b"one\nline\0two\0")
    assert values(data) == [b"one\nline", b"two"]


def test_each_message_of_a_stream_is_a_line_of_json(data: Path) -> None:
    ran = put(data, "--json", stdin=b"tea\ncoffee\n")
    assert [json.loads(line)["offset"] for line in ran.out.splitlines()] == [0, 1]


def test_a_file_is_one_message(data: Path, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x00\n\xff")
    put(data, "--file", tmp_path / "picture")
    put(data, "--file", "-", stdin=b"a\nb\n")
    assert values(data) == [b"\x00\n\xff", b"a\nb\n"]


def test_options_say_what_a_message_has_besides_its_value(data: Path) -> None:
    ran = put(
        data,
        *("tea", "--key", "k", "--header", "a=1", "--header", "b=x=y"),
        *("--priority", "high", "--ttl", "1h", "--dedup-id", "d", "--partition", "0"),
    )
    assert ran.err == "put into orders, partition 0, priority high, offset 0\n"
    [message] = stored(data, "high")
    assert (message.key, message.headers, message.dedup_id) == (b"k", {"a": b"1", "b": b"x=y"}, "d")
    assert message.expires_at is not None
    assert message.expires_at - message.timestamp == pytest.approx(3_600_000_000, abs=1_000_000)


def test_options_are_for_every_message_of_a_stream(data: Path) -> None:
    put(data, "--key", "k", stdin=b"tea\ncoffee\n")
    assert [message.key for message in stored(data)] == [b"k", b"k"]


def test_a_repetition_is_told(data: Path) -> None:
    put(data, "tea", "--dedup-id", "d")
    ran = put(data, "tea", "--dedup-id", "d")
    assert ran.err == "put into orders, partition 0, offset 0, which was there already\n"
    lines = b'{"value":"a","dedup_id":"e"}\n{"value":"b","dedup_id":"e"}\n'
    assert put(data, "--ndjson", stdin=lines).err == "put 2 messages into orders, 1 of them there already\n"


def test_a_delayed_message_waits(data: Path) -> None:
    ran = put(data, "tea", "--delay", "1h")
    with quivermq.open(data) as mq:
        [waiting] = mq.queue("orders").scheduled()
    assert ran.err == f"scheduled in orders, partition 0, as {waiting.id}\n"


def test_lines_of_json_are_messages(data: Path) -> None:
    lines = b'{"value": "tea", "key": "k"}\n\n{"value_base64": "/w=="}\n'
    assert put(data, "--ndjson", stdin=lines).err == "put 2 messages into orders\n"
    assert [(m.value, m.key) for m in stored(data)] == [(b"tea", b"k"), (b"\xff", None)]


def test_what_a_message_says_counts_more_than_an_option(data: Path) -> None:
    put(data, "--ndjson", "--key", "other", stdin=b'{"value":"tea","key":"k"}\n{"value":"coffee"}\n')
    assert [message.key for message in stored(data)] == [b"k", b"other"]


def test_a_wrong_line_is_named_and_what_came_before_it_told(data: Path) -> None:
    lines = b'{"value":"tea"}\n' * 1000 + b'{"value":"coffee"}\nnonsense\n'
    ran = put(data, "--ndjson", stdin=lines)
    assert ran.code == 2
    assert "error: line 1002: it is not JSON" in ran.err
    assert ran.err.startswith("put 1001 messages into orders before it stopped\n")
    with quivermq.open(data) as mq:
        assert mq.queue("orders").stats().pending == 1001


@pytest.mark.parametrize(
    ("options", "lines", "told"),
    [
        (
            ["--ndjson"],
            b'{"value":"a"}\n\n{"value":"b","partition":7}\n{"value":"c"}\n',
            "line 3: there is no",
        ),
        ([], b"a\n" + b"b" * 3_000_000 + b"\nc\n", "line 2: the message has 3000000 bytes"),
        (["--null"], b"a\0" + b"b" * 3_000_000 + b"\0c\0", "message 2: the message has 3000000 bytes"),
    ],
)
def test_a_message_that_the_queue_refuses_is_named_and_those_before_it_are_put(
    data: Path, options: list[str], lines: bytes, told: str
) -> None:
    ran = put(data, *options, stdin=lines)
    assert ran.code == 2
    assert ran.err.startswith(f"put 1 message into orders before it stopped\nerror: {told}")
    assert values(data) == [b"a"]


def test_an_interrupt_tells_how_much_was_put(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Iterator[list[bytes]]:
        yield [b"tea", b"coffee"]
        raise KeyboardInterrupt

    monkeypatch.setattr("quivermq.cli.put.batches", interrupted)
    assert put(data) == (130, b"", "put 2 messages into orders before it stopped\n")
    assert values(data) == [b"tea", b"coffee"]


def test_every_message_of_a_large_stream_arrives_in_order(data: Path) -> None:
    put(data, stdin=b"".join(b"%d\n" % number for number in range(5000)))
    with quivermq.open(data) as mq:
        found = mq.queue("orders").read(limit=10_000)
    assert [int(message.value) for message in found] == list(range(5000))


def test_nothing_to_put_is_no_error(data: Path) -> None:
    assert put(data).err == "put 0 messages into orders\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tea", "--file", "x"], "not both"),
        (["tea", "--ndjson"], "standard input"),
        (["--file", "x", "--null"], "standard input"),
        (["--ndjson", "--null"], "one of them"),
        (["tea", "--header", "a"], "NAME=VALUE"),
        (["tea", "--header", "a=1", "--header", "a=2"], "twice"),
        (["tea", "--ttl", "soon"], "500ms"),
        (["tea", "--priority", "urgent"], "urgent"),
        (["tea", "--durability", "paper"], "paper"),
        (["tea", "--partition", "7"], "partition 7"),
        (["tea", "--dedup-id", ""], "dedup_id"),
        (["--dedup-id", "d"], "--ndjson"),
        (["--file", "/nowhere"], "/nowhere cannot be read"),
    ],
)
def test_a_wrong_call_puts_nothing(data: Path, arguments: list[str], reason: str) -> None:
    ran = put(data, *arguments)
    assert (ran.code, ran.out) == (2, b"")
    assert reason in ran.err
    assert not (data / "topics" / "orders").exists()


@pytest.mark.parametrize(
    "line",
    [
        b'{"value":"v","priority":5}',
        b'{"value":"v","dedup_id":5}',
        b'{"value":"v","deliver_at":"noon"}',
        b'{"value":"v","partition":"a"}',
        b'{"value":"v","timestamp":true}',
        b'{"value":"v","delay_ms":1e400}',
        b'{"value":"v","expires_at":"noon"}',
        b'{"value":"v","expires_at":4102444800000000,"delay_ms":5}',
    ],
)
def test_a_field_of_the_wrong_type_is_an_error_in_words(data: Path, line: bytes) -> None:
    ran = put(data, "--ndjson", stdin=line)
    assert (ran.code, ran.out) == (2, b"")


def test_a_name_that_no_topic_can_have_is_refused(data: Path) -> None:
    assert quiver("put", "a/b", "x", "--data", data).code == 2


def test_an_id_is_remembered_for_as_long_as_the_option_says(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.create_topic("rare", dedup_window_ms=0)
    arguments = ("put", "rare", "tea", "--data", data, "--dedup-id", "d")
    assert "was there already" not in quiver(*arguments).err
    assert "was there already" not in quiver(*arguments, "--dedup-window", "1h").err
    assert "was there already" in quiver(*arguments).err
    line = b'{"value":"v","dedup_id":"e","dedup_window_ms":60000}\n'
    ran = quiver("put", "rare", "--ndjson", "--json", "--data", data, stdin=line + line)
    assert [json.loads(put)["duplicate"] for put in ran.out.splitlines()] == [False, True]
    assert quiver(*arguments, "--dedup-window", "0s").code == 2
