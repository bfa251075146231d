"""What there is to compact: the sealed segments of the topics that want it, and the offsets to look at."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quivermq.client.core.wire import decoded, path_of
from quivermq.errors import InvalidRequest
from quivermq.spark.broker_place import BrokerPlace
from quivermq.spark.directory_place import DirectoryPlace
from quivermq.spark.place import Lane, Place
from quivermq.topic.names import Pattern, is_pattern
from quivermq.topic.partition import LANE_NUMBERS

_PAGE = 10_000


class SegmentPart(NamedTuple):
    """Offsets [start, end) of a lane that are read by one task: a segment, as a rule."""

    lane: Lane
    start: int
    end: int
    size_bytes: int
    is_sealed: bool


def chosen_topics(place: Place, topics: Iterable[str] | str | None) -> list[str]:
    """The topics to compact: those of these names and patterns that want it; without any, all that do.

    Raises InvalidRequest for a topic that was named and does not want it, and TopicNotFound.
    """
    known = place.origins()
    if topics is None:
        return [topic for topic, origin in known.items() if origin is None and _wants_it(place, topic)]
    texts = [text.strip() for text in (topics.split(",") if isinstance(topics, str) else topics)]
    if not texts:
        raise InvalidRequest("topics has no name in it: leave it out for all topics with cleanup=compact")
    named = {text for text in texts if not is_pattern(text)}
    for topic in sorted(named):
        _check_wants_it(place, topic)
    patterns = [Pattern(text) for text in texts if is_pattern(text)]
    own = [topic for topic, origin in known.items() if origin is None]
    matching = {t for t in own if any(p.matches(t, None) for p in patterns) and _wants_it(place, t)}
    return sorted(named | matching)


def _wants_it(place: Place, topic: str) -> bool:
    return place.settings(topic).cleanup == "compact"


def _check_wants_it(place: Place, topic: str) -> None:
    settings = place.settings(topic)
    if place.origin(topic) is not None:
        raise InvalidRequest(f"{topic} holds dead letters: each of them is kept, whatever its key")
    if settings.cleanup != "compact":
        raise InvalidRequest(
            f"{topic} has cleanup=delete, so every message of a key is kept:"
            f" `quiver topic alter {topic} --set cleanup=compact` lets only the latest stay"
        )


def parts_of(place: Place, topic: str) -> list[SegmentPart]:
    """The segments of a topic, each lane's oldest first."""
    if isinstance(place, BrokerPlace):
        return [part for part in _told_parts(place, topic) if part.end > part.start]
    assert isinstance(place, DirectoryPlace)
    found = []
    for lane, bounds in place.lanes(topic).items():
        if bounds.end > bounds.start:
            segments = place.follower(lane).segments
            found += [
                SegmentPart(lane, each.base_offset, each.end_offset, each.end, each is not segments[-1])
                for each in segments
                if each.end_offset > each.base_offset
            ]
    return found


def _told_parts(place: BrokerPlace, topic: str) -> Iterator[SegmentPart]:
    connection, after = place.connection, None
    while True:
        query = {"limit": str(_PAGE), **({} if after is None else {"after": after})}
        flow = connection.calls.ask("GET", path_of("topics", topic, "segments"), query=query)
        segments = decoded(connection.shell.run(flow).body)["segments"]
        for each in segments:
            lane = Lane(topic, each["partition"], each["priority"])
            yield SegmentPart(lane, each["base_offset"], each["end_offset"], each["bytes"], each["sealed"])
        if len(segments) < _PAGE:
            return
        last = segments[-1]
        after = f"{last['partition']}-{LANE_NUMBERS[last['priority']]}-{last['base_offset']}"
