"""Reading the log over HTTP: in JSON, as frames, and along its end."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.queues import SECOND, START_US
from support.site import Site
from unit.server.routes.conversation import get, refused, status_and_code, told

import quivermq
from quivermq.engine import engine_of
from quivermq.frame import Frame, encode
from quivermq.model.json import FRAME
from quivermq.server import answers
from quivermq.server import answers as log_pages
from quivermq.server.http import Response
from quivermq.server.routes import reading

LOG = "/v1/topics/orders/partitions/0/messages"
AS_FRAMES = {"Accept": FRAME}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(reading.ROUTES) as site:
        site.engine.create_topic("orders", partitions=2)
        yield site


def put(site: Site, *values: bytes, **rest: Any) -> None:
    for value in values:
        site.engine.queue("orders").put(value, partition=0, **rest)


def values(answer: Any) -> list[str]:
    return [message["value"] for message in answer["messages"]]


def frames_in(response: Response) -> list[Frame]:
    assert response.status == 200, response.body
    assert response.content_type == FRAME
    frames, position = [], 0
    while position < len(response.body):
        frames.append(Frame.parse(response.body, position))
        position += frames[-1].header.frame_bytes
    return frames


def records_in(response: Response) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value) for frame in frames_in(response) for record in frame.records()]


def places(response: Response) -> list[int]:
    assert response.headers is not None
    return [int(response.headers[name]) for name in ("Quiver-Next", "Quiver-Start", "Quiver-End")]


def test_messages_come_with_their_places(site: Site) -> None:
    put(site, b"tea", key=b"k", headers={"a": b"1", "b": b"\xff"}, ttl=60, dedup_id="x")
    put(site, b"\xff", key=b"\xfe")
    page = get(site, LOG)
    place = {"topic": "orders", "partition": 0, "priority": "normal", "timestamp": START_US}
    assert page == {
        "messages": [
            {
                **place,
                "offset": 0,
                "value": "tea",
                "key": "k",
                "headers": {"a": "1", "b": {"base64": "/w=="}},
                "expires_at": START_US + 60 * SECOND,
                "dedup_id": "x",
            },
            {**place, "offset": 1, "value_base64": "/w==", "key_base64": "/g==", "headers": {}},
        ],
        "next": 2,
        "start": 0,
        "end": 2,
    }


def test_a_reader_goes_on_where_it_stopped(site: Site) -> None:
    site.engine.queue("orders").put_many([b"0", b"1"])
    site.engine.queue("orders").read()
    put(site, *(str(number).encode() for number in range(2, 9)))
    first = get(site, f"{LOG}?limit=3")
    assert len(first["messages"]) == 3
    rest = get(site, f"{LOG}?offset={first['next']}")
    offsets = [message["offset"] for message in first["messages"] + rest["messages"]]
    assert offsets == list(range(rest["end"]))
    assert rest["next"] == rest["end"]


def test_a_reader_begins_inside_of_a_frame(site: Site) -> None:
    site.engine.create_topic("events")
    site.engine.queue("events").put_many([b"0", b"1", b"2", b"3"])
    log = "/v1/topics/events/partitions/0/messages"
    assert values(get(site, f"{log}?offset=2")) == ["2", "3"]
    assert values(get(site, f"{log}?offset=1&limit=2")) == ["1", "2"]
    assert get(site, f"{log}?offset=4")["messages"] == []


def test_a_reader_begins_at_a_word_or_a_moment(site: Site) -> None:
    put(site, b"old")
    site.clock.advance(10)
    put(site, b"new")
    assert values(get(site, f"{LOG}?offset=earliest")) == ["old", "new"]
    assert get(site, f"{LOG}?offset=latest") == {"messages": [], "next": 2, "start": 0, "end": 2}
    assert values(get(site, f"{LOG}?timestamp={START_US + 1}")) == ["new"]


def test_each_priority_has_its_own_log(site: Site) -> None:
    put(site, b"urgent", priority="high")
    assert values(get(site, f"{LOG}?priority=high")) == ["urgent"]
    assert get(site, LOG) == {"messages": [], "next": 0, "start": 0, "end": 0}
    assert refused(site, "GET", f"{LOG}?offset=1")[:2] == (416, "offset_out_of_range")


def test_an_answer_of_large_messages_is_cut(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "ANSWER_BYTES", 1000)
    monkeypatch.setattr(answers, "ANSWER_BYTES", 1000)
    put(site, b"x" * 900, b"y" * 900, b"z" * 900)
    assert (len(get(site, LOG)["messages"]), get(site, LOG)["next"]) == (1, 1)
    assert records_in(site.ask("GET", LOG, headers=AS_FRAMES)) == [(0, b"x" * 900), (1, b"y" * 900)]
    peeked = get(site, "/v1/topics/orders/groups/billing/peek?limit=10")
    assert len(peeked["messages"]) == 1


def test_an_offset_that_is_gone_is_out_of_range(site: Site) -> None:
    site.engine.alter_topic("orders", segment_messages=1, segments_max=1)
    put(site, b"0", b"1", b"2")
    site.engine.compact()
    status, code, message = refused(site, "GET", f"{LOG}?offset=0")
    assert (status, code) == (416, "offset_out_of_range")
    assert "[2, 3)" in message
    assert site.ask("GET", f"{LOG}?offset=0", headers=AS_FRAMES).status == 416
    assert values(get(site, LOG)) == ["2"]


def test_what_was_taken_out_is_not_shown(site: Site) -> None:
    site.engine.create_topic("events")
    site.engine.queue("events").put_many([b"0", b"1", b"2", b"3", b"4"])
    site.engine.queue("events").put(b"5")
    partition = engine_of(site.engine).catalog.get("events").topic.partitions[0]
    partition.removals.remove(1, [0, 2])
    log = "/v1/topics/events/partitions/0/messages"
    assert values(get(site, log)) == ["1", "3", "4", "5"]
    response = site.ask("GET", log, headers=AS_FRAMES)
    assert records_in(response) == [(1, b"1"), (3, b"3"), (4, b"4"), (5, b"5")]
    partition.removals.remove(1, [1, 3, 4])
    response = site.ask("GET", log, headers=AS_FRAMES)
    assert records_in(response) == [(5, b"5")]
    assert get(site, f"{log}?limit=1")["next"] == 6


def test_frames_are_those_of_the_log(site: Site) -> None:
    site.engine.create_topic("events", codec="zstd")
    site.engine.queue("events").put_many([b"some text " * 20] * 50)
    site.engine.queue("events").put(b"last", key=b"k", headers={"a": b"1"})
    response = site.ask("GET", "/v1/topics/events/partitions/0/messages", headers=AS_FRAMES)
    log = engine_of(site.engine).catalog.get("events").topic.partitions[0].log(1)
    assert response.body == b"".join(map(bytes, log.frames()))
    assert places(response) == [51, 0, 51]


def test_frames_stop_at_the_limit_and_go_on_behind_it(site: Site) -> None:
    put(site, b"0", b"1", b"2")
    response = site.ask("GET", f"{LOG}?limit=2", headers=AS_FRAMES)
    assert records_in(response) == [(0, b"0"), (1, b"1")]
    assert places(response) == [2, 0, 3]
    response = site.ask("GET", f"{LOG}?offset=3", headers=AS_FRAMES)
    assert (response.body, places(response)) == (b"", [3, 0, 3])


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1",
        "offset=x",
        "offset=1_0",
        "offset=99999999999999999999",
        "offset=0&timestamp=1700000000000000",
        "timestamp=1700000000",
        "timestamp=x",
        "limit=0",
        "limit=1000000",
        "wait_ms=-1",
        "priority=urgent",
        "limit=1&limit=2",
        "ofset=1",
    ],
)
def test_wrong_parameters_are_refused(site: Site, query: str) -> None:
    assert refused(site, "GET", f"{LOG}?{query}")[0] == 400


def test_partitions_and_topics_that_are_not_there(site: Site) -> None:
    for partition in ("2", "-1", "x", "0x0", "99999999999999999999"):
        path = f"/v1/topics/orders/partitions/{partition}/messages"
        assert status_and_code(site, "GET", path) == (404, "not_found")
    assert status_and_code(site, "GET", LOG.replace("orders", "none")) == (404, "topic_not_found")


def test_a_group_peeks_at_what_it_has_not_had(site: Site) -> None:
    put(site, b"0", b"1", b"2")
    put(site, b"gone", ttl=1)
    site.engine.queue("orders", "billing").get()
    site.clock.advance(2)
    peek = "/v1/topics/orders/groups/billing/peek"
    assert values(get(site, peek)) == ["1"]
    assert values(get(site, f"{peek}?limit=10")) == ["1", "2"]
    assert values(get(site, "/v1/topics/orders/groups/new/peek?limit=10")) == ["0", "1", "2"]
    assert site.engine.groups("orders") == ["billing"]
    assert status_and_code(site, "GET", "/v1/topics/none/groups/x/peek") == (404, "topic_not_found")
    assert status_and_code(site, "GET", "/v1/topics/orders/groups/*/peek") == (400, "invalid_name")


def test_a_peek_goes_on_after_a_message(site: Site) -> None:
    put(site, b"0", b"1", b"2")
    put(site, b"high", priority="high")
    peek = "/v1/topics/orders/groups/billing/peek?limit=2"
    assert values(get(site, peek)) == ["high", "0"]
    assert values(get(site, f"{peek}&after=0-0-0")) == ["0", "1"]
    assert values(get(site, f"{peek}&after=0-1-0")) == ["1", "2"]
    assert values(get(site, f"{peek}&after=0-1-2")) == []
    assert status_and_code(site, "GET", f"{peek}&after=0-1") == (400, "invalid_request")


async def waiting(site: Site, path: str, **headers: str) -> "asyncio.Task[Response]":
    """A reader that waits."""
    waiters = engine_of(site.engine).catalog.get("orders").readers
    before = len(waiters.waiting)
    task = asyncio.ensure_future(site.answer("GET", path, headers=headers))
    while len(waiters.waiting) == before:
        await asyncio.sleep(0)
    return task


def test_readers_at_the_end_get_what_comes_next(site: Site) -> None:
    put(site, b"old")

    async def read() -> list[Response]:
        path = f"{LOG}?offset=latest&wait_ms=60000"
        readers = [await waiting(site, path), await waiting(site, path, **AS_FRAMES)]
        await site.broker.run(put, site, b"new")
        return [await reader for reader in readers]

    page, frames = site.run(read())
    assert values(told(page)) == ["new"]
    assert records_in(frames) == [(1, b"new")]


def test_what_comes_to_another_lane_wakes_nobody_for_good(site: Site) -> None:
    async def read() -> Response:
        reader = await waiting(site, f"{LOG}?wait_ms=60000&priority=high")
        await site.broker.run(put, site, b"normal")
        again = engine_of(site.engine).catalog.get("orders").readers.waiting
        while not again:
            await asyncio.sleep(0)
        await site.broker.run(put, site, b"high", priority="high")
        return await reader

    assert values(told(site.run(read()))) == ["high"]


def test_nobody_waits_longer_than_asked_or_allowed(site: Site) -> None:
    assert get(site, f"{LOG}?wait_ms=1")["messages"] == []
    assert not engine_of(site.engine).catalog.get("orders").readers.waiting


def test_the_broker_has_the_last_word_on_waiting() -> None:
    with Site(reading.ROUTES, wait_ms_max=1) as site:
        site.engine.create_topic("orders")
        assert get(site, f"{LOG}?wait_ms=86400000")["messages"] == []


def test_a_reader_that_goes_away_leaves_nothing_at_the_bell(site: Site) -> None:
    async def read() -> None:
        reader = await waiting(site, f"{LOG}?wait_ms=60000")
        reader.cancel()
        await asyncio.wait([reader])

    site.run(read())
    assert not engine_of(site.engine).catalog.get("orders").readers.waiting


def test_readers_are_let_go_when_the_broker_drains_and_when_the_topic_goes(site: Site) -> None:
    async def read() -> tuple[Response, Response]:
        first = await waiting(site, f"{LOG}?wait_ms=60000")
        site.broker.drain()
        drained = await first
        site.broker.is_draining = False
        second = await waiting(site, f"{LOG}?wait_ms=60000")
        await site.broker.run(site.engine.delete_topic, "orders")
        return drained, await second

    drained, gone = site.run(read())
    assert told(drained)["messages"] == []
    assert gone.status == 404


def test_a_frame_without_what_was_taken_out_is_still_of_its_producer(site: Site) -> None:
    log = "/v1/topics/orders.dlq/partitions/0/messages"
    letters = site.engine.queue("orders.dlq")
    sender = quivermq.Producer(7, 2, 2**32 - 1)
    made = encode([b"a", b"b", b"c", b"d"], timestamp=START_US, producer=sender)
    letters.put_frame(bytes(made), partition=0)
    site.engine.queue("orders").discard(lambda letter: letter.value == b"b")
    frames = frames_in(site.ask("GET", log, headers=AS_FRAMES))
    headers = [frame.header for frame in frames]
    assert [(h.base_offset, h.message_count) for h in headers] == [(0, 1), (2, 2)]
    assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [
        (7, 2, 2**32 - 1),
        (7, 2, 1),
    ]


def test_messages_are_found_by_key_and_text(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    put(site, b"tea", b"coffee", key=b"drinks")
    put(site, b"bread", key=b"food")
    put(site, b"\xfftea", key=b"\xfe")
    assert values(get(site, f"{LOG}?key=drinks")) == ["tea", "coffee"]
    assert values(get(site, f"{LOG}?key=drinks&text=off")) == ["coffee"]
    assert [message["offset"] for message in get(site, f"{LOG}?text=tea")["messages"]] == [0, 3]
    assert get(site, f"{LOG}?key_base64=/g==")["messages"][0]["offset"] == 3
    assert get(site, f"{LOG}?text_base64=/3Rl")["messages"][0]["offset"] == 3
    assert get(site, f"{LOG}?text=nothing") == {"messages": [], "next": 4, "start": 0, "end": 4}
    monkeypatch.setattr(answers, "_SEARCHED_BYTES", 1)
    assert get(site, f"{LOG}?text=nothing")["next"] == 1
    assert get(site, f"{LOG}?text=bread&offset=2")["next"] == 3


@pytest.mark.parametrize("query", ["text=", "key=a&key_base64=YQ==", "key_base64=%25", "text_base64=a"])
def test_a_search_that_makes_no_sense_is_refused(site: Site, query: str) -> None:
    assert status_and_code(site, "GET", f"{LOG}?{query}") == (400, "invalid_request")


def test_frames_are_not_searched(site: Site) -> None:
    put(site, b"tea")
    response = site.ask("GET", f"{LOG}?text=tea", headers=AS_FRAMES)
    assert response.status == 400
