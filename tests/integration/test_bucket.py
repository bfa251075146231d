"""A queue in a bucket of a real store: it goes on elsewhere, and what is wrong is named."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.object_store import S3Server, s3_server
from support.threads import start, wait_until
from support.unsafe_store import unsafe_server

import quivermq
from quivermq.errors import NotOwner, QuiverError, StoreDenied, StoreNotFound, StoreUnreachable, UnsafeStore
from quivermq.shared.bucket import BucketStore


@pytest.fixture(autouse=True)
def environment(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


def values(mq: quivermq.Connection) -> list[bytes]:
    return [message.value for message in mq.queue("orders").read()]


def test_a_queue_survives_the_kill_of_its_owner(s3: S3Server, tmp_path: Path) -> None:
    url = s3.new_url()
    program = textwrap.dedent(f"""
        import quivermq
        with quivermq.open({url!r}, cache={str(tmp_path / "one")!r}) as mq:
            for number in range(20):
                mq.queue("orders").put(b"%d" % number)
            print("ready", flush=True)
            input()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    with quivermq.open(url, cache=tmp_path / "two") as mq:
        assert values(mq) == [b"%d" % number for number in range(20)]
        mq.queue("orders").put(b"more")
    with quivermq.open(url) as mq:
        assert len(values(mq)) == 21


def test_the_older_of_two_owners_is_fenced(s3: S3Server, tmp_path: Path) -> None:
    url = s3.new_url()
    with quivermq.open(url, cache=tmp_path / "one") as first:
        first.queue("orders").put(b"tea")
        with quivermq.open(url, cache=tmp_path / "two") as second:
            assert values(second) == [b"tea"]
            with pytest.raises(NotOwner, match="another process has taken over"):
                first.queue("orders").put(b"late")
            second.queue("orders").put(b"milk")
            assert values(second) == [b"tea", b"milk"]


@pytest.mark.parametrize(
    ("changed", "bucket", "expected", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "quiver", StoreDenied, "does not accept the credentials"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "quiver", StoreDenied, "does not accept the credentials"),
        ({}, "missing", StoreNotFound, "there is no bucket s3://missing/a: make it first"),
    ],
    ids=["secret", "key", "bucket"],
)
def test_what_is_wrong_is_named_and_leaves_the_cache_free(
    changed: dict[str, str],
    bucket: str,
    expected: type[QuiverError],
    words: str,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        for name, value in changed.items():
            patch.setenv(name, value)
        with pytest.raises(expected, match=words) as raised:
            quivermq.open(f"s3://{bucket}/a", cache=tmp_path / "cache")
    for secret in s3.environment["AWS_SECRET_ACCESS_KEY"], "wrong":
        assert secret not in str(raised.value)
    quivermq.open(s3.new_url(), cache=tmp_path / "cache").close()


def test_a_store_without_conditional_writes_is_refused(tmp_path: Path) -> None:
    with unsafe_server() as endpoint:
        settings = {"bucket": {"endpoint": endpoint}}
        with pytest.raises(UnsafeStore, match="a queue there would lose messages"):
            quivermq.open("s3://bucket/a", settings, cache=tmp_path / "cache")
        assert BucketStore("s3://bucket/a", {"endpoint": endpoint}).names("") == []


def test_a_store_that_is_silent_is_waited_for_and_then_told(s3: S3Server, tmp_path: Path) -> None:
    url = s3.new_url()
    with s3_server(tmp_path / "other") as other:
        settings: dict[str, Any] = {
            "bucket": {
                "endpoint": other.endpoint,
                "request_timeout_ms": 200,
                "commit_timeout_ms": 1000,
            }
        }
        # A new one is tried first, and what is lost in a race may take its time.
        quivermq.open(url, {"bucket": {"endpoint": other.endpoint}}).close()
        with quivermq.open(url, settings, cache=tmp_path / "cache") as mq:
            orders = mq.queue("orders")
            orders.put(b"tea")
            other.pause()
            with pytest.raises(StoreUnreachable, match="is committed once it answers; retry later"):
                orders.put(b"milk")
            # What is here can be read all the while.
            assert orders.read(limit=1)[0].value == b"tea"
            waiting = start(lambda: orders.put(b"water"))
            other.resume()
            wait_until(waiting.done)
            mq.sync()
            found = values(mq)
        # Of those that were told that nobody knows, each is there or not, and once.
        assert found[0] == b"tea"
        assert sorted(found[1:]) in ([b"milk"], [b"milk", b"water"])
        with quivermq.open(url, settings, cache=tmp_path / "second") as mq:
            assert values(mq) == found
    assert os.listdir(tmp_path / "cache")


def test_what_a_queue_knows_goes_along(s3: S3Server, tmp_path: Path) -> None:
    """Leases, retries, dead letters, delays, deduplication and settings, from one machine to the next."""
    url = s3.new_url()
    with quivermq.open(url, cache=tmp_path / "one") as mq:
        mq.create_topic("orders", partitions=2, attempts_max=1, dedup_window_ms=3_600_000)
        orders = mq.queue("orders", "billing")
        orders.put_many([b"%d" % number for number in range(10)])
        orders.put(b"once", dedup_id="a", priority="high")
        orders.put(b"later", delay=3600)
        (first,) = orders.get_many(1, lease=3600)
        orders.reject(orders.get_many(2), "never")
        orders.ack(orders.get_many(3))
    with quivermq.open(url, cache=tmp_path / "two") as mq:
        orders = mq.queue("orders", "billing")
        assert mq.topic("orders").partitions == 2
        assert orders.put(b"once", dedup_id="a").duplicate
        assert [each.value for each in orders.scheduled()] == [b"later"]
        assert len(orders.dead_letters()) == 2
        stats = orders.stats()
        assert (stats.in_flight, stats.pending) == (1, 5)
        # The receipt of the machine that is gone is good until its lease ends.
        orders.ack([first.receipt])
        assert len(orders.get_many(10)) == 5
        assert mq.verify().is_sound
