"""Dead letters as columns: the story of each is taken out of its headers, for a whole batch at once."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quivermq.delivery.dead_letters import STORY_NAMES, STORY_PREFIX, holds_dead_letters
from quivermq.frame import Header
from quivermq.frame.arrow import HEADERS, TIME
from quivermq.spark.batches import SCHEMA as MESSAGES
from quivermq.spark.batches import record_batches
from quivermq.spark.place import Lane, Place
from quivermq.spark.tables.schemas import DEAD_LETTERS
from quivermq.topic.partition import LANES

_STORY = [STORY_PREFIX + name for name in STORY_NAMES]
_PRIORITIES = pa.array(LANES)
# As the queue itself reads them: fewer digits than would not fit.
_NUMBER = r"^-?[0-9]{1,18}$"
# The years 1 to 9999.
_FIRST_US = -62_135_596_800_000_000
_END_US = 253_402_300_800_000_000


def dead_letter_batches(place: Place, lane: Lane, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The dead letters of a lane of a dead-letter topic; those that went back are not there.

    Those that were put there by hand come last: only of the others the headers are believed.
    """
    origin = place.origin(lane.topic) or lane.topic
    by_hand = False

    def is_wanted(header: Header) -> bool:
        nonlocal by_hand
        by_hand |= not holds_dead_letters(header)
        return holds_dead_letters(header)

    for batch in record_batches(place, lane, start, end, wanted=is_wanted):
        yield with_story(batch, origin)
    if by_hand:
        for batch in record_batches(
            place, lane, start, end, wanted=lambda header: not holds_dead_letters(header)
        ):
            yield without_story(batch, origin)


def without_story(batch: pa.RecordBatch, origin: str) -> pa.RecordBatch:
    """Messages that somebody put there, with the headers that they have."""
    rows = batch.num_rows
    columns = {name: batch.column(name) for name in MESSAGES.names} | {
        "origin_topic": pa.repeat(origin, rows),
        "origin_partition": batch.column("partition"),
        "origin_priority": batch.column("priority"),
        "origin_offset": batch.column("offset"),
        "origin_timestamp": batch.column("timestamp"),
        "attempts": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "died_at": batch.column("timestamp"),
    }
    columns |= {name: pa.repeat("", rows) for name in ("reason", "error", "group")}
    return pa.RecordBatch.from_arrays([columns[name] for name in DEAD_LETTERS.names], schema=DEAD_LETTERS)


def with_story(batch: pa.RecordBatch, origin: str) -> pa.RecordBatch:
    """Messages of a dead-letter topic that were given up, their story as columns."""
    told, headers = _told(batch.column("headers"))
    own = {name: batch.column(name) for name in MESSAGES.names} | {"headers": headers}
    priority = _text(told["priority"])
    columns = {
        **own,
        "origin_topic": pa.repeat(origin, batch.num_rows),
        "origin_partition": _number(told["partition"], pa.scalar(0)).cast(pa.int32(), safe=False),
        "origin_priority": pc.if_else(pc.is_in(priority, value_set=_PRIORITIES), priority, "normal"),
        "origin_offset": _number(told["offset"], own["offset"]),
        "origin_timestamp": _time(told["timestamp"], own["timestamp"]),
        "attempts": _number(told["attempts"], pa.scalar(0)).cast(pa.int32(), safe=False),
        "reason": _text(told["reason"]),
        "error": _text(told["error"]),
        "group": _text(told["group"]),
        "died_at": _time(told["time"], own["timestamp"]),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DEAD_LETTERS.names], schema=DEAD_LETTERS)


def _told(headers: pa.ListArray) -> tuple[dict[str, pa.Array], pa.ListArray]:
    """What the story says by name, null where it says nothing, and the headers that are not of it."""
    rows, parents = len(headers), pc.list_parent_indices(headers).to_numpy()
    pairs = pc.list_flatten(headers)
    names, values = pairs.field("key"), pairs.field("value")
    told = {}
    for name in STORY_NAMES:
        at = np.flatnonzero(pc.equal(names, STORY_PREFIX + name).to_numpy(zero_copy_only=False))
        place = np.full(rows, -1, np.int64)
        # Of a name that is given twice, the last one counts.
        place[parents[at]] = at
        told[name] = values.take(pa.array(place, mask=place < 0))
    is_own = pc.invert(pc.is_in(names, value_set=pa.array(_STORY)))
    counts = np.bincount(parents[is_own.to_numpy(zero_copy_only=False)], minlength=rows)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    own = pa.ListArray.from_arrays(pa.array(offsets), pairs.filter(is_own))
    return told, own.cast(HEADERS)


def _text(told: pa.Array) -> pa.Array:
    """As text, empty where nothing is told. What is not UTF-8 was put there by hand."""
    try:
        return pc.fill_null(told.cast(pa.string()), "")
    except pa.ArrowInvalid:
        return pa.array([(each or b"").decode(errors="replace") for each in told.to_pylist()], pa.string())


def _number(told: pa.Array, fallback: pa.Array | pa.Scalar) -> pa.Array:
    text = _text(told)
    is_number = pc.match_substring_regex(text, _NUMBER)
    return pc.coalesce(pc.if_else(is_number, text, None).cast(pa.int64()), fallback.cast(pa.int64()))


def _time(told: pa.Array, fallback: pa.Array) -> pa.Array:
    own = fallback.cast(pa.int64())
    time_us = _number(told, own)
    # What lies outside was put there by hand, and neither Python nor Spark has a word for it.
    is_moment = pc.and_(pc.greater_equal(time_us, _FIRST_US), pc.less(time_us, _END_US))
    return pc.if_else(is_moment, time_us, own).cast(TIME)
