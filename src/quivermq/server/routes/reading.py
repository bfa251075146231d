"""Reading the log, which touches nothing: messages in JSON, or the frames as they are stored."""

import asyncio
import re
from collections.abc import Iterable

import msgspec

from quivermq.engine.hosted import Hosted
from quivermq.engine.inspection import LaneView, lane_of
from quivermq.engine.looking import unseen
from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.frame import OFFSET_MAX, Wanted
from quivermq.model.checks import moment_us
from quivermq.model.lanes import LANE_NUMBERS
from quivermq.model.messages import StoredMessage
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
from quivermq.server.http import FRAME, Request, Response, encode_json, json_response
from quivermq.server.messages_json import MessageOut, record_to_json
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
    partition_of,
    place_after,
)
from quivermq.server.shapes import Count

_EARLIEST, _LATEST = "earliest", "latest"
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_MOMENT_MAX = 2**62 - 1
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
    -_MOMENT_MAX,
    _MOMENT_MAX,
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
    hosted = broker.engine.hosted(request.params["topic"])
    number = partition_of(request, hosted.settings.partitions)
    lane = lane_of(broker.engine, hosted, number, LANE_NUMBERS[choice_of(request, PRIORITY)])
    limit, wait_ms = number_of(request, _LIMIT), number_of(request, _WAIT)
    wanted = _wanted(request)
    offset = await _offset(broker, request, lane)
    if wait_ms and offset == lane.end:
        seconds = min(wait_ms, broker.settings.wait_ms_max) / 1000
        await _wait_for_more(broker, hosted, lane, offset, seconds, request.key)
    if request.accepts(FRAME):
        if wanted:
            raise InvalidRequest("frames come whole: a key or a text is for messages in JSON")
        size = making_bytes(hosted, limit, FRAME_COPIES)
        return await broker.make(request, size, lambda: _frames(lane, offset, limit))
    size = making_bytes(hosted, limit, JSON_COPIES)
    return await broker.make(request, size, lambda: _page(lane, offset, limit, wanted))


@_topic(
    "GET",
    "/groups/{group}/peek",
    "Show what nobody of a group has had yet",
    MessageList,
    query=(_PEEK_LIMIT, AFTER),
)
async def peek(broker: Broker, request: Request) -> bytes:
    """What nobody of a group has had yet."""
    group = request.params["group"]
    check_group_name(group)
    hosted = broker.engine.hosted(request.params["topic"])
    limit, after = number_of(request, _PEEK_LIMIT), place_after(request)

    def look() -> bytes:
        now_us = broker.engine.clock.now_us()
        hosted.release(now_us)
        messages: Iterable[StoredMessage] = unseen(hosted, group, now_us)
        if after is not None:
            messages = (m for m in messages if (m.partition, LANE_NUMBERS[m.priority], m.offset) > after)
        found = within(messages, limit, lambda message: len(message.value))
        return encode_json(
            MessageList([record_to_json(m, m.topic, m.partition, m.priority) for m in found])
        )

    return await broker.make(request, making_bytes(hosted, limit, JSON_COPIES), look)


def _page(lane: LaneView, offset: int, limit: int, wanted: Wanted) -> Response:
    messages, following = read_messages(lane, offset, limit, wanted)
    return json_response(MessagePage(messages, following, lane.told_start(), lane.end))


def _frames(lane: LaneView, offset: int, limit: int) -> Response:
    buffers, following = read_frames(lane, offset, limit)
    offsets = {"Quiver-Next": following, "Quiver-Start": lane.told_start(), "Quiver-End": lane.end}
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
    if not _DIGITS.fullmatch(text) or int(text) > OFFSET_MAX:
        raise InvalidRequest(f'offset is a number, "{_EARLIEST}" or "{_LATEST}", not {text[:80]!r}')
    return int(text)


async def _wait_for_more(
    broker: Broker, hosted: Hosted, lane: LaneView, begun_at: int, seconds: float, key: ApiKey | None
) -> None:
    """Return once the lane no longer ends at an offset, or when the time is over.

    Raises TopicNotFound when the topic was deleted meanwhile.
    """
    loop, polls = asyncio.get_running_loop(), broker.part(Polls)
    end = loop.time() + seconds
    while lane.end == begun_at and not hosted.is_gone and not broker.is_draining and loop.time() < end:
        with polls.waiting_at(hosted.readers) as ring:
            # Somebody may have put between the last look and the wait.
            if lane.end == begun_at:
                await polls.rung(ring, end, key)
    broker.engine.check_open()
    if hosted.is_gone:
        raise TopicNotFound(f"the topic {hosted.name} was deleted")
