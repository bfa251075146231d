"""Everything that the broker can count, at one moment, as JSON has it: what `/v1/stats` and events tell."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from quivermq.engine.activity import Problem, TopicActivity
from quivermq.engine.stats import EngineStats, TopicStats
from quivermq.errors import DiskFull
from quivermq.server.broker import Broker

# Whether somebody is to know of a topic.
Wanted = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at the queue."""

    stats: EngineStats
    activity: dict[str, TopicActivity]
    problems: list[Problem]


def look(broker: Broker) -> Figures:
    """Look now. For a thread: it may read from the disk."""
    engine = broker.engine
    problems = engine.problems()
    if (reason := why_not_ready(broker)) is not None:
        problems.insert(0, Problem(reason))
    return Figures(engine.stats(), engine.activity(), problems)


def why_not_ready(broker: Broker) -> str | None:
    """Why no messages are taken, if that is so, without the paths of this machine."""
    if broker.is_draining:
        return "the broker is stopping"
    if broker.failure is not None:
        return "the disk failed to keep messages: see the log, then start the broker again"
    try:
        broker.engine.check_space()
    except DiskFull:
        return "the disk is full: free some room"
    return None


def told(figures: Figures, wanted: Wanted) -> dict[str, Any]:
    """The figures with only the topics that are wanted."""
    topics = {name: topic for name, topic in figures.stats.topics.items() if wanted(name)}
    return {
        "topics": {name: _topic(topic, figures.activity.get(name)) for name, topic in topics.items()},
        "messages": sum(topic.messages for topic in topics.values()),
        "bytes": sum(topic.bytes for topic in topics.values()),
        "free_bytes": figures.stats.free_bytes,
        "problems": [asdict(each) for each in figures.problems if each.topic is None or wanted(each.topic)],
    }


def _topic(stats: TopicStats, activity: TopicActivity | None) -> dict[str, Any]:
    """A topic or group that came between the two looks has not done anything yet."""
    done = activity or TopicActivity(0)
    figures = {**stats.as_dict(), "published": done.published}
    for name, group in figures["groups"].items():
        group.update(asdict(done.groups[name]) if name in done.groups else _NOTHING)
    return figures


_NOTHING = {"delivered": 0, "acked": 0, "oldest_unacked_ms": 0}
