"""Messages and results as JSON has them, both ways."""

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quivermq.clock import SteadyClock, SystemClock
from quivermq.errors import QuiverError
from quivermq.frame import Wanted
from quivermq.log.verify import LogFinding, Report
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.checks import Period, moment_us
from quivermq.model.dead_letters import DeadLetter, dlq_headers
from quivermq.model.messages import FirstFrame, Message, ProducerState, Put, Scheduled, StoredMessage
from quivermq.model.stats import Alert, Compacted, EngineStats, QueueStats, TopicStats
from quivermq.model.topic_settings import PARTITIONS_MAX, TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.incoming import Batch, check_messages

# Only what no broker can take is refused here; its own limits are its own to tell.
_BYTES_MAX = 2**31 - 1
_WIDEST = StorageSettings(
    message_bytes_max=_BYTES_MAX // 2, frame_bytes_max=_BYTES_MAX, frame_raw_bytes_max=_BYTES_MAX
)
_ANY_TOPIC = TopicSettings(partitions=PARTITIONS_MAX)
_CLOCK = SteadyClock(SystemClock())
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def path_of(*parts: str | int) -> str:
    """A path whose parts may hold anything."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def encoded(document: Mapping[str, Any]) -> bytes:
    """JSON, in which a thing that JSON has no type for is what it looks like."""
    return _encode(document).encode()


def decoded(body: bytes) -> Any:
    """What an answer says. Raises QuiverError when it is not JSON."""
    try:
        return json.loads(body)
    except ValueError:
        raise QuiverError(f"the answer is not JSON: {body[:80]!r}") from None


# In.


def progress_json(progress: Progress) -> dict[str, Any]:
    """How far a group came."""
    tried = [{"start": run.start, "end": run.end, "attempts": run.attempts} for run in progress.tried]
    return {"tried": tried} | ({} if progress.position is None else {"position": progress.position})


def adopted_id_json(adopted: AdoptedId) -> dict[str, Any]:
    """A deduplication id that another queue knew."""
    return {name: value for name, value in asdict(adopted).items() if value is not None}


def checked(message: Message) -> Batch:
    """Raise InvalidRequest for a message that could not be put anywhere."""
    return check_messages([message], _ANY_TOPIC, _WIDEST, _CLOCK)


def message_json(message: Message) -> dict[str, Any]:
    """A message to put. Raises InvalidRequest."""
    incoming = checked(message)
    key, headers, timestamp, _, dedup_id = incoming.rest(0)
    document: dict[str, Any] = {"value_base64": _base64(incoming.values[0])}
    if key is not None:
        document["key_base64"] = _base64(key)
    if headers:
        document["headers"] = {name: {"base64": _base64(content)} for name, content in headers.items()}
    if message.priority != "normal":
        document["priority"] = message.priority
    if message.ttl is not None:
        document["ttl_ms"] = milliseconds(message.ttl)
    if message.delay is not None:
        document["delay_ms"] = milliseconds(message.delay)
    if message.dedup_window is not None:
        document["dedup_window_ms"] = milliseconds(message.dedup_window)
    if message.deliver_at is not None:
        document["deliver_at"] = moment_us("deliver_at", message.deliver_at)
    plain = {"timestamp": timestamp, "dedup_id": dedup_id, "partition": message.partition}
    return document | {name: value for name, value in plain.items() if value is not None}


def wanted_query(wanted: Wanted) -> dict[str, str]:
    """What to look for, as parameters of a call."""
    query: dict[str, str] = {}
    if wanted.key is not None:
        query["key_base64"] = _base64(wanted.key)
    if wanted.text:
        query["text_base64"] = _base64(wanted.text)
    return query


def milliseconds(seconds: Period) -> int:
    """Seconds as the broker counts them, never less than were meant."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    return ceil(round(seconds * 1000, 3))


def _base64(content: bytes) -> str:
    return b2a_base64(content, newline=False).decode()


# Out.


def put_of(told: Mapping[str, Any]) -> Put:
    """Where a message is."""
    return Put(
        told["topic"],
        told["partition"],
        told["priority"],
        told.get("offset"),
        bool(told.get("duplicate", False)),
        told.get("scheduled_id"),
    )


