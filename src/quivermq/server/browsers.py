"""Web pages: a browser sends for any of them what it likes, also to this machine.

A broker that wants a key is safe from that, because a page has none. One that wants none takes requests
only from pages of its own, and only under a name that nobody else can have.
"""

from ipaddress import ip_address

from quivermq.errors import Denied
from quivermq.server.http import Request

_LOCAL = "localhost"
# Of the same site is also what another port of this machine serves.
_OTHERS = ("cross-site", "same-site")


def check_page(request: Request, own_name: str) -> None:
    """Raise Denied for what the page of another site sends. `own_name` is what the broker listens on."""
    headers = request.headers
    host = headers.get("host", "").lower()
    if host and not _is_own(_name_of(host), own_name.lower()):
        # A page may give the name of its site the address of this machine, and be of the same origin then.
        raise Denied(
            f"without keys the broker answers to localhost and to addresses, not to {host[:80]!r}:"
            " use one of these, or make a key with `quiver key create`"
        )
    if headers.get("sec-fetch-site") in _OTHERS and headers.get("sec-fetch-mode") != "navigate":
        # An image or a script of another page comes without its origin, and could make the broker work.
        # Who follows a link may: that changes nothing, and a form has an origin.
        raise Denied(
            "a page of another site asked for this, and without keys anybody's page could:"
            " make a key with `quiver key create`"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise Denied(
            f"a page of {origin[:80]!r} sent this, and without keys anybody's page could:"
            " make a key with `quiver key create`"
        )


def _name_of(host: str) -> str:
    """The name in a Host header, without the port and the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_own(name: str, own_name: str) -> bool:
    return name in (_LOCAL, own_name) or name.endswith(f".{_LOCAL}") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
