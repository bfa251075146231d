"""What an engine shows of a topic, as the model wants to see it. Looking changes nothing."""

from typing import Any

from support.queue_model.messages import (
    PRIORITIES,
    DeadRecord,
    LaneRecord,
    Place,
    Priority,
    Shown,
    number_in,
)
from support.queue_model.topic import TopicModel

_PREFIX = "quiver-dlq-"
_TOLD = {"topic", "partition", "priority", "offset", "timestamp", "attempts", "reason", "error"}
_TOLD |= {"group", "time"}
_ALL = 100_000


def look(engine: Any, topic: str, model: TopicModel, *, everything: bool = False) -> Shown:
    """The lanes behind what the model has seen, or from their beginnings; what waits; and what died."""
    queue = engine.queue(topic)
    # First, because what is due goes to its lane when somebody asks for what is not.
    scheduled = {waiting.id: number_in(waiting.value) for waiting in queue.scheduled()}
    starts, records = {}, []
    for partition in range(engine.topic(topic).partitions):
        for priority in PRIORITIES:
            found = queue.read(partition, None, _ALL, priority=priority)
            seen = 0 if everything else model.ends.get((partition, priority), 0)
            starts[partition, priority] = found[0].offset if found else seen
            records += [_lane_record(partition, priority, each) for each in found if each.offset >= seen]
    return Shown(starts, records, scheduled, _dead(engine, topic))


def _lane_record(partition: int, priority: Priority, record: Any) -> LaneRecord:
    place = Place(partition, priority, record.offset)
    return LaneRecord(place, record.value, record.key, dict(record.headers))


def _dead(engine: Any, topic: str) -> list[DeadRecord]:
    name = f"{topic}.dlq"
    if name not in engine.topics():
        return []
    queue = engine.queue(name)
    return [
        _dead_record(topic, partition, record)
        for partition in range(engine.topic(name).partitions)
        for record in queue.read(partition, None, _ALL)
    ]


def _dead_record(topic: str, partition: int, record: Any) -> DeadRecord:
    told = {
        name.removeprefix(_PREFIX): value.decode()
        for name, value in record.headers.items()
        if name.startswith(_PREFIX)
    }
    assert told.keys() == _TOLD
    assert told["topic"] == topic
    priority = next(each for each in PRIORITIES if each == told["priority"])
    return DeadRecord(
        partition,
        record.offset,
        record.value,
        record.key,
        {name: value for name, value in record.headers.items() if not name.startswith(_PREFIX)},
        told["group"],
        Place(int(told["partition"]), priority, int(told["offset"])),
        int(told["attempts"]),
        told["reason"],
        told["error"],
    )
