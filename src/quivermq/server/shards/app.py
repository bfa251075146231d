"""`ClusterApp`: answers for the shards of this broker, and sends the others where their shards are."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from quivermq.clock import Clock
from quivermq.cluster.alerts import ClusterEvidence, judge_cluster
from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.node import ClusterNode
from quivermq.cluster.shard import OwnedShard
from quivermq.cluster.view import ClusterView
from quivermq.engine.watch import ChangeTracker
from quivermq.errors import NotFound, QuiverError, StoreUnreachable, Unavailable
from quivermq.model.stats import Alert
from quivermq.server.access import ApiKey
from quivermq.server.gate import Gate, RateLimit
from quivermq.server.http import Request, Response, answered, error_response, json_response
from quivermq.server.keys import KeyStore
from quivermq.server.memory import Memory
from quivermq.server.routes import all_routes
from quivermq.server.routing import Answer, RouteTable
from quivermq.server.run import broker_app
from quivermq.server.shards.finding import (
    SHARDS,
    ShardPath,
    path_there,
    quoted_location,
    shard_by_topic,
    shard_in_path,
)
from quivermq.server.shards.forwarding import Forwarder
from quivermq.server.shards.routes import ROUTES
from quivermq.server.shards.served import ServedShard
from quivermq.settings import ServerSettings

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_ELSEWHERE, _UNAVAILABLE = 307, 503
# How long a call at the root waits for the next owner of its shard, and how often it looks.
_PATIENCE_S = 10.0
_LOOK_S = 0.05
_NOBODY = "nobody has shard {} just now: it is on its way to another broker; retry"


class ClusterApp:
    """One broker's `Application`. Belongs to the event loop's thread."""

    def __init__(
        self,
        node: ClusterNode,
        settings: ServerSettings,
        keys: KeyStore,
        *,
        clock: Clock,
        rate: RateLimit | None,
        may_forward: bool,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self.node = node
        self.settings = settings
        self.clock = clock
        self.memory = Memory(settings.memory_bytes_max)
        self.served: dict[int, ServedShard] = {}
        self.is_draining = False
        self._keys = keys
        self._rate = rate
        self._gate = Gate(keys, rate, settings.host)
        self._routes = RouteTable(ROUTES)
        self._of_shards = RouteTable(all_routes())
        self._may_forward = may_forward
        self._patience_s = patience_s
        self.forwarder = Forwarder(settings.wait_ms_max / 1000)
        # What was seen of the cluster before, for its alerts.
        self._watch = ChangeTracker()
        self.count_connections: Callable[[], int] = lambda: 0

    @property
    def view(self) -> ClusterView:
        return self.node.view

    @property
    def keys(self) -> ClusterKeys:
        return self.node.keys

    def alerts(self) -> list[Alert]:
        """What is wrong with the cluster, as this broker sees it."""
        node = self.node
        evidence = ClusterEvidence(
            now_us=self.clock.now_us(),
            ownerless_s=node.ownerless_s(),
            lease_left_s=node.lease_left_s,
            troubles=node.figures.troubles.copy(),
            candidates=len(self.view.candidates),
        )
        return judge_cluster(evidence, self._watch)

    # What whoever accepts connections asks of it.

    def start(self, count_connections: Callable[[], int]) -> None:
        self.count_connections = count_connections

    def stop(self) -> None:
        """Each shard looks around by itself."""

    def drain(self) -> None:
        self.is_draining = True
        for served in self.served.values():
            served.app.drain()

    def check_keys(self) -> bool:
        if not self._keys.look():
            return False
        for served in self.served.values():
            for look in served.app.broker.on_keys:
                look()
        return True

    def is_welcome(self, key: ApiKey | None) -> bool:
        return self._keys.is_welcome(key)

    # Shards that come and go.

    async def add(self, shard: OwnedShard) -> None:
        """Serve a shard that was opened."""
        app = broker_app(
            shard.engine, self.settings, self._keys, self.settings.host, memory=self.memory, rate=self._rate
        )
        # The keys are looked after for all shards at once.
        app.broker.look_at_keys = lambda: False
        app.start(self.count_connections)
        elsewhere = partial(self._elsewhere_below, shard.number)
        self.served[shard.number] = ServedShard(shard, app, elsewhere)

    async def remove(self, shard: OwnedShard, timeout_s: float) -> None:
        """Serve a shard no more, and return once nobody works on it."""
        await self.served.pop(shard.number).end(timeout_s)

    # Requests.

    def answer(self, request: Request) -> Answer:
        """The answer, or what has to be awaited for it. Never raises; nor does the awaitable."""
        try:
            if request.path.startswith(SHARDS):
                return self._answer_below(shard_in_path(request.path, self.view.shards), request)
            routes, request.params = self._routes.find(request.path)
            route = routes.get("GET" if request.method == "HEAD" else request.method)
            if route is None:
                return self._answer_by_topic(request)
            self._gate(request, route)
            answer = route.call(self, request)
        except Exception as error:
            return self._failed(request, error)
        return answer if isinstance(answer, Response) else self._settled(request, answer)

    def admit(self, request: Request) -> Response | None:
        """Look at a request whose body is large and has yet to be read: None, or why it will not be."""
        path = request.path
        try:
            found = shard_in_path(path, self.view.shards) if path.startswith(SHARDS) else None
            if found is None:
                by_topic = shard_by_topic(request, self.view)
                if isinstance(by_topic, Response):
                    return by_topic
                found = by_topic
            served = self._served_fresh(found.shard)
            if served is None and not path.startswith(SHARDS):
                self._check(found, request)
                request.is_admitted = True
            if served is None:
                # What is handed on is held here first.
                return (
                    None
                    if not path.startswith(SHARDS) and self._may_forward
                    else self._moved(request, found)
                )
            request.path = found.path
            return served.app.admit(request)
        except Exception as error:
            return self._failed(request, error)
        finally:
            request.path = path

    def _answer_below(self, found: ShardPath, request: Request) -> Answer:
        served = self._served_fresh(found.shard)
        if served is None:
            return self._moved(request, found)
        request.path = found.path
        return served.answer(request)

    def _answer_by_topic(self, request: Request) -> Answer:
        found = shard_by_topic(request, self.view)
        if isinstance(found, Response):
            return found
        if self._served_fresh(found.shard) is not None or not self._may_forward:
            return self._answer_below(found, request)
        if not request.is_admitted:
            self._check(found, request)
        return self._settled(request, self._handed_on(found, request))

    async def _handed_on(self, found: ShardPath, request: Request) -> Response:
        """What the owner answers. While nobody owns the shard, or one after another, that is waited for."""
        deadline = self.clock.monotonic() + self._patience_s
        while True:
            if self._served_fresh(found.shard) is not None:
                answer = self._answer_below(found, request)
                response = answer if isinstance(answer, Response) else answered(await answer)
            elif (url := self._url_of(found.shard)) is not None:
                response = await self.forwarder.forward(url, path_there(found), request)
            else:
                response = error_response(Unavailable(_NOBODY.format(found.shard)))
            # Both say that nothing was done.
            is_on_its_way = response.status == _ELSEWHERE or _is_unavailable(response)
            if not is_on_its_way or self.clock.monotonic() >= deadline:
                return response
            await asyncio.sleep(_LOOK_S)

    def _check(self, found: ShardPath, request: Request) -> None:
        """Raise what the owner would, too, before anything is handed on to it: Denied, for one."""
        routes, request.params = self._of_shards.find(found.path)
        route = routes.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            raise NotFound(f"there is nothing at {request.path[:200]}: /shards/0/docs shows every call")
        self._gate(request, route)
        request.body_bytes_max = route.body_limit

    def _served_fresh(self, shard: int) -> ServedShard | None:
        served = self.served.get(shard)
        return None if served is None or not served.shard.is_fresh else served

    def _url_of(self, shard: int) -> str | None:
        """Where another broker serves a shard."""
        owner = self.view.owners.get(shard)
        return None if owner is None or owner.broker == self.node.id else self.view.url_of(shard)

    def _elsewhere_below(self, shard: int, request: Request) -> Response:
        return self._moved(request, ShardPath(shard, request.path))

    def _moved(self, request: Request, found: ShardPath) -> Response:
        """What somebody gets who asks for a shard that is not here."""
        url = self._url_of(found.shard)
        if url is None:
            return error_response(Unavailable(_NOBODY.format(found.shard)))
        message = f"shard {found.shard} is served at {url}: ask there"
        error = {"code": "not_owner", "message": message, "retryable": True, "url": url}
        response = json_response({"error": error}, 307)
        response.headers = {"Location": quoted_location(url, request, found)}
        return response

    async def run(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that may wait, in a thread, and return what it returns."""
        return await asyncio.get_running_loop().run_in_executor(None, partial(act, *args, **kwargs))

    async def ask_all(self, request: Request, path: str) -> list[Any]:
        """What every shard answers to a GET, wherever it is. Raises ShardFailed where one failed."""
        answers = await asyncio.gather(*(self._ask(request, n, path) for n in range(self.view.shards)))
        for response in answers:
            if response.status != 200:
                raise ShardFailed(response)
        return [json.loads(response.body) for response in answers]

    async def _ask(self, request: Request, shard: int, path: str) -> Response:
        found = ShardPath(shard, path)
        if self._served_fresh(shard) is not None:
            part = Request("GET", path, request.query_string, request.headers, client=request.client)
            answer = self._answer_below(found, part)
            response = answer if isinstance(answer, Response) else answered(await answer)
            if part.portion is not None:
                part.portion.end()
            return response
        url = self._url_of(shard)
        if url is None:
            return error_response(Unavailable(_NOBODY.format(shard)))
        return await self.forwarder.forward(url, path_there(found), request)

    async def _settled(self, request: Request, answer: Awaitable[Any]) -> Response:
        try:
            return answered(await answer)
        except Exception as error:
            return self._failed(request, error)

    def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, ShardFailed):
            return error.response
        if isinstance(error, QuiverError):
            if isinstance(error, StoreUnreachable):
                logger.warning("%s %s: %s", request.method, request.path, error)
            return error_response(error)
        logger.error(
            "%s %s failed", request.method, request.path, exc_info=error, extra={"request_id": request.id}
        )
        return error_response(QuiverError("the broker failed: its log has the details of this request id"))


def _is_unavailable(response: Response) -> bool:
    if response.status != _UNAVAILABLE:
        return False
    try:
        return bool(json.loads(response.body)["error"]["code"] == Unavailable.code)
    except (ValueError, LookupError, TypeError):
        # Not of a broker, but of something in between.
        return False


class ShardFailed(Exception):
    """One of the shards that were asked answered with an error."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response
