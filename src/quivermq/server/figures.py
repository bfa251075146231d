"""Everything that the broker can count, at one moment: as JSON, as what is new since, and for Prometheus.

A listener of events gets everything once, with the number of its version. From then on it gets what is
different from the version before, as a JSON merge patch (RFC 7396) of topics and groups: what is not there
is as it was, null is gone. Who missed one sees it by the number, and asks anew. When a topic is gone,
everything is told once more. The difference is made once, and each listener's part of it is chosen by
topic.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from quivermq.engine.activity import GroupActivity, Problem, TopicActivity
from quivermq.engine.survey import Survey
from quivermq.errors import DiskFull
from quivermq.metrics import Sample
from quivermq.model.stats import QueueStats, TopicStats
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


def told(survey: Survey, wanted: Wanted) -> dict[str, Any]:
    """The figures with only the topics that are wanted."""
    topics = {name: topic for name, topic in survey.stats.topics.items() if wanted(name)}
    return {
        "topics": {
            name: topic_told(topic, survey.activity.get(name)) for name, topic in in_turns(topics.items())
        },
        **rest_told(survey, wanted, topics.values()),
    }


def rest_told(survey: Survey, wanted: Wanted, topics: Collection[TopicStats]) -> dict[str, Any]:
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


def topic_told(stats: TopicStats, activity: TopicActivity | None) -> dict[str, Any]:
    """A topic or group that came between the two looks has not done anything yet."""
    done = activity or TopicActivity(0)
    figures = _fields(stats, _TOPIC)
    figures["groups"] = {
        name: {
            **_fields(group, _GROUP),
            "backlog": group.backlog,
            **_fields(done.groups.get(name, _NOTHING), _ACTIVITY),
        }
        for name, group in in_turns(stats.groups.items())
    }
    return {**figures, "published": done.published, "refused": done.refused, "dropped": done.dropped}


def _fields(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    """As `asdict` of what holds plain values only, which thousands of topics are told with every second."""
    return {name: getattr(value, name) for name in names}


_TOPIC = tuple(each.name for each in fields(TopicStats))
_GROUP = tuple(each.name for each in fields(QueueStats))
_ACTIVITY = tuple(each.name for each in fields(GroupActivity))
_NOTHING = GroupActivity(0, 0, 0)


@dataclass(slots=True)
class _Look:
    """One look, and the answers that were made of it."""

    survey: asyncio.Task[Survey]
    answers: dict[Hashable, asyncio.Task[bytes]] = field(default_factory=dict)


def _shared(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for all who ask. If it fails when all of them are gone, there is nobody left to be told."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class Looks:
    """One look at the queue for all who ask at the same time, and one answer for all who ask the same.

    Whoever asks gets a look that began later, so that it shows all that was answered before: while one is
    under way, all who come share the next. Belongs to the event loop's thread.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: asyncio.Task[Survey] | None = None
        self._next: _Look | None = None

    async def answer(self, asked: Hashable, make: Callable[[Survey], bytes]) -> bytes:
        """What `make`, in a thread, makes of a look, for everybody who asks the same."""
        look = self._next
        if look is None:
            look = self._next = _Look(_shared(self._look(self._running)))
        task = look.answers.get(asked)
        if task is None:
            task = look.answers[asked] = _shared(self._made(look, make))
        # One who goes away must not take it from the others.
        return await asyncio.shield(task)

    async def _made(self, look: _Look, make: Callable[[Survey], bytes]) -> bytes:
        return await self._broker.figure(make, await asyncio.shield(look.survey))

    async def _look(self, before: asyncio.Task[Survey] | None) -> Survey:
        if before is not None:
            await asyncio.wait([before])
        assert self._next is not None
        # Who comes from now on shares the next one.
        self._running, self._next = self._next.survey, None
        return await self._broker.figure(look, self._broker)


class Answers:
    """Costly answers that need no look at the whole queue: of all who ask the same, one is worked for.

    Of several that compute at once, each would keep a put waiting for its turn. Whoever asks gets an answer
    that was begun later. Belongs to the event loop's thread.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: dict[Hashable, asyncio.Task[bytes]] = {}
        self._next: dict[Hashable, asyncio.Task[bytes]] = {}

    async def answer(self, asked: Hashable, make: Callable[[], bytes]) -> bytes:
        """What `make`, in a thread, makes for everybody who asks the same. Raises what it raises."""
        task = self._next.get(asked)
        if task is None:
            task = self._next[asked] = _shared(self._made(asked, make))
        # One who goes away must not take it from the others.
        return await asyncio.shield(task)

    async def _made(self, asked: Hashable, make: Callable[[], bytes]) -> bytes:
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
        return rest_told(self.survey, names.__contains__, topics)


def next_version(before: Version | None, survey: Survey) -> Version:
    """The version that a look makes."""
    topics = {
        name: topic_told(topic, survey.activity.get(name))
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
