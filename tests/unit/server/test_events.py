"""Server-sent events: figures once a second, changes of topics, and listeners that do not keep up."""

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from support.site import Site
from unit.server.routes.conversation import status_and_code

from quivermq.engine import engine_of
from quivermq.engine.activity import Problem
from quivermq.engine.statistics import Survey
from quivermq.server import events
from quivermq.server.access import ApiKey
from quivermq.server.events import Events
from quivermq.server.figures import look, stats_json
from quivermq.server.http import Request, Response
from quivermq.server.routes import operations


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # A second passes as soon as nobody has anything else to do.
    monkeypatch.setattr(events, "_INTERVAL_S", 0)
    with Site(operations.ROUTES) as site:
        yield site
        site.run(quiet(site))


async def quiet(site: Site) -> None:
    """Let nobody listen any more, and the last look at the queue end."""
    site.broker.drain()
    while site.broker.part(Events)._looking is not None:
        await asyncio.sleep(0)


class Listener:
    """A client whose connection is a list."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_paused = False
        self.is_closed = False
        self._calls: list[Callable[[], None]] = []

    def write(self, data: bytes) -> bool:
        if self.is_paused or self.is_closed:
            return False
        self.sent.append(data)
        return True

    def on_close(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def close(self) -> None:
        self.is_closed = True
        for call in self._calls:
            call()

    def events(self, name: str) -> list[Any]:
        found = (data.decode().split("\n") for data in self.sent if data.startswith(b"event:"))
        return [
            json.loads(lines[1].removeprefix("data: ")) for lines in found if lines[0] == f"event: {name}"
        ]

    async def hears(self, name: str, count: int = 1) -> list[Any]:
        """Wait for so many events of a name."""
        while len(self.events(name)) < count:
            await asyncio.sleep(0)
        return self.events(name)


async def joined(site: Site, query: str = "", key: ApiKey | None = None) -> Listener:
    """Somebody who has just begun to listen."""
    request = Request("GET", "/v1/events", query)
    request.key = key
    response = operations.listen(site.broker, request)
    assert isinstance(response, Response)
    assert response.content_type == "text/event-stream"
    assert response.stream is not None
    listener = Listener()
    response.stream(listener)
    return listener


def test_who_listens_to_much_does_not_keep_the_event_loop_from_others(site: Site) -> None:
    site.engine.queue("orders").put(b"x")
    asked_in: set[int] = set()

    def wanted(_: str) -> bool:
        asked_in.add(threading.get_ident())
        return True

    async def listen() -> None:
        listener = Listener()
        site.broker.part(Events).listen(listener, wanted)
        await listener.hears("stats")

    site.run(listen())
    assert asked_in
    assert threading.get_ident() not in asked_in


def test_those_who_ask_for_the_same_share_one_event(site: Site) -> None:
    async def listen() -> tuple[Listener, Listener]:
        one, other = await joined(site, "topics=a,b.*"), await joined(site, "topics=b.*,a")
        await one.hears("stats")
        await other.hears("stats")
        return one, other

    one, other = site.run(listen())
    assert one.sent[1] is other.sent[1]


def test_figures_come_at_once_and_again_and_again(site: Site) -> None:
    site.engine.queue("orders").put(b"x")

    async def listen() -> list[Any]:
        listener = await joined(site)
        await listener.hears("stats")
        site.engine.queue("orders").put(b"y")
        while listener.events("stats")[-1]["messages"] < 2:
            await asyncio.sleep(0)
        return listener.events("stats")

    first, *_, last = site.run(listen())
    assert first == {"time": engine_of(site.engine).clock.now_us(), **first}
    assert (first["messages"], last["messages"]) == (1, 2)
    assert last["topics"]["orders"] == {
        **site.engine.stats().topics["orders"].as_dict(),
        "published": 2,
        "refused": 0,
        "dropped": 0,
    }


def test_an_event_has_the_form_that_browsers_read(site: Site) -> None:
    async def listen() -> list[bytes]:
        listener = await joined(site)
        await listener.hears("stats")
        return listener.sent

    hello, *rest = site.run(listen())
    assert hello == b"retry: 2000\n\n"
    event = next(data for data in rest if data != b": alive\n\n")
    assert event.startswith(b'event: stats\ndata: {"time":')
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 3


def test_changes_of_topics_are_told_when_they_happen(site: Site) -> None:
    async def listen() -> list[Any]:
        listener = await joined(site)
        await site.broker.run(site.engine.create_topic, "orders")
        await site.broker.run(site.engine.alter_topic, "orders", lease_ms=5)
        await site.broker.run(site.engine.queue("events").put, b"x")
        await site.broker.run(site.engine.delete_topic, "orders")
        return await listener.hears("topic", 4)

    assert site.run(listen()) == [
        {"topic": "orders", "change": "created"},
        {"topic": "orders", "change": "altered"},
        {"topic": "events", "change": "created"},
        {"topic": "orders", "change": "deleted"},
    ]


def test_a_listener_hears_of_the_topics_it_asked_for_and_may_know_of(site: Site) -> None:
    for name in ("orders", "events.eu", "events.us"):
        site.engine.create_topic(name)

    async def listen() -> list[Any]:
        all_of_it = await joined(site)
        asked = await joined(site, "topics=orders,events.*")
        limited = await joined(site, "topics=events.*", ApiKey("k", "read", ("events.eu", "orders")))
        listeners = [all_of_it, asked, limited]
        await site.broker.run(site.engine.create_topic, "other")
        await all_of_it.hears("topic")
        for listener in listeners:
            await listener.hears("stats", 2)
        return [(sorted(at.events("stats")[0]["topics"]), at.events("topic")) for at in listeners]

    of_all, of_asked, of_limited = site.run(listen())
    assert of_all[1] == [{"topic": "other", "change": "created"}]
    assert of_asked == (["events.eu", "events.us", "orders"], [])
    assert of_limited == (["events.eu"], [])


def test_all_listeners_share_one_look_at_the_queue(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Survey] = []
    survey = engine_of(site.engine).survey

    def look(problems: Sequence[Problem] = ()) -> Survey:
        looks.append(survey(problems))
        return looks[-1]

    monkeypatch.setattr(engine_of(site.engine), "survey", look)

    async def listen() -> None:
        listeners = [await joined(site) for _ in range(50)]
        for listener in listeners:
            await listener.hears("stats")
        for listener in listeners:
            listener.close()

    site.run(listen())
    assert 0 < len(looks) < 10


def test_nobody_looks_while_nobody_listens(site: Site) -> None:
    async def listen() -> bool:
        listener = await joined(site)
        await listener.hears("stats")
        listener.close()
        return site.broker.part(Events)._timer is None

    assert site.run(listen())


def test_a_listener_that_does_not_keep_up_is_dropped_and_others_stay(site: Site) -> None:
    async def listen() -> tuple[bool, bool]:
        slow, quick = await joined(site), await joined(site)
        slow.is_paused = True
        while not slow.is_closed:
            await asyncio.sleep(0)
        await quick.hears("stats", 2)
        return slow.is_closed, quick.is_closed

    assert site.run(listen()) == (True, False)


def test_listeners_are_told_that_the_broker_is_alive_while_it_cannot_count(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listen() -> bytes:
        listener = await joined(site)
        await listener.hears("stats")
        await site.broker.run(site.engine.close)
        while listener.sent[-1] != b": alive\n\n":
            await asyncio.sleep(0)
        return listener.sent[-1]

    assert site.run(listen())


def test_listeners_are_let_go_when_the_broker_drains(site: Site) -> None:
    async def listen() -> tuple[Listener, Listener]:
        listener = await joined(site)
        site.broker.drain()
        return listener, await joined(site)

    before, after = site.run(listen())
    assert before.is_closed
    assert after.is_closed
    site.engine.create_topic("orders")
    assert before.events("topic") == []


def test_a_topic_may_change_when_the_loop_has_ended(site: Site) -> None:
    async def listen() -> None:
        (await joined(site)).close()

    with asyncio.Runner() as runner:
        runner.run(listen())
    site.engine.create_topic("orders")
    assert site.engine.topics() == ["orders"]


@pytest.mark.parametrize("topics", ["", "a,,b", "a/b", "a.>.b", ",".join(["a"] * 101)])
def test_wrong_topics_are_refused(site: Site, topics: str) -> None:
    assert status_and_code(site, "GET", f"/v1/events?topics={topics}")[0] == 400


def merged(known: Any, patch: Any) -> Any:
    """A JSON merge patch, as RFC 7396 has it."""
    if not isinstance(patch, dict):
        return patch
    found = dict(known) if isinstance(known, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def test_who_wants_changes_is_told_everything_once_and_then_what_is_new(site: Site) -> None:
    for name in ("orders", "quiet", "gone"):
        site.engine.queue(name, "billing").put_many([b"x", b"y"])
        site.engine.queue(name, "billing").get()

    async def listen() -> tuple[Any, list[Any], Any]:
        listener = await joined(site, "changes=true")
        await listener.hears("stats")
        await site.broker.run(site.engine.delete_topic, "gone")
        await site.broker.run(site.engine.delete_group, "quiet", "billing")
        await site.broker.run(site.engine.queue("orders", "audit").put, b"z")
        await site.broker.run(site.engine.queue("orders", "audit").get)
        await listener.hears("changes", len(listener.events("changes")) + 2)
        # A look may have been under way meanwhile, and what it did not see comes with the next ones.
        while listener.events("changes")[-1]["topics"]:
            await listener.hears("changes", len(listener.events("changes")) + 1)
        listener.close()
        fulls = listener.events("stats")
        assert ["gone" in full["topics"] for full in fulls] == [True, False]
        late = [each for each in listener.events("changes") if each["since"] >= fulls[-1]["version"]]
        return fulls[-1], late, stats_json(look(site.broker), lambda _: True)

    full, changes, now = site.run(listen())
    assert [change["since"] for change in changes] == [*range(full["version"], changes[-1]["version"])]
    # Nothing of what stayed as it was is sent again.
    assert changes[-1]["topics"] == {}
    assert not any("alerts" in change for change in changes)
    known = full
    for change in changes:
        known = merged(known, change)
    assert {name: known[name] for name in now} == now
    assert sum(len(change["topics"]) for change in changes) <= 4


def test_who_comes_later_is_told_everything_first(site: Site) -> None:
    async def listen() -> tuple[Any, Any]:
        first = await joined(site, "changes=true")
        await first.hears("changes", 3)
        second = await joined(site, "changes=true")
        [full] = await second.hears("stats")
        change = (await second.hears("changes"))[0]
        return full, change

    full, change = site.run(listen())
    assert full["version"] >= 4
    assert change["since"] == full["version"]


def test_an_age_that_grows_is_no_change(site: Site) -> None:
    site.engine.queue("orders", "billing").put(b"x")
    site.engine.queue("orders", "billing").get()

    async def listen() -> list[Any]:
        listener = await joined(site, "changes=true")
        [full] = await listener.hears("stats")
        site.clock.advance(1)
        changes = await listener.hears("changes", 2)
        at = full["topics"]["orders"]["groups"]["billing"]["oldest_unacked_at"]
        assert at in (0, engine_of(site.engine).clock.now_us() - 1_000_000)
        return [change["topics"] for change in changes[-1:]]

    assert site.run(listen()) == [{}]


def test_a_client_that_takes_gzip_gets_it_and_others_do_not(site: Site) -> None:
    site.engine.queue("orders").put(b"x")

    async def listen() -> tuple[Listener, Listener, Listener]:
        listeners = [Listener(), Listener(), Listener()]
        for listener, accepted in zip(listeners, ("gzip, br", "gzip", "identity"), strict=True):
            request = Request("GET", "/v1/events", "", {"accept-encoding": accepted})
            response = operations.listen(site.broker, request)
            assert (response.headers or {}).get("Content-Encoding") == (
                "gzip" if "gzip" in accepted else None
            )
            assert response.stream is not None
            response.stream(listener)
        plain = listeners[-1]
        await plain.hears("stats", 2)
        site.broker.drain()
        return listeners[0], listeners[1], plain

    one, other, plain = site.run(listen())
    assert gzip.decompress(b"".join(one.sent)) == b"".join(plain.sent)
    # Made once for both.
    assert one.sent[1] is other.sent[1]
    assert max(map(len, one.sent)) < max(map(len, plain.sent))
