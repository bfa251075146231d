"""Who may make a call: a key where keys are asked for, its scope, its topics, and not too often."""

from collections.abc import Callable

from quivermq.errors import Denied, RateLimited, Unauthenticated
from quivermq.server.access import ApiKey, check_topics
from quivermq.server.browsers import check_page
from quivermq.server.http import Request
from quivermq.server.keys import KeyStore
from quivermq.server.rate import RateLimit
from quivermq.server.routing import Route
from quivermq.topic.names import usual_origin

_BEARER = "bearer "


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
        return "the broker wants a key, and this is none that it knows: send `Authorization: Bearer KEY`"

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
