"""Deduplication ids that another queue knew, taken over together with its messages."""

from collections.abc import Sequence

from quivermq.clock import SteadyClock
from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.frame import OFFSET_MAX
from quivermq.model.adoption import AdoptedId
from quivermq.model.checks import check_dedup_id, check_number, check_partition, moment_us
from quivermq.model.lanes import lane_number
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic.partition import Partition
from quivermq.topic.seen import ELSEWHERE
from quivermq.topic.sightings import Sighting

ADOPTED_MAX = 10_000


def adopted_sightings(
    adopted: Sequence[AdoptedId], settings: TopicSettings, partitions: list[Partition], clock: SteadyClock
) -> list[tuple[str, Sighting]]:
    """As if they had been seen here, so that each is forgotten when it would have been there.

    None is remembered for longer than the topic's window. Raises InvalidRequest, OffsetOutOfRange.
    """
    if len(adopted) > ADOPTED_MAX:
        raise InvalidRequest(f"at most {ADOPTED_MAX} ids are adopted at once, not {len(adopted)}")
    window_us, now_us = settings.dedup_window_ms * 1000, clock.now_us()
    sightings: list[tuple[str, Sighting]] = []
    for each in adopted:
        check_dedup_id(each.dedup_id)
        check_partition(each.partition, settings)
        lane = lane_number(each.priority)
        if each.offset is not None:
            _check_offset(partitions[each.partition], lane, each.offset)
        expires_us = clock.from_wall(moment_us("expires_at", each.expires_at))
        if now_us < expires_us and window_us:
            offset = ELSEWHERE if each.offset is None else each.offset
            seen_us = min(now_us, expires_us - window_us)
            sightings.append((each.dedup_id, Sighting(seen_us, each.partition, lane, offset)))
    return sightings


def _check_offset(partition: Partition, lane: int, offset: int) -> None:
    check_number("offset", offset, 0, OFFSET_MAX)
    log = partition.logs[lane]
    end = 0 if log is None else log.end
    if offset >= end:
        raise OffsetOutOfRange(offset, start=0, end=end)
