"""Who may make a call: a key where keys are asked for, its scope, its topics, and not too often."""

import math
from collections.abc import Callable
from ipaddress import ip_address

from quivermq.errors import Denied, RateLimited, Unauthenticated
from quivermq.model.names import usual_origin
from quivermq.server.access import ApiKey, check_topics
from quivermq.server.http import Request
from quivermq.server.keys import KeyStore
from quivermq.server.routing import Route

_BEARER = "bearer "
# A bucket that is not in the table is full, so leaving one out only ever forgives.
_BUCKETS_MAX = 10_000
_LOCAL = "localhost"
# Of the same site is also what another port of this machine serves.
_OTHERS = ("cross-site", "same-site")


class RateLimit:
    """A bucket of tokens for each client: a request takes one, and every second brings `per_second`.

    A bucket holds one second's worth, so a client that was quiet may send that many at once.
    """

    def __init__(
        self, per_second: int, now: Callable[[], float], *, buckets_max: int = _BUCKETS_MAX
    ) -> None:
        self._per_second = per_second
        self._now = now
        self._buckets_max = buckets_max
        # By client: when its bucket would have been empty, had it run since then. Ordered by last use.
        self._empty_at: dict[str, float] = {}

    def take(self, client: str) -> bool:
        """Whether the client may make one more request now."""
        now = self._now()
        empty_at = max(self._empty_at.pop(client, -math.inf), now - 1.0)
        is_allowed = (now - empty_at) * self._per_second >= 1.0 - 1e-9
        if is_allowed:
            empty_at += 1.0 / self._per_second
        if len(self._empty_at) >= self._buckets_max:
            # The one that was used least recently, and so the fullest.
            del self._empty_at[next(iter(self._empty_at))]
        self._empty_at[client] = empty_at
        return is_allowed

    def __len__(self) -> int:
        return len(self._empty_at)


class Gate:
    """Stands before every call. Raises Unauthenticated, Denied and RateLimited, and sets `request.key`."""

    def __init__(
        self,
        keys: KeyStore | None,
        rate: RateLimit | None,
        host: str = "",
        origin_of: Callable[[str], str | None] = usual_origin,
    ) -> None:
        self._origin_of = origin_of
        self._keys = keys
        self._rate = rate
        self._host = host

    def __call__(self, request: Request, route: Route) -> None:
        if route.permission.scope == "none":
            return
        key = None
        is_required = self._keys is not None and self._keys.is_required
        if is_required:
            key = self._key_of(request)
        if self._rate is not None and not self._rate.take(request.client if key is None else key.id):
            raise RateLimited("this client makes more requests than server.requests_per_second allows")
        if not is_required:
            check_page(request, self._host)
            return
        if key is None:
            raise Unauthenticated(self._advice())
        request.key = key
        request.origin_of = self._origin_of
        _check(key, request, route)

    def _advice(self) -> str:
        assert self._keys is not None
        if self._keys.is_empty:
            return (
                "the broker wants a key, and the last one was revoked: make one with `quiver key create`,"
                " or stop the broker and open it to this machine with `quiver key allow-anonymous`"
            )
        return f"the broker wants a key, and this is none that it knows: {Unauthenticated.advice}"

    def _key_of(self, request: Request) -> ApiKey | None:
        assert self._keys is not None
        sent = request.headers.get("authorization", "")
        if sent[: len(_BEARER)].lower() != _BEARER:
            return None
        return self._keys.find(sent[len(_BEARER) :].strip())


def _check(key: ApiKey, request: Request, route: Route) -> None:
    needed = route.permission
    if not key.has_scope(needed.scope):
        raise Denied(f"this call needs a key of scope {needed.scope}, and this one is for {key.scope}")
    if "topic" in request.params:
        check_topics(request, [request.params["topic"]])
    elif not (key.is_for_all_topics or needed.topics == "each"):
        raise Denied(
            f"this call concerns all topics, and this key is for {', '.join(key.topics)[:300]} only"
        )


def check_page(request: Request, own_name: str) -> None:
    """Raise Denied for what the page of another site sends. `own_name` is what the broker listens on.

    A browser sends for any page what that likes, also to this machine. A broker that wants a key is safe
    from that, because a page has none. One that wants none takes requests only from pages of its own, and
    only under a name that nobody else can have.
    """
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
