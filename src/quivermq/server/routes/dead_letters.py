"""Messages that wait to be due, and messages that were given up."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from quivermq.engine.looking import BEFORE_ALL
from quivermq.errors import NotFound
from quivermq.model.dead_letters import NO_EDITS, DeadLetter, check_edits
from quivermq.model.json import Document, dead_letter_json, scheduled_json
from quivermq.model.messages import BINS_MAX, Message
from quivermq.server.access import may_see
from quivermq.server.answers import (
    ANSWER_BYTES,
    FIELDS_BYTES,
    JSON_COPIES,
    SearchTime,
    making_bytes,
    within,
)
from quivermq.server.broker import Broker
from quivermq.server.http import Request, encode_json
from quivermq.server.routing import (
    PLACE_PATTERN,
    WHOLE_BODY,
    Calls,
    Parameter,
    Route,
    number_given,
    number_of,
    number_parameter,
    place_after,
)
from quivermq.server.shapes import (
    LATE_ENOUGH_US,
    MOMENT_MAX,
    Content,
    ContentIn,
    Count,
    MessageOut,
    Offset,
    PriorityOut,
    at_most_one,
    content_from,
    exactly_one,
)

# As quivermq.topic.delay writes them: due time, bucket and offset in hexadecimal.
_INT63 = "(0|[1-7][0-9a-f]{0,15}|[89a-f][0-9a-f]{0,14})"
_SCHEDULED_PATTERN = f"^{_INT63}-(0|[1-9a-f][0-9a-f]{{0,7}})-{_INT63}$"
_AFTER_DOC = "The `id` of the last one you have: those behind it."
_AFTER = Parameter("after", {"type": "string", "pattern": PLACE_PATTERN}, _AFTER_DOC)
_AFTER_SCHEDULED = Parameter("after", {"type": "string", "pattern": _SCHEDULED_PATTERN}, _AFTER_DOC)
_AFTER_COUNTED = Parameter("after", _AFTER.schema, "`next` of the answer before.")
_REASON = Parameter("reason", {"type": "string"}, "Only those that were given up for this reason.")
_GROUP = Parameter("group", {"type": "string"}, "Only those that this group gave up.")
_UNTIL_DOC = "Where the timeline ends, in unix microseconds; by default with the last one."
_UNTIL = number_parameter("until", _UNTIL_DOC, LATE_ENOUGH_US, MOMENT_MAX)
_BINS = number_parameter("bins", "Into how many equal spans.", 1, BINS_MAX, default=60)
_LIMIT = number_parameter("limit", "How many at most; fewer when they are large.", 1, 1000, default=100)


class ScheduledOut(Content, kw_only=True):
    """A message that waits until `deliver_at`, in unix microseconds. It has no offset yet."""

    id: str
    deliver_at: int


class ScheduledList(msgspec.Struct):
    """Delayed messages, the next one first."""

    scheduled: list[ScheduledOut]


class TimelineOut(msgspec.Struct):
    """How many messages are due in each of some equal spans from `start` to `end`, and how many `later`.

    Times are unix microseconds. What is due already counts for the first span; where it is not known
    exactly when messages are due, they are spread evenly.
    """

    start: int
    end: int
    counts: list[Count]
    later: Count


class OriginOut(msgspec.Struct):
    """Where a message was before it was given up."""

    topic: str
    partition: Count
    priority: PriorityOut
    offset: int


class DeadLetterOut(MessageOut, kw_only=True):
    """A message that was given up, at its place in the dead-letter topic, with the headers it had."""

    id: str
    reason: str
    error: str
    attempts: int
    group: str
    origin: OriginOut
    died_at: int
    by_hand: bool


class DeadLetterList(msgspec.Struct):
    """Dead letters, the oldest of each partition first. `next` is the `after` to go on with, if any."""

    messages: list[DeadLetterOut]
    next: str | None


class ReasonOut(msgspec.Struct):
    """So many messages of a topic were given up by a group for the same reason."""

    reason: str
    topic: str
    group: str
    messages: Count


class ReasonList(msgspec.Struct):
    """Why messages were given up, the most frequent first. `next` is the `after` to go on with, if any."""

    reasons: list[ReasonOut]
    next: str | None


class DeadLetterFilter(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters: all of them, unless this says otherwise."""

    schema_extra: ClassVar[dict[str, Any]] = {"examples": [{"reason": "timeout", "limit": 100}]}

    limit: Offset | None = None
    reason: str | None = None
    group: str | None = None
    ids: Annotated[list[str], Meta(max_length=10_000)] | None = None


class EditIn(ContentIn, forbid_unknown_fields=True):
    """What goes back in place of a dead letter. It has a `value` or a `value_base64`."""

    schema_extra: ClassVar[dict[str, Any]] = {
        **exactly_one("value", "value_base64"),
        "allOf": [at_most_one("key", "key_base64")],
        "examples": [{"value": "mended", "key": "k1", "headers": {"a": "1"}}],
    }


