"""Every command against a broker: the same words, the same answers as on a directory."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker import Served, serving
from support.command import INHERITED, QUIVER, table_rows
from support.command_inside import Ran, quiver

import quivermq
from quivermq.engine import engine_of


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as broker:
        yield broker


def ask(served: Served, *arguments: str, stdin: bytes = b"") -> Ran:
    ran = quiver(*arguments, stdin=stdin, env={"QUIVER_SERVER": served.url})
    assert "Traceback" not in ran.err
    return ran


def told(served: Served, *arguments: str, stdin: bytes = b"") -> Any:
    ran = ask(served, *arguments, "--json", stdin=stdin)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_messages_go_in_and_out(served: Served) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2500))
    assert ask(served, "put", "orders", stdin=lines).err == "put 2500 messages into orders\n"
    assert ask(served, "get", "orders", "--all").out == lines
    assert ask(served, "get", "orders", "--fail-empty").code == 3
    assert told(served, "group", "show", "orders", "default")["backlog"] == 0


def test_all_of_a_message_arrives(served: Served) -> None:
    ask(
        served, "put", "orders", "tea", "--key", "k", "--header", "a=1", "--priority", "high", "--ttl", "1h"
    )
    message = told(served, "get", "orders")
    assert (message["value"], message["key"], message["headers"]) == ("tea", "k", {"a": "1"})
    assert (message["priority"], message["attempt"]) == ("high", 1)


def test_messages_are_looked_at_without_taking_them(served: Served) -> None:
    ask(served, "put", "orders", stdin=b"tea\ncoffee\n")
    assert ask(served, "read", "orders", "--start", "1", "--format", "value").out == b"coffee\n"
    assert ask(served, "read", "orders", "--start", "9").code == 3
    assert ask(served, "tail", "orders", "--last", "2", "--count", "2").out == b"tea\ncoffee\n"
    assert told(served, "group", "list", "orders") == {"groups": []}


def test_a_tail_follows_what_comes(served: Served) -> None:
    ask(served, "put", "orders", "old")
    command = [str(QUIVER), "tail", "orders", "--count", "2", "--server", served.url]
    with subprocess.Popen(command, env=INHERITED, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # It may take a moment until it looks: it has to see one that came after that.
        while process.poll() is None:
            ask(served, "put", "orders", "new", "--priority", "high")
        assert process.stdout.read() == b"new\nnew\n"


def test_a_tail_and_a_get_that_waits_go_on_when_the_broker_is_started_again(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as first:
        ask(first, "put", "orders", "old")
        tail = [str(QUIVER), "tail", "orders", "--last", "1", "--server", first.url]
        get = [str(QUIVER), "get", "orders", "--all", "--wait", "forever", "--server", first.url]
        commands = [
            subprocess.Popen(command, env=INHERITED, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for command in (tail, get)
        ]
        for command in commands:
            assert command.stdout is not None
            assert command.stdout.readline() == b"old\n"
        # What is printed is acknowledged a moment later.
        orders = first.engine.queue("orders")
        while orders.stats().backlog:
            time.sleep(0.01)
    for command in commands:
        assert command.stderr is not None
        assert b"waiting for it" in command.stderr.readline()
    with serving(tmp_path / "data", port=first.port) as second:
        ask(second, "put", "orders", "new")
        for command in commands:
            assert command.stdout is not None
            assert command.stdout.readline() == b"new\n"
            command.send_signal(signal.SIGINT)
            command.communicate()
            assert command.returncode == 130


def test_errors_name_the_command_that_helps(served: Served) -> None:
    assert ask(served, "read", "none").err == (
        "error: there is no topic none: `quiver topic list` shows those there are\n"
    )
    ask(served, "topic", "create", "orders")
    assert ask(served, "topic", "create", "orders").err == (
        "error: the topic orders exists already: `quiver topic alter` changes it\n"
    )
    ran = ask(served, "group", "seek", "orders", "billing", "--to", "noon")
    assert ran.err == "error: --to is earliest or latest, not 'noon'\n"


def test_topics_are_made_changed_shown_and_deleted(served: Served) -> None:
    made = told(served, "topic", "create", "t", "--set", "partitions=3", "--set", "retention_ms=1d")
    assert (made["settings"]["partitions"], made["settings"]["retention_ms"]) == (3, 86_400_000)
    assert ask(served, "topic", "create", "t").code == 4
    assert told(served, "topic", "alter", "t", "--set", "lease_ms=1m")["settings"]["lease_ms"] == 60_000
    ran = ask(served, "topic", "alter", "t", "--set", "lease=1")
    assert (ran.code, "lease_ms" in ran.err) == (2, True)
    assert [topic["name"] for topic in told(served, "topic", "list")["topics"]] == ["t"]
    assert ask(served, "topic", "show", "t").code == 0
    assert told(served, "topic", "delete", "t", "--yes") == {"deleted": "t"}
    assert ask(served, "topic", "show", "t").code == 3


def test_groups_are_moved_and_forgotten(served: Served) -> None:
    ask(served, "put", "orders", stdin=b"1\n2\n3\n")
    assert told(served, "group", "seek", "orders", "g", "--offset", "1")["pending"] == 2
    assert told(served, "group", "seek", "orders", "g", "--to", "latest")["pending"] == 0
    assert told(served, "group", "reset", "orders", "g", "--yes")["pending"] == 3
    assert table_rows(ask(served, "group", "list").text) == [
        ["orders", "g", "3", "0", "0", "0", "3", "waiting"]
    ]
    assert told(served, "group", "delete", "orders", "g", "--yes")["deleted"] == "g"
    assert ask(served, "group", "show", "orders", "g").code == 3


def test_dead_letters_are_listed_sent_back_and_thrown_away(served: Served) -> None:
    orders = served.engine.queue("orders")
    orders.put_many([b"tea", b"coffee"])
    for message in orders.get_many(2):
        message.reject("cold")
    first, second = told(served, "dlq", "list", "orders")["messages"]
    assert (first["value"], first["reason"], first["topic"]) == ("tea", "cold", "orders")
    assert told(served, "dlq", "redrive", "orders", "--id", second["id"]) == {"moved": 1}
    assert ask(served, "get", "orders").out == b"coffee\n"
    assert told(served, "dlq", "discard", "orders", "--reason", "cold", "--yes") == {"discarded": 1}


def test_delayed_messages_are_listed_and_called_off(served: Served) -> None:
    identity = told(served, "put", "orders", "tea", "--delay", "1h")["scheduled_id"]
    [waiting] = told(served, "scheduled", "list", "orders")["scheduled"]
    assert (waiting["id"], waiting["value"]) == (identity, "tea")
    assert told(served, "scheduled", "cancel", "orders", identity) == {"cancelled": 1}
    assert ask(served, "scheduled", "cancel", "orders", identity).code == 3


def test_the_whole_is_counted_compacted_verified_and_measured(served: Served) -> None:
    ask(served, "put", "orders", "tea")
    assert told(served, "stats")["topics"]["orders"]["messages"] == 1
    assert told(served, "compact")["segments"] == 0
    report = told(served, "verify")
    assert (report["is_sound"], report["messages"] >= 1) == (True, True)
    ran = quiver("bench", "--duration", "1ms", "--durability", "os", "--server", served.url, "--json")
    assert [each["messages"] > 0 for each in json.loads(ran.out)["results"]] == [True] * 3
    assert served.engine.topics() == ["orders"]


def test_a_directory_that_is_served_can_be_read_beside_the_broker(served: Served) -> None:
    ask(served, "put", "orders", stdin=b"tea\ncoffee\n")
    data = engine_of(served.engine).path
    assert quiver("read", "orders", "--format", "value", "--data", data).out == b"tea\ncoffee\n"
    assert quiver("tail", "orders", "-n", "1", "--count", "1", "--data", data).out == b"coffee\n"
    ran = quiver("get", "orders", "--data", data)
    assert (ran.code, "--server" in ran.err) == (4, True)


def test_a_shell_is_offered_the_topics_of_a_broker(served: Served) -> None:
    served.engine.create_topic("orders")
    asked = {"_QUIVER_COMPLETE": "complete_bash", "COMP_WORDS": "quiver get or", "COMP_CWORD": "2"}
    env = INHERITED | asked | {"QUIVER_SERVER": served.url}
    assert subprocess.run([QUIVER], env=env, capture_output=True, text=True).stdout.split() == ["orders"]


def test_a_directory_becomes_a_broker_that_asks_for_a_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with quivermq.open(data) as mq:
        mq.queue("orders").put(b"tea")
    key = json.loads(quiver("key", "create", "--scope", "write", "--data", data, "--json").out)["key"]
    command = [str(QUIVER), "serve", "--data", str(data), "--port", "0", "--json", "--log", "json"]
    with subprocess.Popen(
        command, env=INHERITED, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = json.loads(process.stdout.readline())["url"]
        without = quiver("get", "orders", env={"QUIVER_SERVER": url})
        assert (without.code, "set QUIVER_KEY" in without.err) == (7, True)
        with_key = {"QUIVER_SERVER": url, "QUIVER_KEY": key}
        assert quiver("get", "orders", env=with_key).out == b"tea\n"
        assert quiver("put", "orders", "coffee", env=with_key).code == 0
        assert quiver("topic", "delete", "orders", "--yes", env=with_key).code == 7
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
        log = process.stderr.read().decode()
    assert all(json.loads(line)["level"] for line in log.splitlines())
    assert key not in log
    assert quiver("get", "orders", "--data", data).out == b"coffee\n"
