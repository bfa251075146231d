"""Messages that wait to be due, and messages that were given up."""

from collections.abc import Callable
from functools import partial

from quivermq.delivery.dead_letters import DeadLetter
from quivermq.engine import Engine
from quivermq.engine.dead_letters import each_dead_letter
from quivermq.engine.hosted import Hosted
from quivermq.engine.looking import BINS_MAX
from quivermq.engine.reasons import BEFORE_ALL, count_reasons
from quivermq.errors import NotFound
from quivermq.server.access import may_see
from quivermq.server.answers import (
    ANSWER_BYTES,
    FIELDS_BYTES,
    JSON_COPIES,
    Patience,
    making_bytes,
    within,
)
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.messages_json import content_fields, content_from
from quivermq.server.query import (
    PLACE_PATTERN,
    Place,
    number_given,
    number_of,
    number_parameter,
    place_after,
)
from quivermq.server.routing import WHOLE_BODY, Parameter, Route
from quivermq.server.shapes import (
    DeadLetterFilter,
    DeadLetterList,
    DeadLetterOut,
    Discarded,
    Moved,
    OriginOut,
    ReasonList,
    ReasonOut,
    RedriveIn,
    ScheduledList,
    ScheduledOut,
    TimelineOut,
)
from quivermq.topic.delay import Scheduled
from quivermq.topic.incoming import Message
from quivermq.topic.partition import LANES

# As quivermq.topic.delay writes them: due time, bucket and offset in hexadecimal.
_INT63 = "(0|[1-7][0-9a-f]{0,15}|[89a-f][0-9a-f]{0,14})"
_SCHEDULED_PATTERN = f"^{_INT63}-(0|[1-9a-f][0-9a-f]{{0,7}})-{_INT63}$"
_AFTER_DOC = "The `id` of the last one you have: those behind it."
_AFTER = Parameter("after", {"type": "string", "pattern": PLACE_PATTERN}, _AFTER_DOC)
_AFTER_SCHEDULED = Parameter("after", {"type": "string", "pattern": _SCHEDULED_PATTERN}, _AFTER_DOC)
_AFTER_COUNTED = Parameter(
    "after", {"type": "string", "pattern": PLACE_PATTERN}, "`next` of the answer before."
)
_REASON = Parameter("reason", {"type": "string"}, "Only those that were given up for this reason.")
_GROUP = Parameter("group", {"type": "string"}, "Only those that this group gave up.")
_UNTIL = number_parameter(
    "until",
    "Where the timeline ends, in unix microseconds; by default with the last one.",
    10**14,
    2**62 - 1,
)
_BINS = number_parameter("bins", "Into how many equal spans.", 1, BINS_MAX, default=60)
_LIMIT = number_parameter("limit", "How many at most; fewer when they are large.", 1, 1000, default=100)


async def list_scheduled(broker: Broker, request: Request) -> Response:
    """The delayed messages that wait, the next one first."""
    hosted = broker.engine.hosted(request.params["topic"])
    limit, after = number_of(request, _LIMIT), request.query.get("after")

    def look() -> Response:
        hosted.release(broker.engine.clock.now_us())
        waiting = hosted.topic.delays.scheduled(limit, ANSWER_BYTES, after)
        shown = within(waiting, limit, lambda message: len(message.value))
        return json_response(ScheduledList([_scheduled_out(message, hosted.name) for message in shown]))

    # How large delayed messages are is not known before they are read.
    return await broker.make(request, ANSWER_BYTES * JSON_COPIES, look)


async def show_timeline(broker: Broker, request: Request) -> Response:
    """How many delayed messages are due when."""
    topic = broker.engine.hosted(request.params["topic"]).name
    until, bins = number_given(request, _UNTIL), number_of(request, _BINS)
    found = await broker.run(broker.engine.queue(topic).timeline, until, bins)
    return json_response(TimelineOut(*found))


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
    limit, after = number_of(request, _LIMIT), place_after(request) or BEFORE_ALL
    reason, group = request.query.get("reason"), request.query.get("group")
    graves = await broker.run(_graves, broker.engine, request.params["topic"])

    if graves is None:
        return json_response(DeadLetterList([], None))

    def look() -> Response:
        patience, shown, size = Patience(broker.engine.clock), list[DeadLetterOut](), 0
        for letter in each_dead_letter(graves, after):
            if reason in (None, letter.reason) and group in (None, letter.group):
                shown.append(_dead_letter_out(letter, graves.name))
                size += len(letter.value) + FIELDS_BYTES
            if len(shown) >= limit or size >= ANSWER_BYTES or patience.is_over(len(letter.value)):
                return json_response(DeadLetterList(shown, letter.id))
        return json_response(DeadLetterList(shown, None))

    return await broker.make(request, making_bytes(graves, limit, JSON_COPIES), look)