def producer_state_of(told: Mapping[str, Any]) -> ProducerState:
    """What a producer is told that begins anew."""
    batches = [FirstFrame(one["partition"], one["priority"], one["offset"]) for one in told["batches"]]
    # A broker of before says nothing of it.
    return ProducerState(told["epoch"], batches, told.get("known_since_us", 0))


def stored_message_of(told: Mapping[str, Any]) -> StoredMessage:
    """A message of the log."""
    return StoredMessage(
        topic=told["topic"],
        partition=told["partition"],
        priority=told["priority"],
        offset=told["offset"],
        timestamp=told["timestamp"],
        key=_key(told),
        value=_value(told),
        headers=_headers(told),
        expires_at=told.get("expires_at"),
        dedup_id=told.get("dedup_id"),
        scheduled_id=told.get("scheduled_id"),
    )


def dead_letter_of(told: Mapping[str, Any]) -> DeadLetter:
    """A message that was given up."""
    origin = told["origin"]
    story = (
        *(origin[name] for name in ("topic", "partition", "priority", "offset")),
        *(told[name] for name in ("timestamp", "attempts", "reason", "error", "group", "died_at")),
    )
    headers = _headers(told)
    by_hand = told["by_hand"]
    if not by_hand:
        headers |= dlq_headers(story)
    letter = DeadLetter(told["id"], _value(told), _key(told), headers, *story)
    return letter._replace(by_hand=by_hand, scheduled_id=told.get("scheduled_id"))


def scheduled_of(told: Mapping[str, Any]) -> Scheduled:
    """A message that waits."""
    return Scheduled(
        id=told["id"],
        deliver_at=told["deliver_at"],
        partition=told["partition"],
        priority=told["priority"],
        key=_key(told),
        value=_value(told),
        headers=_headers(told),
        timestamp=told["timestamp"],
        expires_at=told.get("expires_at"),
        dedup_id=told.get("dedup_id"),
    )


def queue_stats_of(told: Mapping[str, Any]) -> QueueStats:
    """How far a group has come."""
    names = (
        "topic",
        "group",
        "pending",
        "in_flight",
        "retrying",
        "waiting_for_key",
        "delayed",
        "dead_letters",
        "state",
    )
    return QueueStats(**{name: told[name] for name in names})


def topic_stats_of(name: str, told: Mapping[str, Any]) -> TopicStats:
    """What there is in a topic."""
    return TopicStats(
        topic=name,
        partitions=told["partitions"],
        messages=told["messages"],
        bytes=told["bytes"],
        delayed=told["delayed"],
        dead_letters=told["dead_letters"],
        dead_letters_of=told["dead_letters_of"],
        groups={
            group: queue_stats_of({"topic": name, "group": group, **stats})
            for group, stats in told["groups"].items()
        },
    )


def engine_stats_of(told: Mapping[str, Any]) -> EngineStats:
    """What there is in all topics."""
    topics = {name: topic_stats_of(name, topic) for name, topic in sorted(told["topics"].items())}
    alerts = [Alert(**alert) for alert in told["alerts"]]
    return EngineStats(topics, told["messages"], told["bytes"], told["free_bytes"], alerts)


def compacted_of(told: Mapping[str, Any]) -> Compacted:
    """What was removed."""
    return Compacted(told["segments"], told["messages"], told["bytes"])


def report_of(told: Mapping[str, Any]) -> Report:
    """What a verification saw."""
    report = Report(*(told[name] for name in ("logs", "segments", "frames", "messages", "bytes")))
    for finding in told["findings"]:
        report.findings.append(finding_of(finding))
    return report


def finding_of(told: Mapping[str, Any]) -> LogFinding:
    """Something that a verification found."""
    return LogFinding(**{**told, "path": Path(told["path"]), "offsets": tuple(told["offsets"])})


def _value(told: Mapping[str, Any]) -> bytes:
    if "value_base64" in told:
        return a2b_base64(told["value_base64"])
    text: str = told["value"]
    return text.encode()


def _key(told: Mapping[str, Any]) -> bytes | None:
    if told.get("key_base64") is not None:
        return a2b_base64(told["key_base64"])
    text: str | None = told.get("key")
    return None if text is None else text.encode()


def _headers(told: Mapping[str, Any]) -> dict[str, bytes]:
    return {
        name: content.encode() if isinstance(content, str) else a2b_base64(content["base64"])
        for name, content in (told.get("headers") or {}).items()
    }
