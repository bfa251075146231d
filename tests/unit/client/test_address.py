"""Where the broker is, and what every request says."""

import pytest

from quivermq.client.core.address import Address, common_headers
from quivermq.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "address", "text"),
    [
        ("http://h", Address("h", 7070, False), "http://h:7070"),
        ("http://h:80/", Address("h", 80, False), "http://h:80"),
        ("https://h", Address("h", 443, True), "https://h:443"),
        ("https://h:7/q/x/", Address("h", 7, True, "/q/x"), "https://h:7/q/x"),
        ("http://[::1]:9", Address("::1", 9, False), "http://[::1]:9"),
    ],
)
def test_a_url_names_a_broker(url: str, address: Address, text: str) -> None:
    assert Address.parse(url) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:7070",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://u:p@h",
        "http://h?a=1",
        None,
        5,
        "http://[::1",
    ],
)
def test_what_is_no_broker_is_refused(url: object) -> None:
    with pytest.raises(InvalidRequest):
        Address.parse(url)


def test_a_key_is_sent_but_never_shown() -> None:
    address = Address("h", 1, False)
    assert "Authorization" not in common_headers(address, None)
    assert "Authorization: Bearer secret\r\n" in common_headers(address, "secret")
    for wrong in ("two words", "new\r\nline", "", "schlüssel", 5):
        with pytest.raises(InvalidRequest) as caught:
            common_headers(address, wrong)
        assert str(wrong) not in str(caught.value) or wrong == ""
