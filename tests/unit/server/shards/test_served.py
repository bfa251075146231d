"""A shard is answered for only while it is certainly this broker's, before the call and behind it."""

import asyncio
import json
from collections.abc import Awaitable, Iterator
from typing import Any, cast

import pytest
from support.site import Site

from quivermq.cluster.shard import OwnedShard
from quivermq.errors import NotOwner
from quivermq.server.http import Later, Request, Response, problem
from quivermq.server.routes import all_routes
from quivermq.server.routing import Route
from quivermq.server.shards.served import ServedShard

ELSEWHERE, UNKNOWN = 307, 503


class Lease:
    """What an `OwnedShard` says of itself."""

    number = 3
    is_fresh = True


class Place(Site):
    """A shard that is served, and calls that end when the test says so."""

    def __init__(self) -> None:
        super().__init__([*all_routes(), *self._routes()])
        self.lease = Lease()
        self.sent_back: list[str] = []
        self.later: Later | None = None
        self.waiting: asyncio.Future[Response] | None = None
        self.served = ServedShard(cast(OwnedShard, self.lease), self.app, self._elsewhere)

    def _elsewhere(self, request: Request) -> Response:
        self.sent_back.append(request.path)
        return problem(ELSEWHERE, "not_owner", "ask there", retryable=True)

    def _routes(self) -> list[Route]:
        def fenced(*_: Any) -> Response:
            raise NotOwner("another one has it")

        def broken(*_: Any) -> Response:
            raise RuntimeError("closed under it")

        def later(*_: Any) -> Later:
            self.later = Later()
            return self.later

        async def waits(*_: Any) -> Any:
            self.waiting = asyncio.get_running_loop().create_future()
            return await self.waiting

        made: dict[str, Any] = {"/fenced": fenced, "/broken": broken, "/later": later, "/waits": waits}
        permission = all_routes()[0].permission
        return [
            Route(method, path, handler, "x", "x", permission=permission)
            for path, handler in made.items()
            for method in ("GET", "POST")
        ]

    def call(self, path: str, method: str = "GET") -> Any:
        return self.served.answer(Request(method, path))

    async def status(self, path: str, method: str = "GET") -> int:
        answer = self.call(path, method)
        response = await answer if isinstance(answer, Awaitable) else answer
        assert isinstance(response, Response)
        return response.status


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.close()


def test_a_shard_that_is_not_fresh_is_not_answered_for(place: Place) -> None:
    assert place.run(place.status("/v1/topics")) == 200
    place.lease.is_fresh = False
    assert place.run(place.status("/v1/topics")) == ELSEWHERE
    place.lease.is_fresh = True
    assert place.run(place.status("/v1/topics")) == 200


@pytest.mark.parametrize("path", ["/later", "/waits"])
@pytest.mark.parametrize(("method", "status"), [("GET", ELSEWHERE), ("POST", UNKNOWN)])
def test_an_answer_that_was_made_while_nobody_knew_is_kept_back(
    place: Place, path: str, method: str, status: int
) -> None:
    async def asked(*, is_fresh: bool) -> int:
        task = asyncio.ensure_future(place.status(path, method))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        place.lease.is_fresh = is_fresh
        response = Response(200, b"{}")
        if place.later is not None:
            place.later.set(response)
        if place.waiting is not None:
            place.waiting.set_result(response)
        return await task

    assert place.run(asked(is_fresh=True)) == 200
    # Sent elsewhere only with what may be done twice.
    assert place.run(asked(is_fresh=False)) == status


def test_messages_in_an_answer_that_is_kept_back_are_given_back(place: Place) -> None:
    given_back: list[str] = []

    async def asked() -> Response:
        answer = place.call("/later")
        assert isinstance(answer, Later)
        got: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        answer.then = got.set_result
        place.lease.is_fresh = False
        response = Response(200, b"{}")
        response.unsent = lambda: given_back.append("leases")
        assert place.later is not None
        place.later.set(response)
        return await got

    assert place.run(asked()).status == ELSEWHERE
    assert given_back == ["leases"]


def test_what_the_engine_found_out_sends_clients_to_the_owner(place: Place) -> None:
    assert place.run(place.status("/fenced")) == ELSEWHERE
    # How far a put came, nobody knows: not even that it was not carried out.
    refused = place.call("/fenced", "POST")
    assert json.loads(refused.body)["error"]["code"] == "unreachable"
    response = place.run(place.answer("GET", "/v1/topics/none"))
    assert json.loads(response.body)["error"]["code"] == "topic_not_found"


def test_it_ends_once_nobody_works_on_it(place: Place) -> None:
    async def ended() -> tuple[int, bool]:
        task = asyncio.ensure_future(place.status("/waits"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        end = asyncio.ensure_future(place.served.end(60))
        await asyncio.sleep(0)
        was_done = end.done()
        assert place.waiting is not None
        place.waiting.set_result(Response(200, b"{}"))
        status = await task
        await end
        return status, was_done

    assert place.run(ended()) == (200, False)


def test_a_call_that_fails_because_it_has_ended_is_sent_to_the_owner(place: Place) -> None:
    assert place.run(place.status("/broken")) == 500
    place.run(place.served.end(0))
    assert place.run(place.status("/broken")) == ELSEWHERE
    assert place.run(place.status("/broken", "POST")) == UNKNOWN
