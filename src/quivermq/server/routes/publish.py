"""Publishing: JSON for people, raw bytes for anybody, frames for speed."""

import re
from typing import Annotated, Any, ClassVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.errors import InvalidRequest
from quivermq.frame import parse_header
from quivermq.log.entries import check_durability
from quivermq.server.broker import Broker
from quivermq.server.http import FRAME, JSON, OCTETS, Request, Response, json_response
from quivermq.server.messages_json import MessageIn, message_from
from quivermq.server.publishing import Publishing
from quivermq.server.routing import Answer, Parameter, Route
from quivermq.server.schema_words import exactly_one
from quivermq.settings import Durability
from quivermq.topic.incoming import Message
from quivermq.topic.put import Put

_HEADER = "quiver-header-"
_BATCH_MESSAGES_MAX = 100_000
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


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


_decode = msgspec.json.Decoder(PublishIn).decode
_NOTHING_ELSE = MessageIn()


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
        and not _has_headers(request)
    ):
        # The plainest message there is.
        return _publish_one(broker, topic, request.body, None)
    return _publish_raw(broker, request, topic)


def _publish_one(
    broker: Broker, topic: str, message: bytes | Message, durability: Durability | None
) -> Answer:
    hosted = broker.engine.find(topic)
    # Before it joins others, which must not suffer for what is wrong with it.
    if hosted is None:
        broker.engine.queue(topic)
        broker.engine.draft(topic).checked([message])
    elif type(message) is not bytes or len(message) > hosted.settings.message_bytes_max:
        hosted.topic.checked([message])
    return broker.part(Publishing).publish(topic, message, durability)


def _publish_json(broker: Broker, request: Request, topic: str) -> Answer:
    # What a message needs stands in the body: a parameter that says so too would be lost in silence.
    _checked_query(request, (_DURABILITY,))
    durability = _durability(request)
    try:
        given = _decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is no message in JSON: {error}") from None
    if given.messages is UNSET:
        message = message_from(given)
        return _publish_one(broker, topic, message.value if _is_plain(message) else message, durability)
    if any(getattr(given, name) != getattr(_NOTHING_ELSE, name) for name in MessageIn.__struct_fields__):
        raise InvalidRequest("the body has `messages`, or the fields of one message, not both")
    return _publish_many(broker, topic, list(map(message_from, given.messages)), durability)


def _is_plain(message: Message) -> bool:
    return (
        message.key is None
        and message.headers is None
        and message.priority == "normal"
        and message.ttl is None
        and message.delay is None
        and message.deliver_at is None
        and message.dedup_id is None
        and message.dedup_window is None
        and message.timestamp is None
        and message.partition is None
    )


async def _publish_many(
    broker: Broker, topic: str, messages: list[Message], durability: Durability | None
) -> Response:
    queue = broker.engine.queue(topic)
    puts = await broker.run(queue.put_many, messages, durability=durability)
    return json_response({"results": [put._asdict() for put in puts]})


def _publish_raw(broker: Broker, request: Request, topic: str) -> Answer:
    query = _checked_query(request, _RAW_PARAMETERS)
    key = query.get("key")
    message = Message(
        request.body,
        key=None if key is None else key.encode(),
        headers=_message_headers(request),
        priority=query.get("priority", "normal"),
        ttl=_seconds(query, "ttl_ms"),
        delay=_seconds(query, "delay_ms"),
        deliver_at=_number(query, "deliver_at"),
        dedup_id=query.get("dedup_id"),
        dedup_window=_seconds(query, "dedup_window_ms"),
        timestamp=_number(query, "timestamp"),
        partition=_number(query, "partition"),
    )
    return _publish_one(broker, topic, message, _durability(request))


async def _publish_frame(broker: Broker, request: Request, topic: str) -> Response:
    query = _checked_query(request, _FRAME_PARAMETERS)
    queue = broker.engine.queue(topic)
    durability = _durability(request)

    def put() -> Put:
        return queue.put_frame(
            request.body,
            partition=_number(query, "partition"),
            priority=query.get("priority", "normal"),
            durability=durability,
        )

    stored = await broker.run(put) if broker.may_wait_for_disk(topic, durability) else put()
    return json_response({**stored._asdict(), "count": parse_header(request.body).message_count})


# Parameters.


def _checked_query(request: Request, known: tuple[Parameter, ...]) -> dict[str, str]:
    if not request.query_string:
        return {}
    names = {parameter.name for parameter in known}
    if unknown := request.query.keys() - names:
        raise InvalidRequest(
            f"{', '.join(sorted(unknown))} is no parameter here: there are {', '.join(sorted(names))}"
        )
    return request.query


def _durability(request: Request) -> Durability | None:
    if not request.query_string or (word := request.query.get("durability")) is None:
        return None
    check_durability(word)
    return cast(Durability, word)


def _number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"{name} is a whole number, not {text[:40]!r}")
    return int(text)


def _seconds(query: dict[str, str], name: str) -> float | None:
    milliseconds = _number(query, name)
    return None if milliseconds is None else milliseconds / 1000


def _message_headers(request: Request) -> dict[str, bytes] | None:
    found = {
        name.removeprefix(_HEADER): value.encode("latin-1")
        for name, value in request.headers.items()
        if name.startswith(_HEADER)
    }
    return found or None


def _has_headers(request: Request) -> bool:
    return any(name.startswith(_HEADER) for name in request.headers)


def _parameter(name: str, doc: str, kind: str = "integer") -> Parameter:
    return Parameter(name, {"type": kind}, doc)


_PARTITION = _parameter("partition", "Where it goes; otherwise its key decides, or it goes anywhere.")
_PRIORITY = Parameter("priority", {"enum": ["high", "normal", "low"]}, "Its lane.")
_DURABILITY = Parameter(
    "durability",
    {"enum": ["fsync", "os", "buffered"]},
    "When the answer comes; by default as the topic says.",
)
_FRAME_PARAMETERS = (_PARTITION, _PRIORITY, _DURABILITY)
_RAW_PARAMETERS = (
    *_FRAME_PARAMETERS,
    _parameter("key", "The key of the message, as text.", "string"),
    _parameter("ttl_ms", "After this long nobody gets it any more."),
    _parameter("delay_ms", "Nobody gets it before this long."),
    _parameter("deliver_at", "Nobody gets it before this moment, in unix microseconds."),
    _parameter("dedup_id", "Of two messages with this id within the window, one is stored.", "string"),
    _parameter("dedup_window_ms", "How long that id is remembered; otherwise as the topic says."),
    _parameter("timestamp", "When it happened, in unix microseconds; otherwise now."),
)

ROUTES = [
    Route(
        "POST",
        "/v1/topics/{topic}/messages",
        publish,
        summary="Publish a message, many, or a frame; a topic that is new is created",
        tag="messages",
        returns={200: PutOut | PutsOut},
        query=_RAW_PARAMETERS,
        consumes=(JSON, FRAME, OCTETS),
        request_schemas={JSON: PublishIn},
        errors=(404, 409, 413, 429, 507),
    ),
]
