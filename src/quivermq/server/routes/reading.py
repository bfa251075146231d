"""Reading the log, which touches nothing: messages in JSON, or the frames as they are stored."""

import asyncio

import msgspec

from quivermq.engine import Engine
from quivermq.engine.lane_view import LaneView
from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.frame import OFFSET_MAX, Wanted
from quivermq.model.checks import moment_us
from quivermq.model.json import FRAME, stored_message_json
from quivermq.model.names import check_group_name
from quivermq.server.access import ApiKey
from quivermq.server.answers import (
    FRAME_COPIES,
    JSON_COPIES,
    making_bytes,
    read_frames,
    read_messages,
    within,
)
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, encode_json, json_response
from quivermq.server.polling import Polls
from quivermq.server.routing import (
    AFTER,
    PRIORITY,
    Calls,
    Parameter,
    Route,
    bytes_given,
    bytes_parameters,
    choice_of,
    number_given,
    number_of,
    number_parameter,
    offset_of,
    partition_of,
    place_after,
)
from quivermq.server.shapes import MOMENT_MAX, Count, MessageOut

_EARLIEST, _LATEST = "earliest", "latest"
_DAY_MS = 24 * 3600 * 1000

_OFFSET = Parameter(
    "offset",
    {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
            {"enum": [_EARLIEST, _LATEST]},
        ],
        "default": _EARLIEST,
    },
    "Where to begin.",
)
_TIMESTAMP = number_parameter(
    "timestamp",
    "In place of `offset`: begin with the first message that is not older, in unix microseconds.",
    -MOMENT_MAX,
    MOMENT_MAX,
)
_LIMIT = number_parameter("limit", "How many messages; fewer when they are large.", 1, 100_000, default=100)
_WAIT = number_parameter(
    "wait_ms", "How long to wait for more at the end of the log.", 0, _DAY_MS, default=0
)
_KEY = bytes_parameters("key", "Only messages with this key.")
_TEXT = bytes_parameters(
    "text", "Only messages that have this in their value, their key or a header, as it is written."
)
_PEEK_LIMIT = number_parameter("limit", "How many at most; fewer when they are large.", 1, 1000, default=1)


class MessagePage(msgspec.Struct):
    """A part of a log. `next` is the offset to go on with; the log holds `start` up to before `end`."""

    messages: list[MessageOut]
    next: Count
    start: Count
    end: Count


class MessageList(msgspec.Struct):
    """Messages."""

    messages: list[MessageOut]


ROUTES: list[Route] = []
_topic = Calls(ROUTES, "/v1/topics/{topic}", "messages")


@_topic(
    "GET",
    "/partitions/{partition}/messages",
    "Read a part of the log",
    (MessagePage, FRAME),
    query=(_OFFSET, _TIMESTAMP, _LIMIT, PRIORITY, _WAIT, *_KEY, *_TEXT),
    errors=(404, 416),
)
async def read_log(broker: Broker, request: Request) -> Response:
    """A part of the log; at its end, what comes next, if that is soon enough."""
    topic, engine = request.params["topic"], broker.engine
    number = partition_of(request, engine.topic(topic).partitions)
    lane = engine.inspection.lane(topic, number, choice_of(request, PRIORITY))
    limit, wait_ms = number_of(request, _LIMIT), number_of(request, _WAIT)
    wanted = _wanted(request)
    offset = await _offset(broker, request, lane)
    if wait_ms and offset == lane.end:
        seconds = min(wait_ms, broker.settings.wait_ms_max) / 1000
        await _wait_for_more(broker, lane, offset, seconds, request.key)
    if request.accepts(FRAME):
        if wanted:
            raise InvalidRequest("frames come whole: a key or a text is for messages in JSON")
        size = making_bytes(engine, topic, limit, FRAME_COPIES)
        return await broker.make(request, size, lambda: _frames(lane, offset, limit))
    size = making_bytes(engine, topic, limit, JSON_COPIES)
    return await broker.make(request, size, lambda: _page(engine, lane, offset, limit, wanted))


@_topic(
    "GET",
    "/groups/{group}/peek",
    "Show what nobody of a group has had yet",
    MessageList,
    query=(_PEEK_LIMIT, AFTER),
)
async def peek(broker: Broker, request: Request) -> bytes:
    """What nobody of a group has had yet."""
    topic, group = request.params["topic"], request.params["group"]
    check_group_name(group)
    limit, after = number_of(request, _PEEK_LIMIT), place_after(request)

    def look() -> bytes:
        messages = broker.engine.inspection.unseen(topic, group, after)
        found = within(messages, limit, lambda message: len(message.value))
        shown = [stored_message_json(m, m.topic, m.partition, m.priority) for m in found]
        return encode_json({"messages": shown})

    return await broker.make(request, making_bytes(broker.engine, topic, limit, JSON_COPIES), look)


def _page(engine: Engine, lane: LaneView, offset: int, limit: int, wanted: Wanted) -> Response:
    messages, following = read_messages(lane, offset, limit, engine.clock, wanted)
    return json_response(
        {"messages": messages, "next": following, "start": lane.known_start(), "end": lane.end}
    )


def _frames(lane: LaneView, offset: int, limit: int) -> Response:
    buffers, following = read_frames(lane, offset, limit)
    offsets = {"Quiver-Next": following, "Quiver-Start": lane.known_start(), "Quiver-End": lane.end}
    headers = {name: str(each) for name, each in offsets.items()}
    return Response(200, b"".join(buffers), FRAME, headers)


def _wanted(request: Request) -> Wanted:
    """What is looked for. Raises InvalidRequest."""
    key, text = bytes_given(request, "key"), bytes_given(request, "text")
    if text == b"":
        raise InvalidRequest("text is what to look for: leave it out to see every message")
    return Wanted(key, text)


async def _offset(broker: Broker, request: Request, lane: LaneView) -> int:
    """Where to begin. Raises InvalidRequest."""
    timestamp, text = number_given(request, _TIMESTAMP), request.query.get("offset")
    if timestamp is not None:
        if text is not None:
            raise InvalidRequest("there is an offset or a timestamp to begin with, not both")
        return await broker.run(lane.find_time, moment_us("timestamp", timestamp))
    if text is None or text == _EARLIEST:
        return await broker.run(lane.find_first) if lane.has_archive else lane.start
    if text == _LATEST:
        return lane.end
    if (offset := offset_of(text)) is None:
        raise InvalidRequest(f'offset is a number, "{_EARLIEST}" or "{_LATEST}", not {text[:80]!r}')
    return offset


async def _wait_for_more(
    broker: Broker, lane: LaneView, begun_at: int, seconds: float, key: ApiKey | None
) -> None:
    """Return once the lane no longer ends at an offset, or when the time is over.

    Raises TopicNotFound when the topic was deleted meanwhile.
    """
    loop, polls = asyncio.get_running_loop(), broker.part(Polls)
    end = loop.time() + seconds
    while lane.end == begun_at and not lane.is_gone and not broker.is_draining and loop.time() < end:
        with polls.waiting(lane.watch) as wakeup:
            # Somebody may have put between the last look and the wait.
            if lane.end == begun_at:
                await polls.woken(wakeup, end, key)
    broker.engine.check_open()
    if lane.is_gone:
        raise TopicNotFound(f"the topic {lane.topic} was deleted")
