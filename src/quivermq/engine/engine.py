"""The queue as a whole: what can be done with its topics, and with all of it."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quivermq.clock import Clock
from quivermq.delivery.adoption import Progress
from quivermq.disk import Buffer, Disk, SystemDisk
from quivermq.engine.activity import Problem, TopicActivity, activity_of, broken_topic, problems_of
from quivermq.engine.adopting import adopt_ids, adopt_progress
from quivermq.engine.hosted import Hosted
from quivermq.engine.hosting import Hosting
from quivermq.engine.queue import Queue
from quivermq.engine.stats import EngineStats, QueueStats, TopicStats
from quivermq.errors import (
    FsyncFailed,
    InvalidRequest,
    QuiverError,
    TopicExists,
)
from quivermq.frame import OFFSET_MAX
from quivermq.log import Removed, Replaced, Report, verify
from quivermq.log.flusher import Scheduler
from quivermq.metrics import Sample
from quivermq.settings import Settings
from quivermq.topic.adopted_ids import AdoptedId
from quivermq.topic.incoming import check_number
from quivermq.topic.names import check_group_name, check_topic_name, dead_letter_name, is_dead_letter_topic
from quivermq.topic.partition import lane_number
from quivermq.topic.put import PRODUCER_ID_MAX, ProducerState
from quivermq.topic.settings import TopicSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was removed from the disk."""

    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and how it is set."""

    name: str
    partitions: int
    settings: TopicSettings


def open_engine(
    path: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
) -> "Engine":
    """Open a directory as a queue; it is created when it is new.

    Raises DirectoryLocked while another process has it open, and InvalidRequest inside of another
    queue's directory. `disk`, `clock` and `scheduler` are for tests.
    """
    _check_arguments(path, settings, disk or SystemDisk())
    return Engine(path, settings or Settings(), disk=disk, clock=clock, scheduler=scheduler)


def _check_arguments(path: object, settings: object, disk: Disk) -> None:
    if not isinstance(path, str | os.PathLike) or "\0" in str(os.fspath(path)):
        raise InvalidRequest(f"a queue is opened by the path of its directory, not by {path!r}")
    if disk.exists(Path(path)) and not disk.is_directory(Path(path)):
        raise InvalidRequest(f"{path} is not a directory: a queue needs one of its own")
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidRequest(f"settings are quivermq.Settings, not a {type(settings).__name__}")


class Engine(Hosting):
    """An open queue. Thread-safe; close it, or use it in a `with` statement."""

    def create_topic(self, name: str, **settings: Any) -> None:
        """Create a topic. Raises TopicExists, InvalidName, InvalidSettings."""
        check_topic_name(name)
        made = TopicSettings.make(settings, self.settings.storage)
        with self._topics_lock:
            self.check_open()
            self._check_whole(name)
            if name in self._hosted:
                raise TopicExists(f"the topic {name} exists already: use alter_topic to change it")
            self._create(name, made)

    def alter_topic(self, name: str, **settings: Any) -> None:
        """Change settings of a topic while it is in use. Raises TopicNotFound, InvalidSettings."""
        with self._changing:
            hosted = self.hosted(name)
            changed = hosted.settings.changed(settings)
            changed.storage(self.settings.storage)
            self._store(name, changed)
            hosted.configure(changed)
            self.members.topic_changed(name)
        logger.info("altered topic %s", name, extra={"topic": name, "settings": settings})
        self._tell_watchers(name, "altered")

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and what its groups know. Its dead letters stay."""
        with self._changing:
            hosted = self.hosted(name)
            try:
                self._store(name, hosted.settings, deleted=True)
            except FsyncFailed as error:
                # Only the next opening tells whether it is deleted: until then it promises nothing.
                hosted.close()
                with self._topics_lock:
                    self._set_aside(name, error)
                raise
            hosted.close(is_deleted=True)
            with self._topics_lock:
                self._hosted = {other: h for other, h in self._hosted.items() if other != name}
                self.members.topic_changed(name)
                self._remove_files(name)
        self.metrics.forget(topic=name)
        logger.info("deleted topic %s", name, extra={"topic": name})
        self._tell_watchers(name, "deleted")

    def topics(self) -> list[str]:
        """The names of all topics."""
        self.check_open()
        return sorted(self._hosted)

    def topic(self, name: str) -> TopicInfo:
        """One topic. Raises TopicNotFound."""
        settings = self.hosted(name).settings
        return TopicInfo(name, settings.partitions, settings)

    def groups(self, topic: str) -> list[str]:
        """The groups of a topic. Raises TopicNotFound."""
        return sorted(self.hosted(topic).groups)

    def delete_group(self, topic: str, group: str) -> bool:
        """Forget what a group knows of a topic. False when there is no such group."""
        check_group_name(group)
        return self.hosted(topic).delete_group(group)

    def queue(self, topic: str, group: str = "default") -> Queue:
        """A topic, or all topics of a pattern, as one group sees it. Nothing is created yet."""
        self.check_open()
        return Queue(self, topic, group)

    def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        """Begin anew as the producer of that id: its frames of earlier epochs are refused from now on.

        Tells the epoch to send with, and for each lane where the first frame lies that this producer ever
        sent, as far back as producers are remembered. The topic is created when it is new.
        """
        check_topic_name(topic)
        check_number("producer_id", producer_id, 1, PRODUCER_ID_MAX)
        return self.hosted_or_new(topic).begin_producer(producer_id)

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

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        """Remember deduplication ids that another queue knew, each until it would have expired there.

        None for longer than the topic's `dedup_window_ms`. Returns how many still hold. Raises
        TopicNotFound, InvalidRequest, OffsetOutOfRange.
        """
        return adopt_ids(self, topic, adopted)

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

    def stats(self) -> EngineStats:
        """What there is, and how far every group has come."""
        self.check_open()
        topics = {name: self.topic_stats(hosted) for name, hosted in sorted(self._hosted.items())}
        return EngineStats(
            topics=topics,
            messages=sum(topic.messages for topic in topics.values()),
            bytes=sum(topic.bytes for topic in topics.values()),
            free_bytes=self._directory.disk.free_bytes(self.path),
        )

    def collect_metrics(self) -> list[Sample]:
        """Every metric as it is now, as plain data."""
        with self._measuring:
            self._gauges.update(self.stats(), self._hosted)
        return self.metrics.collect()

    def activity(self) -> dict[str, TopicActivity]:
        """What has happened in each topic since the queue was opened, by name."""
        self.check_open()
        hosted = self._hosted
        ages_us = self._ages.look(hosted)
        return {name: activity_of(topic, ages_us) for name, topic in sorted(hosted.items())}

    def problems(self) -> list[Problem]:
        """What keeps parts of the queue from working, until it is opened again or repaired."""
        self.check_open()
        broken = [broken_topic(name, error) for name, error in sorted(self._broken.items())]
        return broken + [found for topic in self._hosted.values() for found in problems_of(topic)]

    def topic_stats(self, hosted: Hosted) -> TopicStats:
        logs = hosted.topic.lanes().values()
        return TopicStats(
            topic=hosted.name,
            partitions=hosted.settings.partitions,
            messages=sum(log.end - log.start for log in logs),
            bytes=sum(log.size_bytes for log in logs),
            delayed=hosted.topic.delays.pending,
            dead_letters=self.dead_letter_count(hosted.name),
            groups={name: self.queue_stats(hosted, name) for name in sorted(hosted.groups)},
        )

    def queue_stats(self, hosted: Hosted, group: str) -> QueueStats:
        hosted.release(self.clock.now_us())
        delayed, dead = hosted.topic.delays.pending, self.dead_letter_count(hosted.name)
        found = hosted.groups.get(group)
        if found is None:
            pending = hosted.topic.messages
            return QueueStats(hosted.name, group, pending=pending, delayed=delayed, dead_letters=dead)
        found.expire(self.clock.now_us())
        return QueueStats(hosted.name, group, *found.counts(), delayed=delayed, dead_letters=dead)

    def dead_letter_count(self, topic: str) -> int:
        if is_dead_letter_topic(topic):
            return 0
        graves = self._hosted.get(dead_letter_name(topic))
        return 0 if graves is None else graves.topic.messages

    def compact(self, *, archived: bool = False) -> Compacted:
        """Remove now what the settings no longer keep, and shorten the journals.

        With `archived`, segments go as well that are in the archive and that all groups have finished with.
        A topic that cannot be looked after raises its error when the others are done.
        """
        self.check_open()
        removed, errors = [Removed()], []
        for hosted in list(self._hosted.values()):
            try:
                removed.append(hosted.compact(archived=archived))
            except QuiverError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return Compacted(*map(sum, zip(*removed, strict=True)))

    def use_archive(self, directory: str | os.PathLike[str] | None) -> None:
        """Name the archive of this queue, or None: what `read` goes on with before the log begins.

        Nothing leaves a topic that is archived before it is archived, unless that has `retention_force`. A
        relative path begins at the data directory. Raises NotFound when there is no archive.
        """
        self.check_open()
        self.archive.use(directory)

    def verify(self) -> Report:
        """Check every byte of every log, while the queue is in use."""
        self.check_open()
        return verify(self.path, self.settings.storage, disk=self._directory.disk)
