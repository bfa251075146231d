"""Everything that a queue knows, as facts that can be compared.

A fact that cannot be had any more is the error that says why.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quivermq.chaos import Violation, expect
from quivermq.disk import Disk
from quivermq.engine import engine_of
from quivermq.errors import (
    Corruption,
    DiskRefused,
    InvalidSettings,
    NotFound,
    QuiverError,
    StorageFailed,
)
from quivermq.model.lanes import priority_of
from quivermq.queue.connection import Connection
from quivermq.server.keys import list_keys

_LANES = ("high", "normal", "low")

Fact = tuple[str, ...]
Facts = dict[Fact, Any]
Gaps = dict[Fact, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Lost:
    """What stands in place of a fact that is lost, and everything of it that could still be read."""

    error: QuiverError
    rest: tuple[Any, ...] = ()
    is_partial: bool = False


def facts_of(
    engine: Connection, topics: list[str], dedup_ids: list[str], disk: Disk | None = None
) -> Facts:
    """Every fact about topics. Nothing is changed by asking."""
    found: Facts = {("keys",): _fact(list_keys, engine_of(engine).path, disk=disk)}
    for topic in topics:
        found[topic, "settings"] = _fact(engine.topic, topic)
        found[topic, "scheduled"] = _fact(_scheduled, engine, topic)
        found[topic, "dedup"] = _fact(_known, engine, topic, dedup_ids)
        found |= _lanes(engine, topic)
        found |= _groups(engine, topic)
    return found


def _fact(ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return ask(*arguments, **options)
    except (StorageFailed, DiskRefused, NotFound, InvalidSettings) as error:
        return Lost(error)


def _scheduled(engine: Connection, topic: str) -> tuple[tuple[int, bytes], ...]:
    return tuple((waiting.deliver_at, waiting.value) for waiting in engine.queue(topic).scheduled())


def _known(engine: Connection, topic: str, dedup_ids: list[str]) -> tuple[str, ...]:
    found = engine_of(engine).catalog.get(topic).topic
    return tuple(name for name in dedup_ids if found.is_known(name))


def _lanes(engine: Connection, topic: str) -> Facts:
    try:
        partitions = engine.topic(topic).partitions
    except QuiverError as error:
        return {(topic, "lanes"): Lost(error)}
    return {
        (topic, "lane", str(partition), priority): _lane(engine, topic, partition, priority)
        for partition in range(partitions)
        for priority in _LANES
    }


def _lane(engine: Connection, topic: str, partition: int, priority: str) -> Any:
    """The messages of a lane; where some cannot be read, the error, and those that can."""
    queue = engine.queue(topic)
    start: int | None = None
    rest: list[Any] = []
    first: QuiverError | None = None
    while True:
        try:
            records = queue.read(partition, start, 100_000, priority=priority_of(priority))
        except Corruption as error:
            first = first or error
            behind = error.offsets[1]
            rest += _before(queue, partition, priority, start, error.offsets[0])
            if behind is None or behind <= (start or 0):
                break
            start = behind
            continue
        except QuiverError as error:
            return Lost(error)
        if not records:
            break
        rest += [_message(record) for record in records]
        start = records[-1].offset + 1
    return tuple(rest) if first is None else Lost(first, tuple(rest), is_partial=True)


def _before(queue: Any, partition: int, priority: str, start: int | None, end: int) -> list[Any]:
    """What can be read up to a damage."""
    limit = end - (start or 0)
    if limit <= 0:
        return []
    try:
        return [_message(r) for r in queue.read(partition, start, limit, priority=priority)]
    except QuiverError:
        return []


def _message(record: Any) -> tuple[Any, ...]:
    return record.offset, record.value, record.key, tuple(sorted(record.headers.items())), record.timestamp


def _groups(engine: Connection, topic: str) -> Facts:
    """How far each group has come, and what it has in hand."""
    try:
        opened = engine_of(engine).catalog.get(topic)
    except QuiverError as error:
        return {(topic, "groups"): Lost(error)}
    found: Facts = {(topic, "groups"): tuple(sorted({*opened.groups, *opened.broken_groups}))}
    for name, group in list(opened.groups.items()):
        for cursor in group.cursors.values():
            found[topic, "group", name, str(cursor.partition)] = (
                tuple(cursor.floors()),
                tuple(tuple(cursor.unfinished(lane, 0, -1, 100_000)) for lane in range(len(_LANES))),
            )
    for name, failure in opened.broken_groups.items():
        for partition in opened.settings.own_partitions:
            found[topic, "group", name, str(partition)] = Lost(failure)
    return found


def compare(before: Facts, after: Facts, where: str, gaps: Gaps | None = None) -> list[Fact]:
    """Hold facts against those of before: what is not the same must say so. Returns what was lost.

    `gaps` are ranges of lanes that are known to be lost, and reported as such.
    """
    lost: list[Fact] = []
    for name, value in before.items():
        now = after.get(name)
        if now is None:
            # A topic that was set aside as a whole.
            now = after[name[0], "lanes"]
        if isinstance(now, Lost):
            lost.append(name)
            _check_rest(name, value, now, where)
        elif now != value:
            _check_gaps(name, value, now, where, (gaps or {}).get(name, ()))
            lost.append(name)
    return lost


def _check_rest(name: Fact, value: Any, now: Lost, where: str) -> None:
    """Of a damaged lane, all before the damage can be read; what lies behind it waits for a repair."""
    expect(str(now.error), f"{where}: {name} is lost without a word")
    if isinstance(now.error, Corruption) and now.is_partial:
        start = now.error.offsets[0]
        kept = tuple(message for message in value if message[0] < start)
        expect(now.rest[: len(kept)] == kept, f"{where}: {name} does not show what lies before the damage")
        expect(set(now.rest) <= set(value), f"{where}: {name} has what was never put")


def _check_gaps(name: Fact, value: Any, now: Any, where: str, gaps: Sequence[tuple[int, int]]) -> None:
    """A lane may lack what is reported as a gap. What was on its way to it may have come once more."""
    if name[1] == "scheduled" and gaps:
        expect(set(now) <= set(value), f"{where}: {name} has what was never put")
        return
    if name[1] != "lane":
        raise Violation(f"{where}: {name} was {value!r:.300} and is {now!r:.300}")
    lost = [message for message in value if any(start <= message[0] < end for start, end in gaps)]
    kept = [message for message in value if message not in lost]
    again = now[len(kept) :]
    expect(
        list(now[: len(kept)]) == kept and {message[1] for message in again} <= {m[1] for m in lost},
        f"{where}: {name} has {len(now)} of {len(value)} messages, and the gaps {gaps}",
    )
