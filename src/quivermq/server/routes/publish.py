"""Publishing: JSON for people, raw bytes for anybody, frames for speed.

Single messages that arrive together become one frame, and share one sync. What arrives while the event loop
goes once round its sockets is stored in one go. Where that has to wait for the disk, a thread does it, and
what arrives meanwhile is the next batch: nobody waits for company.
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, cast, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.engine import CheckedMessage, EngineQueue, is_delayed
from quivermq.errors import InvalidRequest, Overloaded, QuiverError
from quivermq.frame import parse_header
from quivermq.log.entries import check_durability
from quivermq.model.json import FRAME, JSON, OCTETS
from quivermq.model.lanes import PRIORITIES, priority_of
from quivermq.model.messages import PRODUCER_ID_MAX, Message, Put
from quivermq.server.broker import Broker
from quivermq.server.http import Later, Request, Response, error_response, json_response
from quivermq.server.routing import NUMBER, Answer, Calls, Parameter, Route, check_query
from quivermq.server.shapes import Count, MessageIn, Offset, PriorityOut, exactly_one, message_from
from quivermq.settings import Durability

logger = logging.getLogger(__name__)

# So many topics keep their queue at hand; one more, and all are made anew when they are asked for.
_QUEUES_MAX = 10_000
# As large as a batch may get; the next one follows at once.
_BATCH_MESSAGES = 10_000
_BATCH_MESSAGES_MAX = 100_000

_HEADER = "quiver-header-"
_PRODUCER_ID = re.compile(r"[0-9]{1,20}", re.ASCII)
_KNOWN_SINCE = "Producers that were last heard of before that time may be forgotten; 0 when none is."

_PLAIN = b'{"topic":"%b","partition":%d,"priority":"%b","offset":%d,"duplicate":false,"scheduled_id":null}'


class PublishIn(MessageIn, forbid_unknown_fields=True):
    """One message, or `messages`."""

    schema_extra: ClassVar[dict[str, Any]] = {
        **MessageIn.schema_extra,
        **exactly_one("value", "value_base64", "messages"),
        "examples": [*MessageIn.schema_extra["examples"], {"messages": [{"value": "a"}, {"value": "b"}]}],
    }

    messages: Annotated[list[MessageIn], Meta(min_length=1, max_length=_BATCH_MESSAGES_MAX)] | UnsetType = (
        UNSET
    )


class PutOut(msgspec.Struct):
    """Where a message is. A delayed one has no offset yet, but an id by which it can be cancelled."""

    topic: str
    partition: int
    priority: str
    offset: int | None
    duplicate: bool
    scheduled_id: str | None
    count: int | UnsetType = UNSET
    """How many messages the frame had."""


class PutsOut(msgspec.Struct):
    """Where each message is, in the order they came."""

    results: list[PutOut]


class FirstFrameOut(msgspec.Struct):
    """Where the first frame lies that the producer ever sent to a lane."""

    partition: Count
    priority: PriorityOut
    offset: Offset


class ProducerOut(msgspec.Struct):
    """The epoch to send with from now on, and the lanes that have frames of earlier ones."""

    epoch: Annotated[int, Meta(ge=0, lt=2**16 - 1)]
    batches: list[FirstFrameOut]
    known_since_us: Annotated[int, Meta(ge=0, description=_KNOWN_SINCE)]


_decode = msgspec.json.Decoder(PublishIn).decode
_NOTHING_ELSE = MessageIn()


def _parameter(name: str, doc: str, kind: str = "integer") -> Parameter:
    return Parameter(name, {"type": kind}, doc)


_DURABILITY = Parameter(
    "durability",
    {"enum": list(get_args(Durability))},
    "When the answer comes; by default as the topic says.",
)
_FRAME_PARAMETERS = (
    _parameter("partition", "Where it goes; otherwise its key decides, or it goes anywhere."),
    Parameter("priority", {"enum": list(PRIORITIES)}, "Its lane."),
    _DURABILITY,
)
_PARTITIONS = _parameter(
    "partitions",
    "Of a frame: how many partitions its keys were routed for. With another number it is refused.",
)
_RAW_PARAMETERS = (
    *_FRAME_PARAMETERS,
    _PARTITIONS,
    _parameter("key", "The key of the message, as text.", "string"),
    _parameter("ttl_ms", "After this long nobody gets it any more."),
    _parameter("delay_ms", "Nobody gets it before this long."),
    _parameter("deliver_at", "Nobody gets it before this moment, in unix microseconds."),
    _parameter("dedup_id", "Of two messages with this id within the window, one is stored.", "string"),
    _parameter("dedup_window_ms", "How long that id is remembered; otherwise as the topic says."),
    _parameter("timestamp", "When it happened, in unix microseconds; otherwise now."),
)

ROUTES: list[Route] = []
_topic = Calls(ROUTES, "/v1/topics/{topic}", "messages")


@_topic(
    "POST",
    "/messages",
    "Publish a message, many, or a frame; a topic that is new is created",
    PutOut | PutsOut,
    query=_RAW_PARAMETERS,
    consumes=(JSON, FRAME, OCTETS),
    request_schemas={JSON: PublishIn},
    errors=(404, 409, 413, 429, 507),
)
def publish(broker: Broker, request: Request) -> Answer:
    """Put one message, many, or a frame."""
    topic, content_type = request.params["topic"], request.content_type
    if content_type == FRAME:
        return _publish_frame(broker, request, topic)
    if content_type == JSON:
        return _publish_json(broker, request, topic)
    if (
        not request.query_string
        and content_type in ("", OCTETS, "text/plain")
        and not any(name.startswith(_HEADER) for name in request.headers)
    ):
        # The plainest message there is.
        return broker.part(PublishBatcher).publish(topic, request.body, None)
    return _publish_raw(broker, request, topic)


@_topic(
    "POST",
    "/producers/{producer_id}",
    "Begin anew as a producer; a topic that is new is created",
    errors=(404, 409, 507),
)
async def begin_producer(broker: Broker, request: Request) -> ProducerOut:
    """Give a producer its next epoch. Frames of its earlier epochs are refused from then on, with 409."""
    text = request.params["producer_id"]
    if not _PRODUCER_ID.fullmatch(text):
        raise InvalidRequest(f"producer_id is a number from 1 to {PRODUCER_ID_MAX}, not {text[:80]!r}")
    state = await broker.run(broker.engine.begin_producer, request.params["topic"], int(text))
    return ProducerOut(state.epoch, [FirstFrameOut(*each) for each in state.batches], state.known_since_us)


def _publish_json(broker: Broker, request: Request, topic: str) -> Answer:
    # What a message needs stands in the body: a parameter that says so too would be lost in silence.
    check_query(request, (_DURABILITY,))
    durability = _durability(request)
    try:
        given = _decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is no message in JSON: {error}") from None
    if given.messages is UNSET:
        return broker.part(PublishBatcher).publish(topic, message_from(given), durability)
    if any(getattr(given, name) != getattr(_NOTHING_ELSE, name) for name in MessageIn.__struct_fields__):
        raise InvalidRequest("the body has `messages`, or the fields of one message, not both")
    return _publish_many(broker, topic, list(map(message_from, given.messages)), durability)


async def _publish_many(
    broker: Broker, topic: str, messages: list[bytes | Message], durability: Durability | None
) -> dict[str, Any]:
    puts = await broker.run(broker.engine.queue(topic).put_many, messages, durability=durability)
    return {"results": [put._asdict() for put in puts]}


def _publish_raw(broker: Broker, request: Request, topic: str) -> Answer:
    query = request.query
    if _PARTITIONS.name in query:
        raise InvalidRequest("partitions is for frames: the broker itself routes a message by its key")
    key = query.get("key")
    headers = {
        name.removeprefix(_HEADER): value.encode("latin-1")
        for name, value in request.headers.items()
        if name.startswith(_HEADER)
    }
    message = Message(
        request.body,
        key=None if key is None else key.encode(),
        headers=headers or None,
        priority=priority_of(query.get("priority", "normal")),
        ttl=_seconds(request, "ttl_ms"),
        delay=_seconds(request, "delay_ms"),
        deliver_at=_number(request, "deliver_at"),
        dedup_id=query.get("dedup_id"),
        dedup_window=_seconds(request, "dedup_window_ms"),
        timestamp=_number(request, "timestamp"),
        partition=_number(request, "partition"),
    )
    return broker.part(PublishBatcher).publish(topic, message, _durability(request))


async def _publish_frame(broker: Broker, request: Request, topic: str) -> dict[str, Any]:
    check_query(request, (*_FRAME_PARAMETERS, _PARTITIONS))
    queue, durability = broker.engine.queue(topic), _durability(request)

    def put() -> Put:
        return queue.put_frame(
            request.body,
            partition=_number(request, "partition"),
            priority=request.query.get("priority", "normal"),
            durability=durability,
            partitions=_number(request, "partitions"),
        )

    stored = await broker.run(put) if broker.may_wait_for_disk(topic, durability) else put()
    return frame_stored(stored, request.body)


def frame_stored(put: Put, frame: bytes) -> dict[str, Any]:
    """Where a frame is, and how many messages it had."""
    return {**put._asdict(), "count": parse_header(frame).message_count}


# Parameters.


def _durability(request: Request) -> Durability | None:
    word = request.query.get("durability") if request.query_string else None
    if word is not None:
        check_durability(word)
    return cast("Durability | None", word)


def _number(request: Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not NUMBER.fullmatch(text):
        raise InvalidRequest(f"{name} is a whole number, not {text[:40]!r}")
    return int(text)


def _seconds(request: Request, name: str) -> float | None:
    milliseconds = _number(request, name)
    return None if milliseconds is None else milliseconds / 1000


# Single messages.


class PublishBatcher:
    """Takes messages on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._lines: dict[tuple[str, Durability | None], _Line] = {}

    def publish(self, topic: str, message: bytes | Message, durability: Durability | None) -> Later:
        """Store a message soon, together with others. Raises InvalidRequest."""
        return (self._lines.get((topic, durability)) or self._open(topic, durability)).add(message)

    def _open(self, topic: str, durability: Durability | None) -> "_Line":
        if len(self._lines) >= _QUEUES_MAX:
            # Those who wait in a line keep it alive until they are served.
            self._lines.clear()
        queue = self._broker.engine.queue(topic)
        line = self._lines[topic, durability] = _Line(self._broker, self._loop, queue, durability)
        return line


