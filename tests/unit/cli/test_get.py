import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_inside import Ran, quiver

import quivermq
from quivermq.cli.handover import Handover


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put_many([b"tea", b"coffee", b"milk"])
    return tmp_path / "data"


def get(data: Path, *arguments: str | Path, topic: str = "orders") -> Ran:
    return quiver("get", topic, *arguments, "--data", data)


def stats(data: Path, group: str = "default") -> quivermq.QueueStats:
    with quivermq.open(data) as mq:
        return mq.queue("orders", group).stats()


def test_one_message_is_written_and_done_with(data: Path) -> None:
    assert get(data) == (0, b"tea\n", "")
    assert get(data) == (0, b"coffee\n", "")
    assert stats(data).backlog == 1


def test_as_many_as_are_wanted_or_there(data: Path) -> None:
    assert get(data, "--count", "2").out == b"tea\ncoffee\n"
    assert get(data, "--count", "2").out == b"milk\n"


def test_all_is_all(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.queue("orders").put_many([b"x"] * 2500)
    assert get(data, "--all").out.count(b"\n") == 2503
    assert stats(data).backlog == 0


def test_every_group_has_its_own_messages(data: Path) -> None:
    assert get(data, "--group", "a").out == b"tea\n"
    assert get(data, "--group", "b").out == b"tea\n"


def test_a_pattern_stands_for_many_topics(data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.queue("events.a").put(b"a")
        mq.queue("events.b").put(b"b")
    assert sorted(get(data, "--all", topic="events.*").out.split()) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("shape", "written"), [("value", b"tea\ncoffee\n"), ("null", b"tea\0coffee\0"), ("raw", b"teacoffee")]
)
def test_values_are_separated_as_asked(data: Path, shape: str, written: bytes) -> None:
    assert get(data, "--count", "2", "--format", shape).out == written


@pytest.mark.parametrize("option", [["--json"], ["--format", "ndjson"]])
def test_all_of_a_message_is_a_line_of_json(data: Path, option: list[str]) -> None:
    ran = get(data, "--count", "2", *option)
    first, second = map(json.loads, ran.out.splitlines())
    assert first.pop("timestamp") > 0
    assert first.pop("receipt").startswith("orders:0:1:0:")
    assert first == {
        "topic": "orders",
        "partition": 0,
        "priority": "normal",
        "offset": 0,
        "attempt": 1,
        "headers": {},
        "value": "tea",
    }
    assert second["value"] == "coffee"


def test_what_get_writes_put_understands(data: Path) -> None:
    lines = get(data, "--all", "--json").out
    assert quiver("put", "copy", "--ndjson", "--data", data, stdin=lines).code == 0
    assert get(data, "--all", topic="copy").out == b"tea\ncoffee\nmilk\n"


def test_nothing_there_is_no_error_unless_asked_for(data: Path) -> None:
    get(data, "--all")
    assert get(data) == (0, b"", "")
    ran = get(data, "--fail-empty")
    assert (ran.code, ran.out) == (3, b"")
    assert "no message" in ran.err
    assert get(data, "--wait", "10ms") == (0, b"", "")


def test_a_topic_that_is_not_there_is_told_with_those_that_may_be_meant(data: Path) -> None:
    ran = get(data, topic="ordres")
    assert (ran.code, ran.out) == (3, b"")
    assert ran.err == "error: there is no topic ordres: did you mean orders?\n"
    assert get(data, topic="unlike").err.endswith("`quiver topic list` shows those there are\n")
    assert not (data / "topics" / "ordres").exists()
    # A pattern stands also for topics that come later.
    assert get(data, topic="events.*") == (0, b"", "")


def test_a_topic_that_is_not_there_yet_can_be_waited_for(data: Path) -> None:
    ran = get(data, "--wait", "10ms", topic="ordres")
    assert (ran.code, ran.out) == (0, b"")
    assert ran.err == "there is no topic ordres: did you mean orders? Waiting for it\n"


def test_without_an_ack_messages_stay_leased(data: Path) -> None:
    ran = get(data, "--no-ack", "--json", "--lease", "1h")
    receipt = json.loads(ran.out)["receipt"]
    assert (stats(data).in_flight, stats(data).pending) == (1, 2)
    with quivermq.open(data) as mq:
        mq.queue("orders").ack(receipt)
    assert stats(data).in_flight == 0


def test_what_could_not_be_written_goes_back(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def give(self: Handover, what: object, data: bytes, _: Callable[[], None]) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(data)

    monkeypatch.setattr(Handover, "give", give)
    monkeypatch.setattr(Handover, "step", 1)
    ran = get(data, "--all")
    assert (ran.code, written) == (130, [b"tea\n"])
    monkeypatch.undo()
    assert get(data, "--all").out == b"coffee\nmilk\n"


def test_leases_are_renewed_while_the_output_is_slow(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = threading.Event()
    extend = quivermq.Queue.extend

    def count(queue: quivermq.Queue, held: list[quivermq.Delivery], seconds: float) -> None:
        extend(queue, held, seconds)
        renewed.set()

    def give(*_: object) -> None:
        assert renewed.wait(30)

    monkeypatch.setattr(quivermq.Queue, "extend", count)
    monkeypatch.setattr(Handover, "give", give)
    assert get(data, "--all", "--lease", "3s") == (0, b"", "")
    assert stats(data).backlog == 0


def test_a_message_that_was_written_too_late_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give(self: Handover, what: list[quivermq.Delivery], *_: object) -> None:
        for message in what:
            message.nack(delay=0)

    monkeypatch.setattr(Handover, "give", give)
    ran = get(data)
    assert ran.code == 0
    assert "will come again: use --lease" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--all", "--count", "2"],
        ["--wait", "soon"],
        ["--lease", "0"],
        ["--count", "0"],
        ["--format", "xml"],
        ["--group", "a/b"],
    ],
)
def test_a_wrong_call_takes_nothing(data: Path, arguments: list[str]) -> None:
    ran = get(data, *arguments)
    assert (ran.code, ran.out) == (2, b"")
    assert stats(data).pending == 3
