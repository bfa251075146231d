"""Everything that a queue knows, fact by fact, so that what it knew before can be held against it.

A fact that cannot be told is the error that says why. Of a lane, what lies before the damage is told even
then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quivermq.chaos.expectation import Unkept, expect
from quivermq.disk import Disk
from quivermq.engine import Engine
from quivermq.errors import Corruption, DiskRefused, InvalidSettings, NotFound, QuiverError, StorageFailed
from quivermq.server.keys import list_keys

_MANY = 100_000
_LANES = ("high", "normal", "low")

Fact = tuple[str, ...]
Facts = dict[Fact, Any]
Gaps = dict[Fact, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Untold:
    """What stands in place of a fact that is lost, and everything that could still be told of it."""

    error: QuiverError
    rest: tuple[Any, ...] = ()
    is_partial: bool = False


def facts_of(engine: Engine, topics: list[str], dedup_ids: list[str], disk: Disk | None = None) -> Facts:
    """Every fact about topics. Nothing is changed by asking."""
    found: Facts = {("keys",): _told(list_keys, engine.path, disk=disk)}
    for topic in topics:
        found[topic, "settings"] = _told(engine.topic, topic)
        found[topic, "scheduled"] = _told(_scheduled, engine, topic)
        found[topic, "dedup"] = _told(_known, engine, topic, dedup_ids)
        found |= _lanes(engine, topic)
        found |= _groups(engine, topic)
    return found


def _told(ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return ask(*arguments, **options)
    except (StorageFailed, DiskRefused, NotFound, InvalidSettings) as error:
        return Untold(error)


def _scheduled(engine: Engine, topic: str) -> tuple[tuple[int, bytes], ...]:
    return tuple((waiting.deliver_at, waiting.value) for waiting in engine.queue(topic).scheduled())


def _known(engine: Engine, topic: str, dedup_ids: list[str]) -> tuple[str, ...]:
    hosted = engine.hosted(topic).topic
    return tuple(name for name in dedup_ids if hosted.is_known(name))


def _lanes(engine: Engine, topic: str) -> Facts:
    try:
        partitions = engine.topic(topic).partitions
    except QuiverError as error:
        return {(topic, "lanes"): Untold(error)}
    return {
        (topic, "lane", str(partition), priority): _lane(engine, topic, partition, priority)
        for partition in range(partitions)
        for priority in _LANES
    }


def _lane(engine: Engine, topic: str, partition: int, priority: str) -> Any:
    """The messages of a lane; where some cannot be read, the error, and those that can."""
    queue = engine.queue(topic)
    start: int | None = None
    rest: list[Any] = []
    first: QuiverError | None = None
    while True:
        try:
            records = queue.read(partition, start, _MANY, priority=priority)
        except Corruption as error:
            first = first or error
            behind = error.offsets[1]
            rest += _before(queue, partition, priority, start, error.offsets[0])
            if behind is None or behind <= (start or 0):
                break
            start = behind
            continue
        except QuiverError as error:
            return Untold(error)
        if not records:
            break
        rest += [_message(record) for record in records]
        start = records[-1].offset + 1
    return tuple(rest) if first is None else Untold(first, tuple(rest), is_partial=True)


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


def _groups(engine: Engine, topic: str) -> Facts:
    """How far each group has come, and what it has in hand."""
    try:
        hosted = engine.hosted(topic)
    except QuiverError as error:
        return {(topic, "groups"): Untold(error)}
    found: Facts = {(topic, "groups"): tuple(sorted({*hosted.groups, *hosted.broken_groups}))}
    for name, group in list(hosted.groups.items()):
        for cursor in group.cursors:
            found[topic, "group", name, str(cursor.partition)] = (
                tuple(cursor.floors()),
                tuple(tuple(cursor.unfinished(lane, 0, -1, _MANY)) for lane in range(len(_LANES))),
            )
    for name, failure in hosted.broken_groups.items():
        for partition in range(hosted.settings.partitions):
            found[topic, "group", name, str(partition)] = Untold(failure)
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
        if isinstance(now, Untold):
            lost.append(name)
            _check_rest(name, value, now, where)
        elif now != value:
            _check_gaps(name, value, now, where, (gaps or {}).get(name, ()))
            lost.append(name)
    return lost


def _check_rest(name: Fact, value: Any, now: Untold, where: str) -> None:
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
        raise Unkept(f"{where}: {name} was {value!r:.300} and is {now!r:.300}")
    lost = [message for message in value if any(start <= message[0] < end for start, end in gaps)]
    kept = [message for message in value if message not in lost]
    again = now[len(kept) :]
    expect(
        list(now[: len(kept)]) == kept and {message[1] for message in again} <= {m[1] for m in lost},
        f"{where}: {name} has {len(now)} of {len(value)} messages, and the gaps {gaps}",
    )
