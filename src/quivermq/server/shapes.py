"""What requests and answers look like in JSON, apart from messages: see messages_json.py for those.

The OpenAPI document is made from these. `schema_extra` is merged into the schema of its type: it has
examples, and what types cannot say.
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.delivery.state import UnfinishedState
from quivermq.engine.group_state import GroupState
from quivermq.frame import OFFSET_MAX
from quivermq.server.messages_json import Base64, Content, Lane, MessageOut, PastMoment, Priority
from quivermq.server.permissions import KeyScope
from quivermq.server.schema_words import at_most_one, exactly_one
from quivermq.server.settings_schema import settings_schema

Count = Annotated[int, Meta(ge=0)]
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]

_NAME_PATTERN = "^[.]*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
NAME_SCHEMA: dict[str, Any] = {"type": "string", "pattern": _NAME_PATTERN, "maxLength": 249}
_EXIST_OK: dict[str, Any] = {
    "type": "boolean",
    "description": "Whether a topic that is there already is left as it is, and answered with 200.",
}


# Unknown ones are left to the engine, which names them and knows which one was meant.
SettingsIn = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={**settings_schema(), "examples": [{"lease_ms": 60000, "attempts_max": 5}]}),
]
TopicIn = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            **settings_schema(name=NAME_SCHEMA, exist_ok=_EXIST_OK),
            "required": ["name"],
            "examples": [{"name": "orders", "partitions": 3, "lease_ms": 60000}],
        }
    ),
]


class ErrorDetail(msgspec.Struct):
    """What went wrong. Some errors have more fields, such as `start` and `end` of the log."""

    schema_extra: ClassVar[dict[str, Any]] = {"additionalProperties": True}

    code: str
    message: str
    retryable: bool


class Error(msgspec.Struct):
    """An error."""

    schema_extra: ClassVar[dict[str, Any]] = {
        "examples": [
            {
                "error": {
                    "code": "topic_not_found",
                    "message": "there is no topic orders: topics() lists those there are",
                    "retryable": False,
                }
            }
        ]
    }

    error: ErrorDetail


class GroupFigures(msgspec.Struct):
    """How far a group has come with a topic."""

    topic: str
    group: str
    pending: Count
    in_flight: Count
    retrying: Count
    waiting_for_key: Count
    delayed: Count
    dead_letters: Count
    state: GroupState
    backlog: Count


class GroupActivityFigures(GroupFigures):
    """How far a group has come with a topic, and what it has had since the broker was started."""

    delivered: Count
    acked: Count
    oldest_unacked_ms: Count
    oldest_unacked_at: Count
    dead_lettered: Count
    leases_expired: Count


class TopicFigures(msgspec.Struct):
    """What there is of a topic, and how many messages came since the broker was started."""

    topic: str
    partitions: Count
    messages: Count
    bytes: Count
    delayed: Count
    dead_letters: Count
    dead_letters_of: str | None
    groups: dict[str, GroupActivityFigures]
    published: Count
    refused: Count
    dropped: Count


class TopicOut(msgspec.Struct):
    """A topic, and its groups by name."""

    name: str
    partitions: Count
    messages: Count
    bytes: Count
    delayed: Count
    dead_letters: Count
    dead_letters_of: str | None
    groups: dict[str, GroupFigures]


class TopicLaneOut(msgspec.Struct):
    """What one partition and priority holds: `start` up to `end`. Below `sealed` nothing changes.

    What lies below `synced` survives power loss.
    """

    partition: Count
    priority: Lane
    start: Count
    sealed: Count
    end: Count
    bytes: Count
    synced: Count


class TopicWithSettings(TopicOut):
    """A topic, when it was made, in unix microseconds, how it is set and what its logs hold.

    The settings may be sent back with PATCH as they are.
    """

    created_at: Count
    settings: SettingsIn
    lanes: list[TopicLaneOut]


class TopicList(msgspec.Struct):
    """The topics, by name. `next` is there when `limit` left some out: send it as `after`."""

    topics: list[TopicOut]
    next: str | UnsetType = UNSET


class LaneOut(msgspec.Struct):
    """How far a group has come in one partition and priority. `position` is the next one it gets."""

    partition: Count
    priority: Lane
    position: Count
    start: Count
    end: Count
    lag: Count
    in_flight: Count
    retrying: Count
    waiting_for_key: Count


class HeldOut(msgspec.Struct):
    """A message that `owner` has until `deadline`, and when it was delivered first and last.

    Times are unix microseconds.
    """

    partition: Count
    priority: Lane
    offset: Count
    attempt: Count
    deadline: int
    owner: str | None
    first_delivered_at: int | None
    last_delivered_at: int | None


class UnfinishedOut(msgspec.Struct):
    """A message that somebody has until `time`, or that is due again at `time`, in unix microseconds.

    What waits for earlier ones of its key, or was released and never failed, is due at 0. `owner` is who
    received it: its agent, its address and the id of its key; null for what nobody has. It was delivered
    first and last at these times, null where it never was.
    """

    partition: Count
    priority: Lane
    offset: Count
    attempt: Count
    state: UnfinishedState
    time: int
    owner: str | None
    first_delivered_at: int | None
    last_delivered_at: int | None


class DeliveryList(msgspec.Struct):
    """What a group has not finished, lane by lane."""

    deliveries: list[UnfinishedOut]


class SegmentOut(msgspec.Struct):
    """A file of a lane: messages `base_offset` up to before `end_offset`. Times are unix microseconds."""

    partition: Count
    priority: Lane
    base_offset: Count
    end_offset: Count
    bytes: Count
    sealed: bool
    first_timestamp: int | None
    last_timestamp: int | None


class SegmentList(msgspec.Struct):
    """The segments of a topic, lane by lane."""

    segments: list[SegmentOut]


class MemberOut(msgspec.Struct):
    """A member of a group in stream mode, by the beginning of its id, and its partitions of the topic."""

    member: str
    client: str
    partitions: list[int]


class GroupOut(msgspec.Struct):
    """A topic as one group sees it."""

    topic: str
    group: str
    pending: Count
    in_flight: Count
    retrying: Count
    waiting_for_key: Count
    delayed: Count
    dead_letters: Count
    state: GroupState
    backlog: Count
    lag: Count
    partitions: list[LaneOut]
    deliveries: list[HeldOut]
    members: list[MemberOut]


class SeekIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group goes on: at one of `to`, `offset` and `timestamp`."""

    schema_extra: ClassVar[dict[str, Any]] = {
        **exactly_one("to", "offset", "timestamp"),
        "examples": [{"to": "earliest"}, {"offset": 17, "partition": 0}],
    }

    to: Literal["earliest", "latest"] | None = None
    offset: Offset | None = None
    timestamp: PastMoment | None = None
    partition: Annotated[int, Meta(ge=0, le=1023)] | None = None
    priority: Priority | None = None


