"""Where the broker is, taken from a URL, and what every request to it says."""

import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quivermq.errors import InvalidRequest

if TYPE_CHECKING:
    from ssl import SSLContext

_PORT = 7070
# A host may be called anything, and a header may not.
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's host and port, and what stands before every path when a proxy wants that."""

    host: str
    port: int
    is_secure: bool
    prefix: str = ""

    @classmethod
    def parse(cls, url: object) -> "Address":
        """The address that a URL names. Raises InvalidRequest."""
        if not isinstance(url, str):
            raise InvalidRequest(
                f"a broker is named by its URL, like http://127.0.0.1:7070, not {url!r:.80}"
            )
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidRequest(f"{url!r:.80} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(f"{url!r:.80} is not the URL of a broker, like http://127.0.0.1:7070")
        if parts.username is not None or parts.query or parts.fragment:
            raise InvalidRequest("the URL of a broker has neither a name nor a query: give the key as key=")
        is_secure = parts.scheme == "https"
        default = 443 if is_secure else _PORT
        return cls(parts.hostname, default if port is None else port, is_secure, parts.path.rstrip("/"))

    def __str__(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def is_list(url: object) -> bool:
    """Whether this names several brokers, which are a cluster."""
    return isinstance(url, str) and "," in url


def common_headers(address: Address, key: object) -> str:
    """The header lines of every request. Raises InvalidRequest for a key that cannot be one."""
    lines = f"Host: {address.authority}\r\nUser-Agent: quivermq ({_process()})\r\n"
    if key is None:
        return lines
    # The key itself is never shown, not even when it is wrong.
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or " " in key or not key:
        raise InvalidRequest("a key is a text without spaces, as `quiver key create` printed it")
    return f"{lines}Authorization: Bearer {key}\r\n"


def _process() -> str:
    """Which process this is, for whoever looks at what is in flight and wants to know who has it."""
    return f"{_UNUSUAL.sub('_', socket.gethostname())[:64]}:{os.getpid()}"


def default_ssl_context() -> "SSLContext":
    """What a secure connection is checked with. Only then is the module loaded."""
    import ssl

    return ssl.create_default_context()