async def list_reasons(broker: Broker, request: Request) -> Response:
    """Why messages of a topic were given up, and how many for which reason."""
    after = place_after(request) or BEFORE_ALL
    graves = await broker.run(_graves, broker.engine, request.params["topic"])

    def look() -> ReasonList:
        if graves is None:
            return ReasonList([], None)
        found = count_reasons(graves, after, Patience(broker.engine.clock).is_over)
        reasons = [ReasonOut(*reason) for reason in found.reasons]
        return ReasonList(reasons, None if found.next is None else "-".join(map(str, found.next)))

    return json_response(await broker.run(look))


async def redrive(broker: Broker, request: Request, body: RedriveIn) -> Response:
    """Send dead letters back to where they came from, as they were or edited."""
    topic = request.params["topic"]
    await broker.run(_graves, broker.engine, topic)
    edits = None
    if body.edits is not None:
        edits = {name: Message(*content_from(given)) for name, given in body.edits.items()}
    send_back = partial(
        broker.engine.queue(topic).redrive, _wanted(request, body), body.limit, ids=body.ids, edits=edits
    )
    moved = await broker.run(send_back)
    return json_response(Moved(moved))


async def discard(broker: Broker, request: Request, body: DeadLetterFilter) -> Response:
    """Take dead letters out for good."""
    topic = request.params["topic"]
    await broker.run(_graves, broker.engine, topic)
    take_out = partial(broker.engine.queue(topic).discard, _wanted(request, body), body.limit, ids=body.ids)
    discarded = await broker.run(take_out)
    return json_response(Discarded(discarded))


def _graves(engine: Engine, topic: str) -> Hosted | None:
    """Where the dead letters of a topic lie; None while it has none. Raises TopicNotFound."""
    graves = engine.dead_letters_of(topic)
    if graves is None:
        engine.hosted(topic)
    return graves


def _wanted(request: Request, body: DeadLetterFilter) -> Callable[[DeadLetter], bool]:
    """What the body asks for, all of it at once, but for the ids."""

    def is_wanted(letter: DeadLetter) -> bool:
        return (
            (body.reason is None or letter.reason == body.reason)
            and (body.group is None or letter.group == body.group)
            # A key for dead letters alone is not one for the topic that they go back to.
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
        by_hand=letter.by_hand,
        scheduled_id=letter.scheduled_id,
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
        tag="delayed messages",
        query=(_LIMIT, _AFTER_SCHEDULED),
        returns={200: ScheduledList},
        errors=(404,),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/scheduled/timeline",
        show_timeline,
        summary="Count the delayed messages by when they are due",
        tag="delayed messages",
        query=(_UNTIL, _BINS),
        returns={200: TimelineOut},
        errors=(404,),
    ),
    Route(
        "DELETE",
        "/v1/topics/{topic}/scheduled/{id}",
        cancel_scheduled,
        summary="Cancel a delayed message",
        tag="delayed messages",
        returns={204: None},
        errors=(404, 507),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/dead-letters",
        list_dead_letters,
        summary="List the dead letters of a topic",
        tag="dead letters",
        query=(_LIMIT, _AFTER, _REASON, _GROUP),
        returns={200: DeadLetterList},
        errors=(404,),
    ),
    Route(
        "GET",
        "/v1/topics/{topic}/dead-letters/reasons",
        list_reasons,
        summary="Count the dead letters of a topic by reason",
        tag="dead letters",
        query=(_AFTER_COUNTED,),
        returns={200: ReasonList},
        errors=(404,),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/redrive",
        redrive,
        summary="Send dead letters back to where they came from",
        tag="dead letters",
        body=RedriveIn,
        body_bytes_max=WHOLE_BODY,
        is_body_optional=True,
        returns={200: Moved},
        errors=(404, 507),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/discard",
        discard,
        summary="Take dead letters out for good",
        tag="dead letters",
        body=DeadLetterFilter,
        body_bytes_max=WHOLE_BODY,
        is_body_optional=True,
        returns={200: Discarded},
        errors=(404, 507),
    ),
]
