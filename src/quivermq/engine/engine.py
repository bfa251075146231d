"""The queue as a whole: what can be done with its topics, and with all of it."""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

from quivermq.clock import Clock, SteadyClock, SystemClock
from quivermq.disk import Buffer, Commits, Disk, real_path
from quivermq.engine.activity import Problem, TopicActivity
from quivermq.engine.archived import QueueArchive, Seam
from quivermq.engine.catalog import Catalog
from quivermq.engine.inspection import Inspection
from quivermq.engine.looking import lanes_of
from quivermq.engine.maintenance import Maintenance
from quivermq.engine.opening import Opening
from quivermq.engine.queue import EngineQueue
from quivermq.engine.retention import compact
from quivermq.engine.statistics import Statistics, Survey
from quivermq.errors import Conflict, InvalidRequest, NotOwner, QuiverError
from quivermq.frame import Frame
from quivermq.log import DataDirectory, Replaced, Report, RetentionResult, verify
from quivermq.log.flusher import Flusher, Scheduler
from quivermq.metrics import Metrics, Sample
from quivermq.model import operations
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.backups import Backup
from quivermq.model.checks import check_number, check_partition, needs_broker
from quivermq.model.lanes import lane_number
from quivermq.model.messages import PRODUCER_ID_MAX, ProducerState, Put
from quivermq.model.names import check_group_name, check_topic_name
from quivermq.model.operations import Operation, TopicExtent, arguments_of
from quivermq.model.stats import Compacted, EngineStats, TopicInfo
from quivermq.reentry import entered
from quivermq.settings import Settings
from quivermq.shared import SharedDisk
from quivermq.topic.defaults import TopicDefaults
from quivermq.topic.partition import Partition
from quivermq.topic.rules import TopicRules

