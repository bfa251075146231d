"""Keys, TLS, and brokers that are not there or hang up: the same for threads and for asyncio."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from contract.awaited import Loop
from support.broker import Served, serving
from support.threads import wait_until

import quivermq
from quivermq import aio
from quivermq.errors import Denied, Unauthenticated, Unreachable
from quivermq.server.access import SCOPES
from quivermq.server.keys import create_key
from quivermq.server.tls import tls_context

Connect = Callable[..., Any]


@pytest.fixture(params=["connect", "aio.connect"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to a URL; everything is closed when the test ends."""
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())

        def make(url: str, **options: Any) -> Any:
            if request.param == "connect":
                return stack.enter_context(quivermq.connect(url, **options))
            return stack.enter_context(loop.wrap(loop.run(aio.connect(url, **options))))

        yield make


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A broker that asks for a key, and its keys by their names."""
    path = tmp_path_factory.mktemp("locked")
    keys: dict[str, str] = {scope: create_key(path, scope).text for scope in SCOPES}
    keys["orders"] = create_key(path, "write", ["orders"]).text
    keys["none"] = keys["read"][:-1] + ("0" if keys["read"][-1] != "0" else "1")
    with serving(path) as broker:
        yield broker, keys


def test_a_key_allows_what_it_is_for(connect: Connect, locked: tuple[Served, dict[str, str]]) -> None:
    broker, keys = locked
    admin = connect(broker.url, key=keys["admin"])
    admin.create_topic("made")
    admin.queue("made").put(b"x")
    reader = connect(broker.url, key=keys["read"])
    assert next(iter(reader.queue("made", "g").read())).value == b"x"
    consumer = connect(broker.url, key=keys["consume"])
    assert consumer.queue("made", "g").get().value == b"x"
    admin.delete_topic("made")


def test_a_key_of_another_scope_is_denied(connect: Connect, locked: tuple[Served, dict[str, str]]) -> None:
    broker, keys = locked
    reader, consumer, writer = (
        connect(broker.url, key=keys[name]) for name in ("read", "consume", "write")
    )
    calls: list[Callable[[], object]] = [
        lambda: reader.queue("orders").put(b"x"),
        lambda: reader.queue("orders").put_many([b"x", b"y"]),
        lambda: reader.create_topic("more"),
        lambda: reader.queue("orders").get(),
        lambda: reader.queue("orders").pop(),
        lambda: reader.queue("orders").seek("latest"),
        lambda: consumer.queue("orders").put(b"x"),
        lambda: writer.delete_topic("orders"),
        lambda: connect(broker.url, key=keys["orders"]).queue("other").put(b"x"),
    ]
    for call in calls:
        with pytest.raises(Denied):
            call()
    connect(broker.url, key=keys["orders"]).queue("orders").put(b"x")


def test_a_producer_says_that_its_key_is_not_enough(
    connect: Connect, locked: tuple[Served, dict[str, str]]
) -> None:
    broker, keys = locked
    connect(broker.url, key=keys["admin"]).queue("orders").put(b"there")
    producer = connect(broker.url, key=keys["read"]).producer("orders")
    producer.send(b"x")
    with pytest.raises(Denied):
        producer.flush()
    producer.close()


@pytest.mark.parametrize("key", [None, "none", "no key at all"])
def test_without_a_valid_key_nothing_is_told(
    connect: Connect, locked: tuple[Served, dict[str, str]], key: str | None
) -> None:
    broker, keys = locked
    text = None if key is None else keys.get(key, "no-key-at-all")
    mq = connect(broker.url, key=text)
    for call in (mq.topics, lambda: mq.queue("orders").put(b"x"), lambda: mq.queue("orders").get()):
        with pytest.raises(Unauthenticated) as caught:
            call()
        assert text is None or text not in str(caught.value)


def test_a_broker_that_is_not_there_is_unreachable(connect: Connect) -> None:
    with socket.socket() as taken:
        # Bound, but nobody listens.
        taken.bind(("127.0.0.1", 0))
        mq = connect(f"http://127.0.0.1:{taken.getsockname()[1]}", retries=1)
        for call in (mq.topics, lambda: mq.queue("orders").put(b"x"), lambda: mq.queue("orders").get()):
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
                call()


def test_a_connection_that_the_broker_closed_is_made_anew(connect: Connect, tmp_path: Path) -> None:
    with serving(tmp_path / "data", idle_timeout_ms=1) as broker:
        mq = connect(broker.url, retries=0)
        orders = mq.queue("orders")
        for number in range(3):
            # A put is never repeated: that this works means that no dead connection was used.
            orders.put(b"%d" % number)
            wait_until(lambda: not broker.server.edge.clients)
        assert [message.value for message in orders.get_many(10)] == [b"0", b"1", b"2"]


def test_tls_is_spoken_and_checked(connect: Connect, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    known = ssl.create_default_context()
    authority.configure_trust(known)
    text = create_key(tmp_path, "write").text
    with serving(tmp_path, tls=tls_context(chain, key)) as broker:
        assert broker.url.startswith("https://")
        mq = connect(broker.url, key=text, ssl_context=known)
        mq.queue("orders").put_many([b"x" * 1000] * 1000)
        assert len(mq.queue("orders").get_many(1000)) == 1000
        mq.close()
        stranger = connect(broker.url, ssl_context=known)
        with pytest.raises(Unauthenticated):
            stranger.topics()
        stranger.close()
        # Nobody knows this authority, so nothing is sent, the key least of all.
        with pytest.raises(Unreachable, match="certificate"):
            connect(broker.url, key=text, retries=0).topics()
        plain = broker.url.replace("https://", "http://")
        with pytest.raises(Unreachable):
            connect(plain, key=text, retries=0).topics()
