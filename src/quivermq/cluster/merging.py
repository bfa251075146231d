"""What several shards say of one thing, put together. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from quivermq.model.deliveries import InFlight
from quivermq.model.lanes import lane_number
from quivermq.model.messages import ProducerState, Scheduled, StoredMessage, Timeline
from quivermq.model.operations import TopicExtent
from quivermq.model.stats import (
    Alert,
    Compacted,
    EngineStats,
    QueueStats,
    Report,
    TopicInfo,
    TopicStats,
    stats_of_all,
)
from quivermq.model.topic_settings import TopicSettings

T = TypeVar("T")


def whole_settings(settings: TopicSettings) -> TopicSettings:
    """The settings of a topic, not of one of its shares."""
    return settings if settings.spread_index is None else replace(settings, spread_index=None)


def whole_info(info: TopicInfo) -> TopicInfo:
    return replace(info, settings=whole_settings(info.settings))


def merged_extent(each: Sequence[TopicExtent]) -> TopicExtent:
    """All lanes of a topic. It was created when its first share was."""
    first = each[0]
    lanes = {lane: bounds for extent in each for lane, bounds in extent.lanes.items()}
    return TopicExtent(
        min(extent.created_us for extent in each),
        whole_settings(first.settings),
        dict(sorted(lanes.items(), key=lambda item: (item[0].partition, lane_number(item[0].priority)))),
        first.dead_letters_of,
    )


def merged_topic(each: Sequence[TopicStats]) -> TopicStats:
    """The figures of a topic, of which each shard has a share."""
    if len(each) == 1:
        return each[0]
    first = each[0]
    names = sorted({name for stats in each for name in stats.groups})
    return TopicStats(
        topic=first.topic,
        partitions=max(stats.partitions for stats in each),
        messages=sum(stats.messages for stats in each),
        bytes=sum(stats.bytes for stats in each),
        delayed=sum(stats.delayed for stats in each),
        dead_letters=sum(stats.dead_letters for stats in each),
        dead_letters_of=first.dead_letters_of,
        groups={name: _merged_group(first.topic, name, each) for name in names},
    )


def _merged_group(topic: str, name: str, each: Sequence[TopicStats]) -> QueueStats:
    """A group that was never in one of the shards has everything there before it."""
    return stats_of_all(
        topic,
        name,
        [
            stats.groups.get(name)
            or QueueStats(
                topic, name, stats.messages, delayed=stats.delayed, dead_letters=stats.dead_letters
            )
            for stats in each
        ],
    )


def merged_stats(each: Sequence[EngineStats]) -> EngineStats:
    """The figures of a cluster. The least free space counts: who has it stops first."""
    topics: dict[str, list[TopicStats]] = {}
    for stats in each:
        for name, topic in stats.topics.items():
            topics.setdefault(name, []).append(topic)
    alerts: list[Alert] = [alert for stats in each for alert in stats.alerts]
    return EngineStats(
        {name: merged_topic(topics[name]) for name in sorted(topics)},
        sum(stats.messages for stats in each),
        sum(stats.bytes for stats in each),
        min((stats.free_bytes for stats in each), default=0),
        sorted(alerts, key=lambda alert: alert.severity != "page"),
    )


def merged_compacted(each: Iterable[Compacted]) -> Compacted:
    listed = list(each)
    return Compacted(
        sum(one.segments for one in listed),
        sum(one.messages for one in listed),
        sum(one.bytes for one in listed),
    )


def merged_report(each: Iterable[Report]) -> Report:
    """What verifications of all shards saw."""
    report = Report()
    for one in each:
        report.logs += one.logs
        report.segments += one.segments
        report.frames += one.frames
        report.messages += one.messages
        report.bytes += one.bytes
        report.findings += one.findings
    return report


def merged_state(each: Sequence[ProducerState]) -> ProducerState:
    """A producer in all shards of a topic. Its epoch is the highest, which every shard takes."""
    return ProducerState(
        max(state.epoch for state in each),
        sorted(batch for state in each for batch in state.batches),
        max(state.known_since_us for state in each),
    )


def merged_timeline(each: Sequence[Timeline]) -> Timeline:
    """Timelines of the same end and number of spans."""
    return Timeline(
        min(one.start for one in each),
        max(one.end for one in each),
        [sum(counts) for counts in zip(*(one.counts for one in each), strict=True)],
        sum(one.later for one in each),
    )


def in_order(
    each: Iterable[Iterable[T]], place: Callable[[T], tuple[object, ...]], limit: int | None
) -> list[T]:
    """What several lists have, in order, `limit` at most."""
    found = [item for items in each for item in items]
    return sorted(found, key=place)[:limit]


def place_of_message(message: StoredMessage) -> tuple[object, ...]:
    return message.partition, lane_number(message.priority), message.offset


def place_in_flight(held: InFlight) -> tuple[object, ...]:
    return held.topic, held.partition, lane_number(held.priority), held.offset


def place_of_id(dead_letter_id: str) -> tuple[object, ...]:
    """Where a dead letter lies: its partition, its lane and its offset."""
    return tuple(map(int, dead_letter_id.split("-")))


def merged_scheduled(each: Sequence[Sequence[Scheduled]], limit: int | None) -> list[Scheduled]:
    """The next one first; of those that are due at the same time, one of each shard in turn."""
    found = [
        (one.deliver_at, at, index, one) for index, some in enumerate(each) for at, one in enumerate(some)
    ]
    return [one for *_, one in sorted(found, key=lambda item: item[:3])][:limit]


def first_of(each: Mapping[int, T]) -> T:
    return next(iter(each.values()))
