"""Everything that the broker can count, at one moment: as JSON, as what is new since, and for Prometheus.

A listener of events gets everything once, with the number of its version. From then on it gets what is
different from the version before, as a JSON merge patch (RFC 7396) of topics and groups: what is not there
is as it was, null is gone. Who missed one sees it by the number, and asks anew. When a topic is gone,
everything is told once more. The difference is made once, and each listener's part of it is chosen by
topic.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from quivermq.engine.activity import GroupActivity, Problem, TopicActivity
from quivermq.engine.statistics import Survey
from quivermq.errors import DiskFull
from quivermq.metrics import Sample
from quivermq.model.stats import TopicStats
from quivermq.model.turns import in_turns
from quivermq.server.broker import Broker

T = TypeVar("T")
# Whether somebody is to know of a topic.
Wanted = Callable[[str], bool]

# Moves with every look while nothing happens; `oldest_unacked_at` says the same and stays.
_ALWAYS_NEW = "oldest_unacked_ms"

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def look(broker: Broker) -> Survey:
    """Look now. For a thread: it may read from the disk."""
    reason, hide = why_not_ready(broker), broker.hiding.text
    survey = broker.engine.survey([] if reason is None else [Problem(reason)])
    return replace(
        survey,
        problems=[replace(each, message=hide(each.message)) for each in survey.problems],
        stats=replace(
            survey.stats,
            alerts=[replace(each, summary=hide(each.summary)) for each in survey.stats.alerts],
        ),
    )


def why_not_ready(broker: Broker) -> str | None:
    """Why no messages are taken, if that is so, without the paths of this machine."""
    if broker.is_draining:
        return "the broker is stopping"
    if broker.failure is not None:
        return "the disk failed to keep messages: see the log, then start the broker again"
    if broker.engine.lost is not None:
        return "another process has taken over the queue: this broker ends"
    if broker.engine.is_fenced:
        return "a log takes nothing any more: GET /v1/stats tells which; then start the broker again"
    try:
        broker.engine.check_space()
    except DiskFull as error:
        if error.free_bytes_min is not None:
            return "the disk has less left than engine.free_bytes_min: free some room"
        return "the disk is full: free some room"
    if broker.was_full:
        return "the disk is full: free some room"
    return None


def stats_json(survey: Survey, wanted: Wanted) -> dict[str, Any]:
    """The figures with only the topics that are wanted."""
    topics = {name: topic for name, topic in survey.stats.topics.items() if wanted(name)}
    return {
        "topics": {
            name: topic_json(topic, survey.activity.get(name)) for name, topic in in_turns(topics.items())
        },
        **rest_json(survey, wanted, topics.values()),
    }


def rest_json(survey: Survey, wanted: Wanted, topics: Collection[TopicStats]) -> dict[str, Any]:
    """Everything but the topics, which are these."""
    return {
        "messages": sum(topic.messages for topic in topics),
        "bytes": sum(topic.bytes for topic in topics),
        "free_bytes": survey.stats.free_bytes,
        "problems": [asdict(each) for each in survey.problems if each.topic is None or wanted(each.topic)],
        "alerts": [
            asdict(each) for each in survey.stats.alerts if each.topic is None or wanted(each.topic)
        ],
    }


def topic_json(stats: TopicStats, activity: TopicActivity | None) -> dict[str, Any]:
    """A topic or group that came between the two looks has not done anything yet."""
    done = activity or TopicActivity(0)
    figures = stats.as_dict()
    for name, group in in_turns(figures["groups"].items()):
        had = done.groups.get(name, _NOTHING)
        # By hand, because there may be thousands of groups, and `asdict` copies everything it meets.
        for field_name in _ACTIVITY:
            group[field_name] = getattr(had, field_name)
    return {**figures, "published": done.published, "refused": done.refused, "dropped": done.dropped}


_ACTIVITY = tuple(each.name for each in fields(GroupActivity))
_NOTHING = GroupActivity(0, 0, 0)


def _shared(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for all who ask. If it fails when all of them are gone, there is nobody left to be told."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class Answers:
    """Costly answers: of all who ask for the same, one is worked for.

    Of several that compute at once, each would keep a put waiting for its turn. Whoever asks gets an answer
    that was begun later, so that it shows all that was done before: while one is under way, all who come
    share the next. Belongs to the event loop's thread.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def answer(self, asked: Hashable, make: Callable[[], T]) -> T:
        """What `make`, in a thread, makes for everybody who asks the same. Raises what it raises."""
        task: asyncio.Task[T] | None = self._next.get(asked)
        if task is None:
            task = self._next[asked] = _shared(self._made(asked, make))
        # One who goes away must not take it from the others.
        return await asyncio.shield(task)

    async def answer_of_look(self, asked: Hashable, make: Callable[[Survey], T]) -> T:
        """The same, of one look at the queue for all who ask at the same time, whatever they ask."""
        survey = await self.answer("look", lambda: look(self._broker))
        return await self.answer((asked, id(survey)), lambda: make(survey))

    async def _made(self, asked: Hashable, make: Callable[[], T]) -> T:
        if (before := self._running.get(asked)) is not None:
            await asyncio.wait([before])
        # Who comes from now on shares the next one.
        task = self._running[asked] = self._next.pop(asked)
        try:
            return await self._broker.figure(make)
        finally:
            if self._running[asked] is task:
                del self._running[asked]