class _Line:
    """The messages of one topic that wait to be stored with the same durability."""

    def __init__(
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        queue: EngineQueue,
        durability: Durability | None,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._queue = queue
        self._durability = durability
        self._messages: list[CheckedMessage] = []
        self._answers: list[Later] = []
        self._is_planned = False

    def add(self, message: bytes | Message) -> Later:
        # Before it joins others, which must not suffer for what is wrong with it.
        checked, answer = self._queue.check(message), Later()
        self._messages.append(checked)
        self._answers.append(answer)
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._store)
        return answer

    def _store(self) -> None:
        """Store what has gathered: here when that only copies memory, otherwise in a thread."""
        messages, answers = self._messages[:_BATCH_MESSAGES], self._answers[:_BATCH_MESSAGES]
        del self._messages[:_BATCH_MESSAGES], self._answers[:_BATCH_MESSAGES]
        if self._broker.may_wait_for_disk(self._queue.topic, self._durability):
            storing = self._loop.run_in_executor(self._broker.threads, self._stored, messages)
            storing.add_done_callback(lambda done: self._done(done.result(), answers))
        else:
            self._done(self._stored(messages), answers)

    def _stored(self, messages: list[CheckedMessage]) -> Sequence[Response]:
        """Answers for messages of as many callers: each is stored, or refused and not there."""
        if len(messages) == 1:
            return self._put(messages)
        delayed = list(map(is_delayed, messages))
        if delayed.count(delayed[0]) == len(delayed):
            return self._put(messages)
        # What waits lies elsewhere: one may have room where the other has none.
        found: dict[int, Response] = {}
        for kind in (True, False):
            indexes = [index for index, each in enumerate(delayed) if each is kind]
            found |= zip(indexes, self._put([messages[index] for index in indexes]), strict=True)
        return [found[index] for index in range(len(messages))]

    def _put(self, messages: list[CheckedMessage]) -> Sequence[Response]:
        """Store messages, all or none of them."""
        hiding = self._broker.hiding
        try:
            return list(map(put_response, self._queue.put_checked(messages, self._durability)))
        except (Overloaded, InvalidRequest) as error:
            if len(messages) == 1:
                return [error_response(error, hiding)]
            # Nothing was stored; one of them may be the reason, and the others must not suffer for it.
            return [response for message in messages for response in self._put([message])]
        except QuiverError as error:
            self._broker.note(error)
            return [error_response(error, hiding)] * len(messages)
        except Exception:
            logger.exception("storing %d messages of %s failed", len(messages), self._queue.topic)
            failure = QuiverError("the broker failed: its log has the details")
            return [error_response(failure)] * len(messages)

    def _done(self, responses: Sequence[Response], answers: list[Later]) -> None:
        if self._messages:
            self._loop.call_soon(self._store)
        else:
            self._is_planned = False
        for answer, response in zip(answers, responses, strict=True):
            try:
                answer.set(response)
            except Exception:
                # The others have to be told all the same.
                logger.exception("an answer could not be sent")


def put_response(put: Put) -> Response:
    """Where a message is."""
    if put.offset is None or put.duplicate:
        return json_response(put._asdict())
    return Response(200, _PLAIN % (put.topic.encode(), put.partition, put.priority.encode(), put.offset))