class RedriveIn(DeadLetterFilter, forbid_unknown_fields=True):
    """Which dead letters: all of them, unless this says otherwise; and what goes back in place of some.

    With `edits` and without `ids` only those that are edited go back.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "examples": [{"reason": "timeout", "limit": 100}, {"edits": {"0-1-25": {"value": "mended"}}}]
    }

    edits: Annotated[dict[str, EditIn], Meta(max_length=1000)] | None = None


class Moved(msgspec.Struct):
    """How many dead letters went back."""

    moved: Count


class Discarded(msgspec.Struct):
    """How many dead letters are gone for good."""

    discarded: Count


ROUTES: list[Route] = []
_delayed = Calls(ROUTES, "/v1/topics/{topic}/scheduled", "delayed messages")
_dead = Calls(ROUTES, "/v1/topics/{topic}", "dead letters")
_FILTERED: dict[str, Any] = {"body_bytes_max": WHOLE_BODY, "is_body_optional": True, "errors": (404, 507)}


@_delayed("GET", "", "List the delayed messages that wait", ScheduledList, query=(_LIMIT, _AFTER_SCHEDULED))
async def list_scheduled(broker: Broker, request: Request) -> bytes:
    """The delayed messages that wait, the next one first."""
    topic, inspection = request.params["topic"], broker.engine.inspection
    limit, after = number_of(request, _LIMIT), request.query.get("after")

    def look() -> bytes:
        waiting = inspection.scheduled(topic, limit, ANSWER_BYTES, after)
        shown = within(waiting, limit, lambda message: len(message.value))
        return encode_json({"scheduled": [scheduled_json(message, topic) for message in shown]})

    # How large delayed messages are is not known before they are read.
    return await broker.make(request, ANSWER_BYTES * JSON_COPIES, look)


@_delayed("GET", "/timeline", "Count the delayed messages by when they are due", query=(_UNTIL, _BINS))
async def show_timeline(broker: Broker, request: Request) -> TimelineOut:
    """How many delayed messages are due when."""
    topic = broker.engine.topic(request.params["topic"]).name
    until, bins = number_given(request, _UNTIL), number_of(request, _BINS)
    return TimelineOut(*await broker.run(broker.engine.queue(topic).timeline, until, bins))


@_delayed("DELETE", "/{id}", "Cancel a delayed message", errors=(404, 507))
async def cancel_scheduled(broker: Broker, request: Request) -> None:
    """Call a delayed message off."""
    topic = broker.engine.topic(request.params["topic"]).name
    if not await broker.run(broker.engine.queue(topic).cancel, [request.params["id"]]):
        raise not_waiting(request)


@_dead(
    "GET",
    "/dead-letters",
    "List the dead letters of a topic",
    DeadLetterList,
    query=(_LIMIT, _AFTER, _REASON, _GROUP),
)
async def list_dead_letters(broker: Broker, request: Request) -> bytes:
    """The messages of a topic that were given up, by whichever group."""
    limit, after = number_of(request, _LIMIT), place_after(request) or BEFORE_ALL
    reason, group = request.query.get("reason"), request.query.get("group")
    inspection = broker.engine.inspection
    dead_letter_topic = await broker.run(inspection.dead_letter_topic, request.params["topic"])
    if dead_letter_topic is None:
        return encode_json({"messages": [], "next": None})

    def look() -> bytes:
        patience, shown, size = SearchTime(broker.engine.clock), list[Document](), 0
        for letter in inspection.dead_letters(dead_letter_topic, after):
            if reason in (None, letter.reason) and group in (None, letter.group):
                shown.append(dead_letter_json(letter, dead_letter_topic))
                size += len(letter.value) + FIELDS_BYTES
            if len(shown) >= limit or size >= ANSWER_BYTES or patience.is_over(len(letter.value)):
                return encode_json({"messages": shown, "next": letter.id})
        return encode_json({"messages": shown, "next": None})

    size = making_bytes(broker.engine, dead_letter_topic, limit, JSON_COPIES)
    return await broker.make(request, size, look)


@_dead(
    "GET", "/dead-letters/reasons", "Count the dead letters of a topic by reason", query=(_AFTER_COUNTED,)
)
async def list_reasons(broker: Broker, request: Request) -> ReasonList:
    """Why messages of a topic were given up, and how many for which reason."""
    after = place_after(request) or BEFORE_ALL
    inspection = broker.engine.inspection
    dead_letter_topic = await broker.run(inspection.dead_letter_topic, request.params["topic"])
    if dead_letter_topic is None:
        return ReasonList([], None)
    patience = SearchTime(broker.engine.clock)
    found = await broker.run(inspection.reasons, dead_letter_topic, after, patience.is_over)
    reasons = [ReasonOut(*reason) for reason in found.reasons]
    return ReasonList(reasons, None if found.next is None else "-".join(map(str, found.next)))


@_dead("POST", "/redrive", "Send dead letters back to where they came from", **_FILTERED)
async def redrive(broker: Broker, request: Request, body: RedriveIn) -> Moved:
    """Send dead letters back to where they came from, as they were or edited."""
    topic, wanted, ids, edits = request.params["topic"], _wanted(request, body), body.ids, NO_EDITS
    await broker.run(broker.engine.inspection.dead_letter_topic, topic)
    if body.edits is not None:
        edits = {name: Message(*content_from(given)) for name, given in body.edits.items()}
        check_edits(edits)
        ids = list(edits) if ids is None else ids
    return Moved(await broker.run(broker.engine.queue(topic).redrive, wanted, body.limit, ids, edits))


@_dead("POST", "/discard", "Take dead letters out for good", **_FILTERED)
async def discard(broker: Broker, request: Request, body: DeadLetterFilter) -> Discarded:
    """Take dead letters out for good."""
    topic, wanted = request.params["topic"], _wanted(request, body)
    await broker.run(broker.engine.inspection.dead_letter_topic, topic)
    return Discarded(await broker.run(broker.engine.queue(topic).discard, wanted, body.limit, body.ids))


def not_waiting(request: Request) -> NotFound:
    """What to raise where the delayed message that a path names does not wait."""
    name = request.params["id"][:80]
    return NotFound(f"no delayed message {name} waits: it was delivered or cancelled before")


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