# What is new since the last look.


@dataclass(frozen=True, slots=True)
class Version:
    """One look, and how it differs from the one before. Never changed, so any thread may ask it."""

    number: int
    survey: Survey
    topics: dict[str, dict[str, Any]]
    changed: dict[str, dict[str, Any]]
    """By topic: what is new."""
    has_removed: bool
    """Whether a topic is gone. Who knew of it is not known here, so everybody is told everything anew."""
    is_trouble_new: bool

    def names(self, wanted: Wanted) -> frozenset[str]:
        """The topics that somebody hears of in this version."""
        return frozenset(filter(wanted, self.topics))

    def full(self, names: frozenset[str]) -> dict[str, Any]:
        """Everything."""
        topics = {name: topic for name, topic in self.topics.items() if name in names}
        return {
            "version": self.number,
            "time": self.survey.time_us,
            "topics": topics,
            **self._rest(names),
        }

    def changes(self, names: frozenset[str]) -> dict[str, Any]:
        """What is different from the version before."""
        rest = self._rest(names)
        if not self.is_trouble_new:
            del rest["problems"], rest["alerts"]
        return {
            "version": self.number,
            "since": self.number - 1,
            "time": self.survey.time_us,
            "topics": {name: change for name, change in self.changed.items() if name in names},
            **rest,
        }

    def _rest(self, names: frozenset[str]) -> dict[str, Any]:
        topics = [topic for name, topic in self.survey.stats.topics.items() if name in names]
        return rest_json(self.survey, names.__contains__, topics)


def next_version(before: Version | None, survey: Survey) -> Version:
    """The version that a look makes."""
    topics = {
        name: topic_json(topic, survey.activity.get(name))
        for name, topic in in_turns(survey.stats.topics.items())
    }
    if before is None:
        return Version(1, survey, topics, {}, has_removed=True, is_trouble_new=True)
    changed: dict[str, dict[str, Any]] = {}
    for name, topic in in_turns(topics.items()):
        if difference := _topic_difference(before.topics.get(name), topic):
            changed[name] = difference
    was, now = before.survey, survey
    is_trouble_new = (was.problems, was.stats.alerts) != (now.problems, now.stats.alerts)
    has_removed = not before.topics.keys() <= topics.keys()
    return Version(before.number + 1, survey, topics, changed, has_removed, is_trouble_new)


def _topic_difference(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    if before is None:
        return now
    changed = _difference(before, now, "groups")
    if groups := _groups_difference(before["groups"], now["groups"]):
        changed["groups"] = groups
    return changed


def _groups_difference(
    before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any] | None]:
    groups: dict[str, dict[str, Any] | None] = {name: None for name in before if name not in now}
    for name, group in now.items():
        known = before.get(name)
        if difference := group if known is None else _difference(known, group, _ALWAYS_NEW):
            groups[name] = difference
    return groups


def _difference(before: dict[str, Any], now: dict[str, Any], left_out: str) -> dict[str, Any]:
    return {name: value for name, value in now.items() if before[name] != value and name != left_out}


# As Prometheus reads them: its text format 0.0.4.


def exposition(samples: Iterable[Sample]) -> bytes:
    """All samples as text. Those of one name have to follow each other, as `Metrics.collect` has them."""
    return "".join(f"{line}\n" for line in _lines(samples)).encode()


def _lines(samples: Iterable[Sample]) -> Iterator[str]:
    name = None
    for sample in samples:
        if sample["name"] != name:
            name = sample["name"]
            yield f"# HELP {name} {sample['help'].translate(_HELP_ESCAPES)}"
            yield f"# TYPE {name} {sample['kind']}"
        if sample["kind"] == "histogram":
            yield from _histogram_lines(sample)
        else:
            yield f"{name}{_labels(sample['labels'])} {sample['value']!r}"


def _histogram_lines(sample: Sample) -> Iterator[str]:
    name, pairs = sample["name"], _pairs(sample["labels"])
    # Each has dozens of lines, of which only the bound differs.
    before = f"{name}_bucket{{{pairs}{',' if pairs else ''}le="
    for bound, count in sample["buckets"]:
        yield f'{before}"{bound}"}} {count}'
    labels = _labels(sample["labels"])
    yield f"{name}_sum{labels} {sample['sum']!r}"
    yield f"{name}_count{labels} {sample['count']}"


def _labels(labels: Mapping[str, str]) -> str:
    return f"{{{_pairs(labels)}}}" if labels else ""


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())
