"""Which addresses the outside world can reach."""

import socket
from ipaddress import ip_address

from quivermq.errors import InvalidRequest


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches the host, by whatever address it has.

    Raises InvalidRequest for a name that has no address.
    """
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(f"{host!r} is no address to listen on: {error}") from error
    # An address may end in its network interface, as in fe80::1%eth0.
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def check_reach(host: str, *, is_authenticated: bool) -> None:
    """Raise InvalidRequest for an address that others reach, unless they need a key."""
    if is_authenticated or is_loopback(host):
        return
    raise InvalidRequest(
        f"{host or 'every address'} can be reached from other machines, and anybody could use the queue:"
        " make a key with `quiver key create`, or listen on 127.0.0.1"
    )
