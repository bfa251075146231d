"""Addresses that only this machine reaches, and those that need keys."""

import socket

import pytest

from quivermq.errors import InvalidRequest
from quivermq.server.run import check_reach, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_nobody_else_reaches_the_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "::ffff:192.0.2.1", "fe80::1"])
def test_an_address_that_others_reach_needs_keys(host: str) -> None:
    with pytest.raises(InvalidRequest, match="quiver key create"):
        check_reach(host, is_authenticated=False)
    check_reach(host, is_authenticated=True)


def test_a_name_is_as_safe_as_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", ("127.0.0.1", 0)), (2, 1, 6, "", ("192.0.2.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert not is_loopback("both")
    del found[1]
    assert is_loopback("one")


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 300, "\0"])
def test_a_name_without_an_address_is_an_error(host: str) -> None:
    with pytest.raises(InvalidRequest, match="no address to listen on"):
        is_loopback(host)