class MessagePage(msgspec.Struct):
    """A part of a log. `next` is the offset to go on with; the log holds `start` up to before `end`."""

    messages: list[MessageOut]
    next: Count
    start: Count
    end: Count


class MessageList(msgspec.Struct):
    """Messages."""

    messages: list[MessageOut]


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
    priority: Lane
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


class EditIn(msgspec.Struct, forbid_unknown_fields=True):
    """What goes back in place of a dead letter. It has a `value` or a `value_base64`."""

    schema_extra: ClassVar[dict[str, Any]] = {
        **exactly_one("value", "value_base64"),
        "allOf": [at_most_one("key", "key_base64")],
        "examples": [{"value": "mended", "key": "k1", "headers": {"a": "1"}}],
    }

    value: str | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType | None = UNSET
    headers: dict[str, str | Base64] | None = None


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


class Purged(msgspec.Struct):
    """How many messages were taken out of the topic."""

    purged: Count


class CancelIn(msgspec.Struct, forbid_unknown_fields=True):
    """Which delayed messages."""

    schema_extra: ClassVar[dict[str, Any]] = {"examples": [{"ids": ["643f1a2b3c4d5-1-0"]}]}

    ids: Annotated[list[str], Meta(max_length=1000)]


class Cancelled(msgspec.Struct):
    """How many delayed messages were still waiting, and never come."""

    cancelled: Count


class Retried(msgspec.Struct):
    """How many messages have their next attempt now."""

    retried: Count


class ProblemOut(msgspec.Struct):
    """A part of the queue that does not work, and why; null stands for all of them."""

    message: str
    topic: str | None
    partition: Count | None
    priority: Lane | None
    group: str | None


class AlertOut(msgspec.Struct):
    """Something that is wrong, by a rule of that name, and since when it is known, in unix microseconds."""

    alert: str
    severity: Literal["page", "ticket"]
    summary: str
    topic: str | None
    group: str | None
    partition: Count | None
    priority: Lane | None
    value: float
    since: int


class Stats(msgspec.Struct):
    """Everything the queue can count, what does not work, and what is wrong, the worst first."""

    topics: dict[str, TopicFigures]
    messages: Count
    bytes: Count
    free_bytes: Count
    problems: list[ProblemOut]
    alerts: list[AlertOut]


class HistoryOut(msgspec.Struct):
    """The last hour: `times` of its points in unix microseconds, and a number for each in every series.

    `published`, `delivered` and `acked` are a second; what ends in `_p50` or `_p99` is in milliseconds.
    null is what nobody knows.
    """

    interval_ms: Count
    times: list[int]
    series: dict[str, list[float | None]]


class KeyOut(msgspec.Struct):
    """What a key allows. A scope includes those before it. The topic `>` is all."""

    is_required: bool
    id: str | None
    scope: KeyScope
    topics: list[str]


class CompactedOut(msgspec.Struct):
    """What was removed from the disk."""

    segments: Count
    messages: Count
    bytes: Count


class ArchiveIn(msgspec.Struct, forbid_unknown_fields=True):
    """Which directory is the archive; none is."""

    schema_extra: ClassVar[dict[str, Any]] = {"examples": [{"directory": "/mnt/archive"}]}

    directory: str | None


class ArchiveOut(msgspec.Struct):
    """Which directory is the archive; none is."""

    directory: str | None


class FindingOut(msgspec.Struct):
    """Something about a file that is not as it should be; only `damage` means loss."""

    kind: Literal["damage", "tail", "index", "gap"]
    path: str
    position: int
    end: int
    offsets: tuple[int, int | None]
    reason: str


class ReportOut(msgspec.Struct):
    """What a look at every byte saw."""

    is_sound: bool
    logs: Count
    segments: Count
    frames: Count
    messages: Count
    bytes: Count
    findings: list[FindingOut]


class Health(msgspec.Struct):
    """That the broker is there."""

    status: Literal["ok"] = "ok"
