"""The figures of a queue: what there is, how far every group has come, what happened, what is wrong."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from quivermq.clock import Clock
from quivermq.disk import Disk
from quivermq.engine.activity import Ages, Problem, TopicActivity, activity_of, broken_topic, problems_of
from quivermq.engine.alerts import FILLS_UP_S, judge
from quivermq.engine.catalog import Catalog
from quivermq.engine.open_topic import OpenTopic
from quivermq.engine.rules import Evidence
from quivermq.engine.watch import ChangeTracker, Done, Load, Trends, state_of
from quivermq.group.group import Group
from quivermq.metrics import Counter, Histogram, Labels, Metrics, Sample, labels_of
from quivermq.model.stats import EngineStats, GroupState, QueueStats, TopicStats
from quivermq.model.turns import in_turns
from quivermq.reentry import entered
from quivermq.shared import SharedDisk
from quivermq.shared.measuring import measure

# Where Linux lists what a process has open; other systems have nothing there.
_OPEN_FILES = Path("/proc/self/fd")


S = TypeVar("S")
Kinds = list[tuple[str, str, Callable[[S], int]]]

_OF_TOPICS: Kinds[TopicStats] = [
    ("quiver_topic_messages", "Messages in the log.", attrgetter("messages")),
    ("quiver_topic_bytes", "Bytes in the log.", attrgetter("bytes")),
    ("quiver_topic_delayed", "Messages that wait to be due.", attrgetter("delayed")),
    ("quiver_topic_dead_letters", "Messages that were given up.", attrgetter("dead_letters")),
]
_OF_GROUPS: Kinds[QueueStats] = [
    ("quiver_group_pending", "Messages that wait for a consumer.", attrgetter("pending")),
    ("quiver_group_lag", "Messages from the group's position to the end.", attrgetter("pending")),
    ("quiver_group_in_flight", "Messages with a consumer.", attrgetter("in_flight")),
    ("quiver_group_retrying", "Messages that wait for another attempt.", attrgetter("retrying")),
    (
        "quiver_group_waiting_for_key",
        "Messages that wait for earlier ones of their key.",
        attrgetter("waiting_for_key"),
    ),
    ("quiver_group_backlog", "Messages that are not finished.", attrgetter("backlog")),
]


@dataclass(frozen=True, slots=True)
class Survey:
    """The queue at one moment."""

    time_us: int
    stats: EngineStats
    """With the alerts."""
    activity: dict[str, TopicActivity]
    problems: list[Problem]


class Statistics:
    """Counts what is in the topics; opens a closed one only when nobody knows its figures. Thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        metrics: Metrics,
        sync_time: Histogram,
        *,
        disk: Disk,
        clock: Clock,
        shared: SharedDisk | None = None,
    ) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._metrics = metrics
        self._sync_time = sync_time
        self._disk = disk
        self._clock = clock
        self.shared = shared
        """The disk that has its truth in a store, if the queue is on one."""
        self.ages = Ages(clock)
        self._watch = ChangeTracker()
        self._trends = Trends()
        self._commit_trends = Trends()
        self._measuring = threading.Lock()

    def survey(self, problems: Sequence[Problem] = ()) -> Survey:
        """One look at everything, judged. `problems` are those that only whoever asks knows of."""
        stats, now_us = self.count(), self._clock.now_us()
        activity, found = self.activity(), [*problems, *self.problems()]
        pending = {
            (topic, group): each.pending
            for topic, there in stats.topics.items()
            for group, each in there.groups.items()
        }
        self._watch.see(activity, pending, {"server_errors": self._server_errors()}, now_us)
        self._trends.see(stats.free_bytes, self._sync_time.tally(), now_us)
        if self.shared is not None:
            self._commit_trends.see(stats.free_bytes, self.shared.commit_times.tally(), now_us)
        evidence = Evidence(
            stats=stats.topics,
            activity=activity,
            problems=found,
            free_bytes=stats.free_bytes,
            free_bytes_later=self._trends.free_bytes_in(FILLS_UP_S),
            fsync_p99_s=self._trends.sync_p99_s(),
            now_us=now_us,
            store=None if self.shared is None else self.shared.figures(),
            commit_p99_s=self._commit_trends.sync_p99_s(),
        )
        return Survey(now_us, replace(stats, alerts=judge(evidence, self._watch)), activity, found)

    def _server_errors(self) -> int:
        return sum(
            int(counter.value)
            for counter in self._metrics.family("quiver_http_requests_total")
            if isinstance(counter, Counter) and dict(counter.labels)["status"].startswith("5")
        )

    def count(self) -> EngineStats:
        """What there is."""
        self._catalog.check_open()
        found = ((name, self._of_name(name)) for name in in_turns(sorted(self._table)))
        topics = {name: stats for name, stats in found if stats is not None}
        return EngineStats(
            topics=topics,
            messages=sum(topic.messages for topic in topics.values()),
            bytes=sum(topic.bytes for topic in topics.values()),
            free_bytes=self._catalog.space.free_bytes(),
        )

    def collect_metrics(self) -> list[Sample]:
        """Every metric as it is now, as plain data."""
        with self._measuring:
            oldest = {
                (name, group): each.oldest_us
                for name, closed in in_turns(self._table.closed_topics().items())
                for group, each in (closed.summary.groups.items() if closed.summary is not None else ())
            }
            oldest |= self.ages.look(self._table.open_topics())
            self._set_gauges(self.count(), oldest, len(self.problems()))
        return self._metrics.collect() + ([] if self.shared is None else measure(self.shared))

    def _set_gauges(self, stats: EngineStats, oldest: Mapping[tuple[str, str], int], problems: int) -> None:
        """Set what is looked up when somebody asks for it; `oldest` is what `Ages` found."""
        self._metrics.gauge("quiver_disk_free_bytes", "Room on the disk.").set(stats.free_bytes)
        self._metrics.gauge("quiver_problems", "Parts that do not work.").set(problems)
        if open_files := len(self._disk.names(_OPEN_FILES)):
            self._metrics.gauge("process_open_fds", "Files and sockets that are open.").set(open_files)
        topics = [(topic, labels_of(topic=topic.topic)) for topic in in_turns(stats.topics.values())]
        self._set_each(_OF_TOPICS, topics)
        groups = [
            (group, labels_of(topic=group.topic, group=group.group))
            for topic, _ in topics
            for group in in_turns(topic.groups.values())
        ]
        self._set_each(_OF_GROUPS, groups)
        now_us = self._clock.now_us()
        ages = {
            labels: (max(0, now_us - since_us) if since_us else 0) / 1_000_000
            for group, labels in in_turns(groups)
            if (since_us := oldest.get((group.topic, group.group))) is not None
        }
        help_text = "Age of the oldest message that is not finished; 0 when there is none."
        self._metrics.gauges("quiver_group_oldest_unacked_seconds", help_text, ages, together=max)

    def _set_each(self, kinds: Kinds[S], found: list[tuple[S, Labels]]) -> None:
        for name, help_text, value in kinds:
            self._metrics.gauges(name, help_text, {labels: value(each) for each, labels in in_turns(found)})

    @entered
    def activity(self) -> dict[str, TopicActivity]:
        """What has happened in each topic since the queue was opened, by name."""
        self._catalog.check_open()
        closed, opened = self._table.closed_topics(), self._table.open_topics()
        oldest, now_us = self.ages.look(opened), self._clock.now_us()
        done: dict[str, TopicActivity] = {}
        for name in in_turns(sorted({*closed, *opened})):
            if name in opened:
                done[name] = activity_of(opened[name], oldest, now_us)
            elif (summary := closed[name].summary) is not None:
                done[name] = summary.activity(now_us)
        return done

    @entered
    def problems(self) -> list[Problem]:
        """What keeps parts of the queue from working, until it is opened again or repaired."""
        self._catalog.check_open()
        commits = self._disk.commits
        lost = None if commits is None else commits.failure
        broken = [] if lost is None else [Problem(str(lost))]
        broken += [
            broken_topic(name, error) for name, error in sorted(self._table.set_aside_topics().items())
        ]
        return broken + [
            found
            for topic in in_turns(list(self._table.open_topics().values()))
            for found in problems_of(topic)
        ]

    def _of_name(self, name: str) -> TopicStats | None:
        """The figures of a topic, which is opened only when nobody knows them otherwise."""
        closed, now_us = self._table.find_closed(name), self._clock.now_us()
        summary = None if closed is None else closed.summary
        if summary is not None and (summary.wake_us is None or summary.wake_us > now_us):
            return summary.stats(name, self.dead_letter_count(name), now_us)
        # One that cannot be opened is among the problems now.
        topic = self._catalog.find_readable(name)
        return None if topic is None else self.of_topic(topic)

    def of_topic(self, topic: OpenTopic) -> TopicStats:
        """The figures of a topic and of all its groups."""
        now_us = self._clock.now_us()
        # For all groups together: what each of them is asked must not grow with their number.
        topic.release(now_us)
        logs = topic.topic.lanes().values()
        delayed, dead = topic.topic.delays.pending, self.dead_letter_count(topic.name)
        return TopicStats(
            topic=topic.name,
            partitions=topic.settings.partitions,
            messages=sum(log.end - log.start for log in logs),
            bytes=sum(log.size_bytes for log in logs),
            delayed=delayed,
            dead_letters=dead,
            dead_letters_of=topic.origin,
            groups={
                name: self._of_known_group(topic, group, now_us, delayed, dead)
                for name, group in in_turns(sorted(topic.groups.copy().items()))
            },
        )

    def of_group(self, topic: OpenTopic, group: str) -> QueueStats:
        """The figures of a topic as one group sees it, which need not have been there."""
        now_us = self._clock.now_us()
        topic.release(now_us)
        delayed, dead = topic.topic.delays.pending, self.dead_letter_count(topic.name)
        found = topic.groups.get(group)
        if found is None:
            pending = topic.topic.messages_known
            state: GroupState = "waiting" if pending else "idle"
            return QueueStats(
                topic.name, group, pending=pending, delayed=delayed, dead_letters=dead, state=state
            )
        return self._of_known_group(topic, found, now_us, delayed, dead)

    def _of_known_group(
        self, topic: OpenTopic, group: Group, now_us: int, delayed: int, dead: int
    ) -> QueueStats:
        group.expire(now_us)
        counts = group.counts()
        load = Load(*counts, self.ages.oldest_us(topic, group))
        meter = group.meter
        done = Done(int(meter.delivered.value), int(meter.acked.value), now_us)
        pace = self._watch.pace(topic.name, group.name, done)
        state = state_of(load, pace, now_us, is_paused=group.is_paused)
        return QueueStats(topic.name, group.name, *counts, delayed=delayed, dead_letters=dead, state=state)

    def dead_letter_count(self, topic: str) -> int:
        """How many dead letters a topic has; 0 for one that has those of another."""
        name = self._catalog.table.dead_letter_name_of(topic)
        if name == topic:
            return 0
        if (closed := self._table.find_closed(name)) is not None and closed.summary is not None:
            return closed.summary.left
        found = self._catalog.find_readable(name)
        return 0 if found is None else found.topic.messages
