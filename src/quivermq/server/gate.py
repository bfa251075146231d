"""Who may make a call: a key where keys are asked for, its scope, its topics, and not too often."""

from quivermq.errors import Denied, RateLimited, Unauthenticated
from quivermq.server.access import ApiKey, check_topics
from quivermq.server.browsers import check_page
from quivermq.server.http import Request
from quivermq.server.keys import KeyStore
from quivermq.server.rate import RateLimit
from quivermq.server.routing import Route

_BEARER = "bearer "


class Gate:
    """Stands before every call. Raises Unauthenticated, Denied and RateLimited, and sets `request.key`."""

    def __init__(self, keys: KeyStore | None, rate: RateLimit | None, host: str = "") -> None:
        self._keys = keys
        self._rate = rate
        self._host = host

    def __call__(self, request: Request, route: Route) -> None:
        if route.scope == "none":
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
            raise Unauthenticated(
                "the broker wants a key, and this is none that it knows: send `Authorization: Bearer KEY`"
            )
        request.key = key
        _check(key, request, route)

    def _key_of(self, request: Request) -> ApiKey | None:
        assert self._keys is not None
        sent = request.headers.get("authorization", "")
        if sent[: len(_BEARER)].lower() != _BEARER:
            return None
        return self._keys.find(sent[len(_BEARER) :].strip())


def _check(key: ApiKey, request: Request, route: Route) -> None:
    if not key.has_scope(route.scope):
        raise Denied(f"this call needs a key of scope {route.scope}, and this one is for {key.scope}")
    if "topic" in request.params:
        check_topics(request, [request.params["topic"]])
    elif not (key.is_for_all_topics or route.checks_topics):
        raise Denied(
            f"this call concerns all topics, and this key is for {', '.join(key.topics)[:300]} only"
        )
