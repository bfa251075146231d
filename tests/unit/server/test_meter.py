"""Requests are counted by route and status, however they are answered."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from support.site import Site

from quivermq.engine import engine_of
from quivermq.errors import Conflict
from quivermq.server.access import Permission
from quivermq.server.broker import Broker
from quivermq.server.http import Later, Request, Response
from quivermq.server.routing import Answer, Parameter, Route


def at_once(_: Broker, __: Request) -> Answer:
    return Response(204)


async def later(_: Broker, request: Request) -> Response:
    if request.query:
        raise Conflict("no")
    return Response(201)


def by_hand(_: Broker, __: Request) -> Answer:
    answer = Later()
    asyncio.get_running_loop().call_soon(answer.set, Response(202))
    return answer


def broken(_: Broker, __: Request) -> Answer:
    raise RuntimeError("a bug")


def route(path: str, handler: Callable[..., Answer]) -> Route:
    query = (Parameter("refused", {}, ""),)
    return Route("GET", path, handler, summary="", tag="", query=query, permission=Permission("none"))


@pytest.fixture
def site() -> Iterator[Site]:
    def slow(_: Broker, __: Request) -> Answer:
        made.clock.advance(2)
        return Response(200)

    handlers = {
        "/once/{id}": at_once,
        "/later": later,
        "/hand": by_hand,
        "/broken": broken,
        "/slow": slow,
    }
    with Site([route(path, handler) for path, handler in handlers.items()]) as made:
        yield made


def counted(site: Site) -> dict[tuple[str, str, str], object]:
    return {
        (sample["labels"]["method"], sample["labels"]["route"], sample["labels"]["status"]): sample["value"]
        for sample in engine_of(site.engine).metrics.collect()
        if sample["name"] == "quiver_http_requests_total"
    }


def test_every_answer_is_counted_by_its_route_and_status(site: Site) -> None:
    site.ask("GET", "/once/1")
    site.ask("HEAD", "/once/2")
    site.ask("POST", "/once/1")
    site.ask("GET", "/later")
    site.ask("GET", "/broken")
    site.ask("BREW", "/nowhere")
    site.ask("GET", "/hand")
    assert counted(site) == {
        ("GET", "/once/{id}", "204"): 2,
        ("GET", "/later", "201"): 1,
        ("GET", "/broken", "500"): 1,
        ("GET", "/hand", "202"): 1,
        ("other", "other", "404"): 1,
        ("other", "other", "405"): 1,
    }


def test_errors_are_counted_and_clients_that_went_away_are_not(site: Site) -> None:
    async def go_away() -> None:
        answer = site.app.answer(Request("GET", "/hand"))
        assert isinstance(answer, Later)
        answer.cancel()
        await asyncio.sleep(0)

    site.ask("GET", "/later?refused=1")
    site.run(go_away())
    assert counted(site) == {("GET", "/later", "409"): 1}


def test_how_long_a_request_took_is_observed(site: Site) -> None:
    site.ask("GET", "/slow")
    times = {
        sample["labels"]["route"]: sample["sum"]
        for sample in engine_of(site.engine).metrics.collect()
        if sample["name"] == "quiver_http_request_seconds"
    }
    assert times == {"/slow": 2.0}
