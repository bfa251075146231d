"""Messages that wait to be due, and messages that were given up."""

from collections.abc import Callable, Iterable
from functools import partial

from quivermq.delivery.dead_letters import DeadLetter
from quivermq.engine import Engine
from quivermq.engine.dead_letters import each_dead_letter
from quivermq.engine.hosted import Hosted
from quivermq.errors import NotFound
from quivermq.server.access import may_see
from quivermq.server.answers import ANSWER_BYTES, within
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.messages_json import content_fields
from quivermq.server.query import PLACE_PATTERN, Place, number_of, number_parameter, place_after
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import (
    DeadLetterFilter,
    DeadLetterList,
    DeadLetterOut,
    Discarded,
    Moved,
    OriginOut,
    ScheduledList,
    ScheduledOut,
)
from quivermq.topic.delay import Scheduled
from quivermq.topic.names import dead_letter_name, is_dead_letter_topic
from quivermq.topic.partition import LANES

# As quivermq.topic.delay writes them: due time, bucket and offset in hexadecimal.
_INT63 = "(0|[1-7][0-9a-f]{0,15}|[89a-f][0-9a-f]{0,14})"
_SCHEDULED_PATTERN = f"^{_INT63}-(0|[1-9a-f][0-9a-f]{{0,7}})-{_INT63}$"
_AFTER_DOC = "The `id` of the last one you have: those behind it."
_AFTER = Parameter("after", {"type": "string", "pattern": PLACE_PATTERN}, _AFTER_DOC)
_AFTER_SCHEDULED = Parameter("after", {"type": "string", "pattern": _SCHEDULED_PATTERN}, _AFTER_DOC)
_LIMIT = number_parameter("limit", "How many at most; fewer when they are large.", 1, 1000, default=100)


async def list_scheduled(broker: Broker, request: Request) -> Response:
    """The delayed messages that wait, the next one first."""
    hosted = broker.engine.hosted(request.params["topic"])
    limit, after = number_of(request, _LIMIT), request.query.get("after")

    def look() -> ScheduledList:
        hosted.release(broker.engine.clock.now_us())
        waiting = hosted.topic.delays.scheduled(limit, ANSWER_BYTES, after)
        shown = within(waiting, limit, lambda message: len(message.value))
        return ScheduledList([_scheduled_out(message, hosted.name) for message in shown])

    return json_response(await broker.run(look))


async def cancel_scheduled(broker: Broker, request: Request) -> Response:
    """Call a delayed message off."""
    hosted = broker.engine.hosted(request.params["topic"])
    scheduled_id = request.params["id"]
    if not await broker.run(broker.engine.queue(hosted.name).cancel, scheduled_id):
        raise NotFound(
            f"no delayed message {scheduled_id[:80]} waits: it was delivered or cancelled before"
        )
    return Response(204)


async def list_dead_letters(broker: Broker, request: Request) -> Response:
    """The messages of a topic that were given up, by whichever group."""
    limit, after = number_of(request, _LIMIT), place_after(request)
    graves = _graves(broker.engine, request.params["topic"])

    def look() -> DeadLetterList:
        letters: Iterable[DeadLetter] = [] if graves is None else each_dead_letter(graves)
        if after is not None:
            letters = (letter for letter in letters if _place_of(letter) > after)
        name = "" if graves is None else graves.name
        shown = within(letters, limit, lambda letter: len(letter.value))
        return DeadLetterList([_dead_letter_out(letter, name) for letter in shown])

    return json_response(await broker.run(look))


async def redrive(broker: Broker, request: Request, body: DeadLetterFilter) -> Response:
    """Send dead letters back to where they came from."""
    topic = request.params["topic"]
    _graves(broker.engine, topic)
    send_back = partial(
        broker.engine.queue(topic).redrive, _wanted(request, body), body.limit, ids=body.ids
    )
    moved = await broker.run(send_back)
    return json_response(Moved(moved))


async def discard(broker: Broker, request: Request, body: DeadLetterFilter) -> Response:
    """Take dead letters out for good."""
    topic = request.params["topic"]
    _graves(broker.engine, topic)
    discarded = await broker.run(broker.engine.queue(topic).discard, _wanted(request, body), body.limit)
    return json_response(Discarded(discarded))


def _graves(engine: Engine, topic: str) -> Hosted | None:
    """Where the dead letters of a topic lie; None while it has none. Raises TopicNotFound."""
    if is_dead_letter_topic(topic):
        return engine.hosted(topic)
    graves = engine.find(dead_letter_name(topic))
    if graves is None:
        engine.hosted(topic)
    return graves


def _wanted(request: Request, body: DeadLetterFilter) -> Callable[[DeadLetter], bool]:
    """What the body asks for, all of it at once."""
    ids = None if body.ids is None else frozenset(body.ids)

    def is_wanted(letter: DeadLetter) -> bool:
        return (
            (body.reason is None or letter.reason == body.reason)
            and (body.group is None or letter.group == body.group)
            and (ids is None or letter.id in ids)
            # A message that was put there by hand may claim to be from anywhere.
            and may_see(request, letter.topic)
        )

    return is_wanted


def _scheduled_out(message: Scheduled, topic: str) -> ScheduledOut:
    return ScheduledOut(
        id=message.id,
        deliver_at=message.deliver_at,
        topic=topic,
        partition=message.partition,
        priority=message.priority,
        timestamp=message.timestamp,
        expires_at=message.expires_at,
        dedup_id=message.dedup_id,
        **content_fields(message.value, message.key, message.headers),
    )


def _dead_letter_out(letter: DeadLetter, topic: str) -> DeadLetterOut:
    # Its id says where it lies; the other fields, where it came from.
    partition, lane, offset = _place_of(letter)
    return DeadLetterOut(
        id=letter.id,
        topic=topic,
        partition=partition,
        priority=LANES[lane],
        offset=offset,
        timestamp=letter.timestamp,
        reason=letter.reason,
        error=letter.error,
        attempts=letter.attempts,
        group=letter.group,
        origin=OriginOut(letter.topic, letter.partition, letter.priority, letter.offset),
        died_at=letter.time,
        **content_fields(letter.value, letter.key, letter.original_headers),
    )


def _place_of(letter: DeadLetter) -> Place:
    partition, lane, offset = map(int, letter.id.split("-"))
    return partition, lane, offset


ROUTES: list[Route] = [
    Route(
        "GET",
        "/v1/topics/{topic}/scheduled",
        list_scheduled,
        summary="List the delayed messages that wait",
        scope="read",
        tag="delayed messages",
        query=(_LIMIT, _AFTER_SCHEDULED),
        returns={200: ScheduledList},
        errors=(404,),
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}/scheduled/{id}",
        cancel_scheduled,
        summary="Cancel a delayed message",
        scope="write",
        tag="delayed messages",
        returns={204: None},
        errors=(404, 507),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/dead-letters",
        list_dead_letters,
        summary="List the dead letters of a topic",
        scope="read",
        tag="dead letters",
        query=(_LIMIT, _AFTER),
        returns={200: DeadLetterList},
        errors=(404,),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/redrive",
        redrive,
        summary="Send dead letters back to where they came from",
        scope="write",
        tag="dead letters",
        body=DeadLetterFilter,
        is_body_optional=True,
        returns={200: Moved},
        errors=(404, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/discard",
        discard,
        summary="Take dead letters out for good",
        scope="admin",
        tag="dead letters",
        body=DeadLetterFilter,
        is_body_optional=True,
        returns={200: Discarded},
        errors=(404, 507),
    ),
]
