"""The client of etcd: what it asks, and what it makes of answers, of none, and of refusals."""

import json
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPResponse

import pytest
import trustme
from support.etcd_gateway import EtcdGateway, GatewayFault, served

from quivermq.errors import InvalidRequest, StoreDenied, StoreUnreachable
from quivermq.shared.etcd import EtcdClient, changed_at, created_at, delete_keys, put_key


@pytest.fixture
def gateway() -> EtcdGateway:
    return EtcdGateway()


@pytest.fixture
def url(gateway: EtcdGateway) -> Iterator[str]:
    with served(gateway) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[EtcdClient]:
    client = EtcdClient([url])
    yield client
    client.close()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert isinstance(port, int)
        return port


def test_a_transaction_is_done_whole_or_not_at_all(client: EtcdClient) -> None:
    first = client.transact([created_at("a", 0)], [put_key("a", b"\0 1"), put_key("b", b"2")])
    assert first is not None
    assert client.transact([created_at("a", 0)], [put_key("a", b"other")]) is None
    [found] = client.range("a")
    assert found == ("a", b"\0 1", first, first, 0)
    second = client.transact([changed_at("a", first)], [put_key("a", b"3"), delete_keys("b")])
    assert [each[:4] for each in client.range("a", "z")] == [("a", b"3", first, second)]
    assert client.range("b") == []


def test_many_keys_come_in_several_answers(client: EtcdClient, gateway: EtcdGateway) -> None:
    for start in range(0, 1100, 100):
        client.transact([], [put_key(f"k/{n:05d}", b"%d" % n) for n in range(start, start + 100)])
    asked = len(gateway.asked)
    assert [each.value for each in client.range("k/", "k0")] == [b"%d" % n for n in range(1100)]
    assert len(gateway.asked) - asked == 3
    client.transact([], [delete_keys("k/", "k/00100")])
    assert len(client.range("k/", "k0")) == 1000


def test_keys_go_with_their_lease(client: EtcdClient) -> None:
    lease = client.grant_lease(5)
    client.transact([], [put_key("a", b"1", lease=lease)])
    assert client.range("a")[0].lease == lease
    assert client.keep_lease(lease)
    client.revoke_lease(lease)
    assert not client.keep_lease(lease)
    assert client.range("a") == []


def test_who_does_not_know_the_password_is_refused(gateway: EtcdGateway, url: str) -> None:
    gateway.password = "secret"
    for user, password in [(None, ""), ("root", "wrong")]:
        client = EtcdClient([url], user=user, password=password)
        with pytest.raises(StoreDenied):
            client.range("a")
        client.close()
    client = EtcdClient([url], user="root", password="secret")
    client.transact([], [put_key("a", b"1")])
    # Tokens end after a while, and then a new one is asked for.
    gateway.tokens.clear()
    assert client.range("a")[0].value == b"1"
    client.close()


def test_another_endpoint_is_asked_where_one_does_not_answer(url: str, closed_port: int) -> None:
    client = EtcdClient([f"http://127.0.0.1:{closed_port}", url])
    assert client.range("a") == []
    client.close()
    # What changes something is not repeated by itself; the next attempt goes to the other.
    client = EtcdClient([f"http://127.0.0.1:{closed_port}", url])
    with pytest.raises(StoreUnreachable, match="does not answer"):
        client.transact([], [put_key("a", b"1")])
    assert client.transact([], [put_key("a", b"1")])
    client.close()


@pytest.mark.parametrize("fault", ["fail", "lose_answer", "unavailable"])
def test_a_call_without_an_answer_says_so(
    client: EtcdClient, gateway: EtcdGateway, fault: GatewayFault
) -> None:
    gateway.fault = lambda _path, number: fault if number == 1 else None
    with pytest.raises(StoreUnreachable):
        client.transact([created_at("a", 0)], [put_key("a", b"1")])
    assert len(gateway.asked) == 1
    assert len(client.range("a")) == (fault == "lose_answer")


@pytest.mark.parametrize("endpoints", [[], ["127.0.0.1:2379"], ["ftp://host"]])
def test_endpoints_are_urls(endpoints: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="URLs of http or https"):
        EtcdClient(endpoints)


def test_over_tls_only_a_certificate_that_is_trusted_will_do(gateway: EtcdGateway) -> None:
    authority = trustme.CA()
    of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(of_server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with served(gateway, of_server) as url:
        client = EtcdClient([url], tls=trusting)
        assert client.transact([], [put_key("a", b"1")])
        client.close()
        with pytest.raises(StoreUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            EtcdClient([url]).range("a")


def test_a_watch_tells_what_happens(gateway: EtcdGateway, client: EtcdClient) -> None:
    gateway.news = [
        {"result": {"header": {"revision": "7"}, "created": True}},
        {"result": {"header": {"revision": "8"}, "events": [{"kv": {"key": "YQ==", "value": "MQ=="}}]}},
        {"result": {"header": {"revision": "9"}, "events": [{"type": "DELETE", "kv": {"key": "YQ=="}}]}},
    ]
    watch = client.watch("a", "b", revision=7)
    assert next(watch) == (7, [])
    assert [
        (revision, event.is_put, event.key[:2]) for revision, [event] in (next(watch), next(watch))
    ] == [
        (8, True, ("a", b"1")),
        (9, False, ("a", b"")),
    ]
    with pytest.raises(StoreUnreachable, match="look at the keys again"):
        next(watch)
    gateway.news = [
        {"result": {"header": {"revision": "9"}, "canceled": True, "cancel_reason": "compacted"}}
    ]
    with pytest.raises(StoreUnreachable, match="compacted"):
        next(client.watch("a"))


@pytest.mark.parametrize("answer", [None, [], "x", {"error": {"message": "no leader"}}])
def test_what_says_nothing_of_a_lease_does_not_end_it(
    client: EtcdClient, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = client.grant_lease(60)
    encoded = json.dumps(answer)
    # As a proxy answers in its place.
    monkeypatch.setattr(HTTPResponse, "read", lambda *_: encoded.encode())
    with pytest.raises(StoreUnreachable):
        client.keep_lease(lease)
