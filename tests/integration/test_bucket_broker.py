"""A broker over a bucket: it is replaced, it is stopped, and it says so."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from support.broker import serving_engine
from support.command import INHERITED, QUIVER
from support.command_inside import quiver

import quivermq


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@contextmanager
def served(url: str, cache: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    """A broker in a process of its own, and what it told when it listened."""
    with subprocess.Popen(
        [QUIVER, "serve", "--data", url, "--cache", cache, "--port", "0", "--json", "--log", "json"],
        env=INHERITED,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def test_a_broker_that_is_replaced_says_so_and_ends(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path / "one") as (process, told):
        assert told["data"] == url
        with quivermq.connect(told["url"], retries=0) as mq:
            mq.queue("orders").put(b"tea")
            with quivermq.open(url, cache=tmp_path / "two") as newcomer:
                with pytest.raises(quivermq.NotOwner, match="another process has taken over"):
                    mq.queue("orders").put(b"late")
                assert [message.value for message in newcomer.queue("orders").read()] == [b"tea"]
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 4
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    (lost,) = [line for line in lines if line.get("logger") == "quivermq.server.run" and "code" in line]
    assert (lost["level"], lost["code"]) == ("error", "not_owner")
    assert lost["message"].endswith("this broker ends")
    # As every command with --json says why it failed.
    assert lines[-1]["error"]["code"] == "not_owner"


def test_a_broker_that_is_stopped_commits_and_lets_go(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path / "one") as (process, told):
        with quivermq.connect(told["url"]) as mq:
            mq.create_topic("orders", durability="buffered")
            mq.queue("orders").put(b"tea")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    # The cache as well.
    with quivermq.open(url, cache=tmp_path / "one") as mq:
        assert [message.value for message in mq.queue("orders").read()] == [b"tea"]


def test_what_is_replaced_is_not_ready(url: str, tmp_path: Path) -> None:
    with (
        quivermq.open(url, cache=tmp_path / "one") as mq,
        serving_engine(mq) as broker,
        quivermq.connect(broker.url, retries=0) as client,
    ):
        assert requests.get(f"{broker.url}/readyz", timeout=60).status_code == 200
        client.queue("orders").put(b"tea")
        quivermq.open(url, cache=tmp_path / "two").close()
        answer = requests.post(f"{broker.url}/v1/topics/orders/messages", data=b"late", timeout=60)
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "not_owner"
        assert answer.json()["error"]["retryable"] is False
        answer = requests.get(f"{broker.url}/readyz", timeout=60)
        assert answer.status_code == 503
        assert "another process has taken over the queue" in answer.text
        # What is here can be read.
        assert [message.value for message in client.queue("orders").read(limit=1)] == [b"tea"]


def test_a_cache_in_use_names_the_broker(url: str, tmp_path: Path) -> None:
    env = {"QUIVER_DATA": url, "QUIVER_BUCKET__CACHE": str(tmp_path / "one")}
    with served(url, tmp_path / "one") as (_, told):
        ran = quiver("put", "orders", "tea", env=env)
        assert ran.code == 4
        assert f"say --server {told['url']} in place of --data" in ran.err


def test_commands_that_write_take_it_over(url: str, tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "user")}
    assert quiver("get", "orders", "--data", url, env=env).code == 3
    assert quiver("topic", "create", "orders", "--data", url, env=env).code == 0
    assert quiver("put", "orders", "tea", "--data", url, env=env).code == 0
    assert quiver("get", "orders", env={**env, "QUIVER_DATA": url}).text.strip() == "tea"
    assert not any(path.name.startswith("file:") for path in Path(os.curdir).iterdir())


def test_a_url_with_credentials_is_refused_and_not_repeated() -> None:
    ran = quiver("put", "orders", "tea", "--data", "s3://key:secret@bucket/a")
    assert ran.code == 2
    assert "credentials come from the environment" in ran.err
    assert "secret" not in ran.err


def test_keys_of_a_bucket_are_in_a_file_of_this_machine(url: str, tmp_path: Path) -> None:
    ran = quiver("key", "create", "--scope", "admin", "--data", url)
    assert ran.code == 2
    assert "keys are in a file of this machine" in ran.err
    env = {"QUIVER_SERVER__KEYS": str(tmp_path / "keys.json")}
    assert quiver("key", "create", "--scope", "admin", "--data", url, env=env).code == 0
    assert (tmp_path / "keys.json").exists()
