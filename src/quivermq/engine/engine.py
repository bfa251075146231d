"""The queue as a whole: what can be done with its topics, and with all of it."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from quivermq.clock import Clock
from quivermq.disk import Buffer, Disk, SystemDisk
from quivermq.engine.activity import Problem, TopicActivity, activity_of, broken_topic, problems_of
from quivermq.engine.adopting import adopt_ids, adopt_progress
from quivermq.engine.group_state import Load, state_of
from quivermq.engine.hosted import Hosted
from quivermq.engine.hosting import Hosting
from quivermq.engine.origins import dead_letter_settings, graves_of
from quivermq.engine.queue import Queue
from quivermq.engine.survey import Survey
from quivermq.engine.watch import Done
from quivermq.errors import (
    DiskRefused,
    FsyncFailed,
    InvalidRequest,
    InvalidSettings,
    QuiverError,
    StorageFailed,
    TopicExists,
)
from quivermq.frame import OFFSET_MAX
from quivermq.group.group import Group
from quivermq.log import Replaced, Report, RetentionResult, verify
from quivermq.log.flusher import Scheduler
from quivermq.metrics import Sample
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.checks import check_number
from quivermq.model.lanes import lane_number
from quivermq.model.messages import PRODUCER_ID_MAX, ProducerState, Put
from quivermq.model.names import check_group_name, check_topic_name
from quivermq.model.stats import Compacted, EngineStats, GroupState, QueueStats, TopicInfo, TopicStats
from quivermq.model.turns import in_turns
from quivermq.reentry import entered
from quivermq.settings import Settings, settings_from
from quivermq.topic.stored import mark_deleted

logger = logging.getLogger(__name__)


def open_engine(
    path: str | os.PathLike[str],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
) -> "Engine":
    """Open a directory as a queue; it is created when it is new.

    `settings` may also be a mapping that is like `quiver.toml`. Raises DirectoryLocked while another
    process has it open, InvalidRequest inside of another queue's directory, and InvalidSettings. `disk`,
    `clock` and `scheduler` are for tests.
    """
    if isinstance(settings, Mapping):
        settings = settings_from(settings)
    _check_arguments(path, settings, disk or SystemDisk())
    return Engine(path, settings or Settings(), disk=disk, clock=clock, scheduler=scheduler)


def _check_arguments(path: object, settings: object, disk: Disk) -> None:
    if not isinstance(path, str | os.PathLike) or "\0" in str(os.fspath(path)):
        raise InvalidRequest(f"a queue is opened by the path of its directory, not by {path!r}")
    if disk.exists(Path(path)) and not disk.is_directory(Path(path)):
        raise InvalidRequest(f"{path} is not a directory: a queue needs one of its own")
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidRequest(
            f"settings are quivermq.Settings or a mapping of sections, not a {type(settings).__name__}"
        )


class Engine(Hosting):
    """An open queue. Thread-safe; close it, or use it in a `with` statement."""

    @entered
    def create_topic(self, name: str, *, exist_ok: bool = False, **settings: Any) -> None:
        """Create a topic. Raises TopicExists, InvalidName, InvalidSettings.

        With `exist_ok`, one that is there already stays as it is, whatever the settings say.
        """
        check_topic_name(name)
        made = self._settings_of_new(name, **settings)
        with self._topics_lock:
            self.check_open()
            self._check_whole(name)
            if name in self._hosted or self._opened(name) is not None:
                if exist_ok:
                    return
                raise TopicExists(f"the topic {name} exists already: use alter_topic to change it")
            self._limits.check_topic(name, made.partitions)
            hosted = self._create(name, made, settings)
        self._take_over_dead_letters(hosted)

    @entered
    def alter_topic(self, name: str, **settings: Any) -> None:
        """Change settings of a topic while it is in use. Raises TopicNotFound, InvalidSettings."""
        with self._changing:
            hosted = self.hosted(name)
            changed = hosted.settings.changed(settings)
            if hosted.origin is not None:
                source = self._settings_of(hosted.origin)
                changed = dead_letter_settings(source, hosted.origin, changed, settings)
            changed.storage(self.settings.storage)
            more = changed.partitions - hosted.settings.partitions
            self._limits.check_partitions(name, more)
            # Before there can be a dead letter that needs a partition there; and once more, for a topic
            # that was made for the first one meanwhile.
            self._alter_dead_letters(hosted, changed)
            self._configure(hosted, changed)
            self._alter_dead_letters(hosted, changed)
        logger.info("altered topic %s", name, extra={"topic": name, "settings": settings})
        self._tell_watchers(name, "altered")

    @entered
    def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and what its groups know. Its dead letters stay."""
        with self._changing:
            hosted = self.hosted(name)
            try:
                self._store_deleted(hosted)
            except FsyncFailed as error:
                # Only the next opening tells whether it is deleted: until then it promises nothing.
                hosted.close()
                with self._topics_lock:
                    self._set_aside(name, error)
                raise
            hosted.close(is_deleted=True)
            with self._topics_lock:
                self._drop(name)
                self.members.topic_changed(name)
                self._remove_files(name)
        self.metrics.forget(topic=name)
        logger.info("deleted topic %s", name, extra={"topic": name})
        self._tell_watchers(name, "deleted")

    def _store_deleted(self, hosted: Hosted) -> None:
        try:
            self._store(hosted.name, hosted.settings, origin=hosted.origin, deleted=True)
        except DiskRefused:
            # On a full disk, deleting is what makes room.
            mark_deleted(self._directory.disk, self._topic_path(hosted.name))

    def topics(self) -> list[str]:
        """The names of all topics."""
        self.check_open()
        return sorted(self._names())

    def topic(self, name: str) -> TopicInfo:
        """One topic. Raises TopicNotFound."""
        hosted = self.hosted(name)
        return TopicInfo(name, hosted.settings.partitions, hosted.settings, hosted.origin)

    @entered
    def groups(self, topic: str) -> list[str]:
        """The groups of a topic. Raises TopicNotFound."""
        return sorted(self.hosted(topic).groups.copy())

    @entered
    def delete_group(self, topic: str, group: str) -> bool:
        """Forget what a group knows of a topic. False when there is no such group."""
        check_group_name(group)
        return self.hosted(topic).delete_group(group)

    def queue(self, topic: str, group: str = "default") -> Queue:
        """A topic, or all topics of a pattern, as one group sees it. Nothing is created yet."""
        self.check_open()
        return Queue(self, topic, group)

    @entered
    def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        """Begin anew as the producer of that id: its frames of earlier epochs are refused from now on.

        Tells the epoch to send with, and for each lane where the first frame lies that this producer ever
        sent, as far back as producers are remembered. The topic is created when it is new.
        """
        check_topic_name(topic)
        check_number("producer_id", producer_id, 1, PRODUCER_ID_MAX)
        return self.hosted_or_new(topic).begin_producer(producer_id)

    @entered
    def adopt(
        self,
        topic: str,
        group: str,
        progress: Progress,
        *,
        partition: int = 0,
        priority: str = "normal",
        expected: Progress | None = None,
    ) -> bool:
        """Let a group go on where another queue was, from which the messages of a lane were imported.

        With a position, only where the group has never been, or still is exactly where `expected` says it
        was put before; False tells that it is elsewhere. Without one, only attempts are taken over, of
        messages that the group has not had. Raises TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        return adopt_progress(
            self, topic, group, progress, partition=partition, priority=priority, expected=expected
        )

    @entered
    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        """Remember deduplication ids that another queue knew, each until it would have expired there.

        None for longer than the topic's `dedup_window_ms`. Returns how many still hold. Raises
        TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        return adopt_ids(self, topic, adopted)

    @entered
    def adopt_dead_letters(
        self, topic: str, frame: Buffer, *, partition: int = 0, priority: str = "normal"
    ) -> Put:
        """Append a frame of messages that another queue gave up to the dead letters of a topic.

        What their `quiver-dlq-` headers tell is believed, but for the topic. They are on stable storage on
        return; a producer may repeat a frame. Raises InvalidRequest, InvalidFrame.
        """
        check_topic_name(topic)
        name = topic if self.origin_of(topic) is not None else graves_of(self._known, topic)
        check_number("partition", partition, 0, self.hosted_or_new(name).settings.partitions - 1)
        return self.hosted_or_new(name).adopt_dead_letters(frame, partition, priority)

    @entered
    def replace_segment(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        frames: Buffer,
        *,
        expected: str,
        priority: str = "normal",
    ) -> Replaced:
        """Put frames in the place of those that take the same offsets in a sealed segment: for compaction.

        The topic has cleanup=compact. `base_offset` is the segment's, `expected` the stamp of the frames
        that are to go. Every offset stays, and what producers may repeat. Raises Conflict when the
        frames were changed since they were read, NotFound when the segment is gone, InvalidRequest.
        """
        check_number("partition", partition, 0, self.hosted(topic).settings.partitions - 1)
        check_number("base_offset", base_offset, 0, OFFSET_MAX)
        hosted, lane = self.hosted(topic), lane_number(priority)
        replaced = hosted.replace_segment(partition, lane, base_offset, frames, expected)
        logger.info(
            "replaced a segment of %s: %d bytes instead of %d",
            *(topic, replaced.bytes_after, replaced.bytes_before),
            extra={"topic": topic, "partition": partition, "priority": priority, "offset": base_offset},
        )
        return replaced

    def sync(self) -> None:
        """Return once everything that was put so far is on stable storage, whatever the durability.

        Raises StorageFailed and DiskRefused: then only opening the queue again tells what is there.
        """
        self.check_open()
        for hosted in list(self._hosted.values()):
            if not hosted.is_gone:
                hosted.sync()

    def stats(self) -> EngineStats:
        """What there is, how far every group has come, and what is wrong, the worst first."""
        return self.survey().stats

    def survey(self, problems: Sequence[Problem] = ()) -> Survey:
        """One look at everything, judged. `problems` are those that only whoever asks knows of."""
        stats, now_us = self._count(), self.clock.now_us()
        return self._surveyor.judged(stats, self.activity(), [*problems, *self.problems()], now_us)

    def _count(self) -> EngineStats:
        self.check_open()
        found = ((name, self._stats_of(name)) for name in in_turns(sorted(self._names())))
        topics = {name: stats for name, stats in found if stats is not None}
        return EngineStats(
            topics=topics,
            messages=sum(topic.messages for topic in topics.values()),
            bytes=sum(topic.bytes for topic in topics.values()),
            free_bytes=self._directory.disk.free_bytes(self.path),
        )

    def collect_metrics(self) -> list[Sample]:
        """Every metric as it is now, as plain data."""
        with self._measuring:
            oldest = {
                (name, group): each.oldest_us
                for name, rest in in_turns(self._resting.copy().items())
                for group, each in (rest.entry.groups.items() if rest.entry is not None else ())
            }
            oldest |= self._ages.look(self._hosted.copy())
            self._gauges.update(self._count(), oldest, len(self.problems()))
        return self.metrics.collect()

    @entered
    def activity(self) -> dict[str, TopicActivity]:
        """What has happened in each topic since the queue was opened, by name."""
        self.check_open()
        resting, hosted = self._resting.copy(), self._hosted.copy()
        oldest, now_us = self._ages.look(hosted), self.clock.now_us()
        done: dict[str, TopicActivity] = {}
        for name in in_turns(sorted({*resting, *hosted})):
            if name in hosted:
                done[name] = activity_of(hosted[name], oldest, now_us)
            elif (entry := resting[name].entry) is not None:
                done[name] = entry.activity(now_us)
        return done

    @entered
    def problems(self) -> list[Problem]:
        """What keeps parts of the queue from working, until it is opened again or repaired."""
        self.check_open()
        broken = [broken_topic(name, error) for name, error in sorted(self._broken.items())]
        return broken + [
            found for topic in in_turns(list(self._hosted.values())) for found in problems_of(topic)
        ]

    def _stats_of(self, name: str) -> TopicStats | None:
        """The figures of a topic, which is opened only when nobody knows them otherwise."""
        rest, now_us = self._resting.get(name), self.clock.now_us()
        entry = None if rest is None else rest.entry
        if entry is not None and (entry.wake_us is None or entry.wake_us > now_us):
            return entry.stats(name, self.dead_letter_count(name), now_us)
        try:
            hosted = self.find(name)
        except (StorageFailed, InvalidSettings):
            # It is among the problems now.
            return None
        return None if hosted is None else self.topic_stats(hosted)

    def topic_stats(self, hosted: Hosted) -> TopicStats:
        now_us = self.clock.now_us()
        # For all groups together: what each of them is asked must not grow with their number.
        hosted.release(now_us)
        logs = hosted.topic.lanes().values()
        delayed, dead = hosted.topic.delays.pending, self.dead_letter_count(hosted.name)
        return TopicStats(
            topic=hosted.name,
            partitions=hosted.settings.partitions,
            messages=sum(log.end - log.start for log in logs),
            bytes=sum(log.size_bytes for log in logs),
            delayed=delayed,
            dead_letters=dead,
            dead_letters_of=hosted.origin,
            groups={
                name: self._group_stats(hosted, group, now_us, delayed, dead)
                for name, group in in_turns(sorted(hosted.groups.copy().items()))
            },
        )

    def queue_stats(self, hosted: Hosted, group: str) -> QueueStats:
        now_us = self.clock.now_us()
        hosted.release(now_us)
        delayed, dead = hosted.topic.delays.pending, self.dead_letter_count(hosted.name)
        found = hosted.groups.get(group)
        if found is None:
            pending = hosted.topic.messages_told
            state: GroupState = "waiting" if pending else "idle"
            return QueueStats(
                hosted.name, group, pending=pending, delayed=delayed, dead_letters=dead, state=state
            )
        return self._group_stats(hosted, found, now_us, delayed, dead)

    def _group_stats(
        self, hosted: Hosted, group: Group, now_us: int, delayed: int, dead: int
    ) -> QueueStats:
        group.expire(now_us)
        counts = group.counts()
        load = Load(*counts, self._ages.oldest_us(hosted, group))
        meter = group.cursors[0].meter
        done = Done(int(meter.delivered.value), int(meter.acked.value), now_us)
        pace = self._surveyor.watch.pace(hosted.name, group.name, done)
        state = state_of(load, pace, now_us, is_paused=group.is_paused)
        return QueueStats(hosted.name, group.name, *counts, delayed=delayed, dead_letters=dead, state=state)

    def dead_letter_count(self, topic: str) -> int:
        name = graves_of(self._known, topic)
        if name == topic:
            return 0
        if (rest := self._resting.get(name)) is not None and rest.entry is not None:
            return rest.entry.left
        with suppress(StorageFailed, InvalidSettings):
            graves = self.find(name)
            return 0 if graves is None else graves.topic.messages
        return 0

    @entered
    def compact(self, *, archived: bool = False) -> Compacted:
        """Remove now what the settings no longer keep, and shorten the journals.

        With `archived`, segments go as well that are in the archive and that all groups have finished with.
        A topic that cannot be looked after raises its error when the others are done.
        """
        self.check_open()
        removed, errors = [RetentionResult()], []
        for name in self._names():
            try:
                if (hosted := self.find(name)) is not None:
                    removed.append(hosted.compact(archived=archived))
            except QuiverError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return Compacted(*map(sum, zip(*removed, strict=True)))

    @entered
    def use_archive(self, directory: str | os.PathLike[str] | None) -> None:
        """Name the archive of this queue, or None: what `read` goes on with before the log begins.

        Nothing leaves a topic that is archived before it is archived, unless that has `retention_force`. A
        relative path begins at the data directory. Raises NotFound when there is no archive.
        """
        self.check_open()
        self.archive.use(directory)

    @entered
    def verify(self) -> Report:
        """Check every byte of every log, while the queue is in use."""
        self.check_open()
        return verify(self.path, self.settings.storage, disk=self._directory.disk)