if TYPE_CHECKING:
    from quivermq.backup import BackupSource

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Engine:
    """An open queue: a `Backend`. Thread-safe; close it, or use it in a `with` statement.

    What its methods promise stands in `quivermq.backend` and, of what `perform` carries out, in
    `quivermq.model.operations`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Settings,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.settings = settings
        # First, because settings that are refused leave no directory behind.
        defaults = TopicDefaults(settings)
        self.metrics = Metrics()
        self.clock = SteadyClock(clock or SystemClock())
        sync_time = self.metrics.histogram(
            "quiver_fsync_seconds", "How long it took to make what was written durable."
        )
        self._directory = DataDirectory(
            path,
            settings.storage,
            disk=disk,
            clock=self.clock,
            scheduler=scheduler,
            sync_time=sync_time,
            files_max=settings.engine.files_max,
        )
        self.path = self._directory.path
        self.directory: Path | None = self.path
        self.name = str(self.path)
        self.scheduler = scheduler or Flusher(self.clock)
        self._owns_scheduler = scheduler is None
        self._backing_up = threading.Lock()
        try:
            self.archive = QueueArchive(self._directory.disk, self.path)
            self.catalog = Catalog(
                self._directory, settings, defaults, self.archive, metrics=self.metrics, clock=self.clock
            )
            self.members = self.catalog.members
            self.statistics = Statistics(
                self.catalog,
                self.metrics,
                sync_time,
                disk=self._directory.disk,
                clock=self.clock,
                shared=disk if isinstance(disk, SharedDisk) else None,
            )
            self.inspection = Inspection(self)
            self._opening = Opening(
                self.catalog, clock=self.clock, scheduler=self.scheduler, disk=self._directory.disk
            )
            self._opening.start()
        except BaseException:
            self._directory.close()
            raise
        self._maintenance = Maintenance(
            settings.engine,
            self.catalog,
            self._opening,
            clock=self.clock,
            scheduler=self.scheduler,
            disk=self._directory.disk,
        )
        self._maintenance.start()

    def perform(self, operation: Operation[T]) -> T:
        answer: T = _METHODS[type(operation)](self, *arguments_of(operation))
        return answer

    @entered
    def create_topic(self, name: str, exist_ok: bool, settings: Mapping[str, Any]) -> None:
        self.catalog.create(name, settings, exist_ok=exist_ok)

    @entered
    def alter_topic(self, name: str, settings: Mapping[str, Any]) -> None:
        self.catalog.alter(name, settings)

    @entered
    def delete_topic(self, name: str) -> None:
        self.catalog.delete(name)

    def topics(self) -> list[str]:
        self.check_open()
        return sorted(self.catalog.table)

    def topic(self, name: str) -> TopicInfo:
        found = self.catalog.get(name)
        return TopicInfo(name, found.settings.partitions, found.settings, found.origin)

    @entered
    def groups(self, topic: str) -> list[str]:
        return sorted(self.catalog.get(topic).groups.copy())

    @entered
    def delete_group(self, topic: str, group: str) -> bool:
        check_group_name(group)
        return self.catalog.get(topic).delete_group(group)

    def queue(self, topic: str, group: str = "default") -> EngineQueue:
        self.check_open()
        return EngineQueue(self, topic, group)

    @entered
    def begin_producer(self, topic: str, producer_id: int) -> ProducerState:
        check_number("producer_id", producer_id, 1, PRODUCER_ID_MAX)
        return self.catalog.get_or_create(topic).begin_producer(producer_id)

    @entered
    def adopt(
        self,
        topic: str,
        group: str,
        progress: Progress,
        partition: int = 0,
        priority: str = "normal",
        expected: Progress | None = None,
    ) -> bool:
        check_group_name(group)
        found = self.catalog.get(topic)
        check_partition(partition, found.settings)
        return found.adopt(group, partition, lane_number(priority), progress, expected)

    @entered
    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> int:
        return self.catalog.get(topic).topic.adopt_ids(adopted)

    @entered
    def adopt_dead_letters(
        self, topic: str, frame: Buffer, partition: int = 0, priority: str = "normal"
    ) -> Put:
        check_topic_name(topic)
        is_dead_letter_topic = self.catalog.table.origin_of(topic) is not None
        name = topic if is_dead_letter_topic else self.catalog.table.dead_letter_name_of(topic)
        dead_letters = self.catalog.get_or_create(name)
        check_partition(partition, dead_letters.settings)
        return dead_letters.adopt_dead_letters(frame, partition, priority)

    @entered
    def replace_segment(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        frames: Buffer,
        expected: str,
        priority: str = "normal",
    ) -> Replaced:
        found = self.catalog.get(topic)
        check_partition(partition, found.settings)
        lane = lane_number(priority)
        replaced = found.replace_segment(partition, lane, base_offset, frames, expected)
        logger.info(
            "replaced a segment of %s: %d bytes instead of %d",
            *(topic, replaced.bytes_after, replaced.bytes_before),
            extra={"topic": topic, "partition": partition, "priority": priority, "offset": base_offset},
        )
        return replaced

    def producer(self, topic: str, options: object) -> NoReturn:  # noqa: ARG002 - Whatever these are.
        raise needs_broker("a producer")

    def consumer(self, options: object) -> NoReturn:  # noqa: ARG002 - Whatever these are.
        raise needs_broker("a consumer")

    def patient(self) -> "Engine":
        """A directory is always there."""
        return self

    def extent(self, topic: str) -> TopicExtent:
        found = self.catalog.get(topic)
        return TopicExtent(self.catalog.created_us(topic), found.settings, lanes_of(found), found.origin)

    def frames(self, topic: str, partition: int, priority: str, start: int, end: int) -> Iterator[Frame]:
        """Whole frames that hold these offsets, as they are stored. Raises OffsetOutOfRange."""
        found = self.catalog.get(topic)
        check_partition(partition, found.settings)
        log = found.topic.partitions[partition].logs[lane_number(priority)]
        for frame in log.frames(start) if log is not None and start < end else ():
            if frame.header.base_offset >= end:
                return
            yield frame
            if frame.header.end_offset >= end:
                # Without a look at the next one, which may be more than anybody may see yet.
                return

    def sync(self) -> None:
        self.check_open()
        for topic in self.catalog.table.open_topics().values():
            if not topic.is_gone:
                topic.sync()

    def stats(self) -> EngineStats:
        return self.statistics.survey().stats

    def survey(self, problems: Sequence[Problem] = ()) -> Survey:
        """One look at everything, judged. `problems` are those that only whoever asks knows of."""
        return self.statistics.survey(problems)

    def collect_metrics(self) -> list[Sample]:
        """Every metric as it is now, as plain data."""
        return self.statistics.collect_metrics()

    def activity(self) -> dict[str, TopicActivity]:
        """What has happened in each topic since the queue was opened, by name."""
        return self.statistics.activity()

    def problems(self) -> list[Problem]:
        """What keeps parts of the queue from working, until it is opened again or repaired."""
        return self.statistics.problems()

    @entered
    def compact(self, archived: bool = False) -> Compacted:
        self.check_open()
        removed, errors = [RetentionResult()], []
        for name in self.catalog.table:
            try:
                if (topic := self.catalog.find(name)) is not None:
                    removed.append(compact(topic, archived=archived))
            except QuiverError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return Compacted(*map(sum, zip(*removed, strict=True)))

    @entered
    def use_archive(self, directory: str | None) -> None:
        self.check_open()
        self.archive.use(directory)

    @entered
    def verify(self) -> Report:
        self.check_open()
        return verify(self.path, self.settings.storage, disk=self._directory.disk)

    @entered
    def backup(self, target: str, progress: Callable[[int, int], None] | None = None) -> Backup:
        self.check_open()
        if not self._backing_up.acquire(blocking=False):
            raise Conflict(f"a backup of {self.path} is being made already: wait for its end")
        try:
            # Most processes never need it.
            from quivermq.backup import make_backup, open_set

            with open_set(target, self.settings.bucket, data=self.path) as backups:
                return make_backup(self.backup_source(), backups, progress=progress)
        finally:
            self._backing_up.release()

    def backup_source(self) -> "BackupSource":
        """This queue, to be backed up."""
        from quivermq.backup import BackupSource

        directory = self._directory
        archive = self.archive.look()
        is_elsewhere = archive is not None and not real_path(archive).is_relative_to(real_path(self.path))
        return BackupSource(
            self.path,
            directory.disk,
            self.clock,
            directory.picture,
            self.check_open,
            archive if is_elsewhere else None,
        )

    def maintain(self) -> None:
        """Do what is due by now. A thread does this all the time; calling it does no harm."""
        self._maintenance.run()

    def close(self) -> None:
        """Write and sync everything and let go of the directory. Closing twice is allowed.

        Leases stay as they are. Raises DiskFull when buffered messages cannot be written: call it again
        once there is room.
        """
        self.catalog.refuse_calls()
        if self._owns_scheduler:
            self.scheduler.close()
        self._close()

    @entered
    def _close(self) -> None:
        sound = self.catalog.close()
        self._directory.close(partial(self._opening.prepare_next, sound, self.statistics.ages.oldest_us))

    def interrupt(self) -> None:
        """Let whatever waits end, and begin nothing. A signal handler may call this at any moment."""
        self.catalog.is_interrupted = True
        self.catalog.wake_all()

    def resume(self) -> None:
        """Let calls be made again: those that are left to make before it is closed."""
        self.catalog.is_interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine {self.name}, {len(self.catalog.table)} topics>"

    @property
    def commits(self) -> Commits | None:
        """How what is done becomes durable, where that is elsewhere than on a disk of this machine."""
        return self._directory.disk.commits

    @property
    def lost(self) -> NotOwner | None:
        """That another process has taken over, once this one has been told; None of a directory."""
        failure = None if self.commits is None else self.commits.failure
        return failure if isinstance(failure, NotOwner) else None

    def announce(self, url: str) -> None:
        """Tell whoever finds the directory in use where it is served."""
        self._directory.announce(url)

    def check_open(self) -> None:
        """Raise Closing once the queue was closed, and in a forked child."""
        self.catalog.check_open()

    @property
    def is_fenced(self) -> bool:
        """Whether some log takes nothing any more, until the queue is opened again."""
        return self._directory.is_fenced

    def check_space(self) -> None:
        """Raise DiskFull while there is no room for messages."""
        self.catalog.space.check()

    def seam(self, topic: str, partition: Partition, lane: int) -> Seam:
        """One lane of a topic, its archived part included."""
        return Seam(self.archive, self.catalog.created_us(topic), partition, lane)

    def rules_of_new(self, topic: str) -> TopicRules:
        """What a topic that is not there would let in."""
        settings = self.catalog.settings_of_new(topic)
        return TopicRules(settings, settings.storage(self.settings.storage), self.clock)


# What carries an operation out. The broker calls these methods itself.
_METHODS: dict[type[Operation[Any]], Callable[..., Any]] = {
    operations.CreateTopic: Engine.create_topic,
    operations.AlterTopic: Engine.alter_topic,
    operations.DeleteTopic: Engine.delete_topic,
    operations.ListTopics: Engine.topics,
    operations.DescribeTopic: Engine.topic,
    operations.GetExtent: Engine.extent,
    operations.ListGroups: Engine.groups,
    operations.DeleteGroup: Engine.delete_group,
    operations.BeginProducer: Engine.begin_producer,
    operations.AdoptProgress: Engine.adopt,
    operations.AdoptIds: Engine.adopt_ids,
    operations.AdoptDeadLetters: Engine.adopt_dead_letters,
    operations.ReplaceSegment: Engine.replace_segment,
    operations.Sync: Engine.sync,
    operations.GetStats: Engine.stats,
    operations.Compact: Engine.compact,
    operations.UseArchive: Engine.use_archive,
    operations.Verify: Engine.verify,
    operations.MakeBackup: Engine.backup,
}


class HasBackend(Protocol):
    """What `quivermq.open` returns."""

    @property
    def backend(self) -> object: ...


def engine_of(connection: HasBackend) -> Engine:
    """The engine of a queue that was opened in this process. Raises InvalidRequest for any other."""
    engine = connection.backend
    if not isinstance(engine, Engine):
        raise InvalidRequest(f"{connection!r} is not open in this process: quivermq.open opens a directory")
    return engine
