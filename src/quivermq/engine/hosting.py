"""The topics of a queue as they lie on the disk: opened, looked up, looked after, and closed."""

import logging
import os
import re
import threading
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Literal, Self

from quivermq.archive import ArchivedTopic
from quivermq.clock import Clock, SteadyClock, SystemClock
from quivermq.delivery.burial import Graves
from quivermq.disk import Disk
from quivermq.engine.ages import Ages
from quivermq.engine.archived import QueueArchive, Seam
from quivermq.engine.dead_letters import finish_moves
from quivermq.engine.gauges import Gauges
from quivermq.engine.hosted import Hosted, Space
from quivermq.engine.renewal import Renewer
from quivermq.errors import (
    Closing,
    DiskFull,
    InvalidSettings,
    QuiverError,
    StorageFailed,
    TopicNotFound,
)
from quivermq.group.bell import Bell
from quivermq.group.coordinator import Coordinator
from quivermq.log import DataDirectory
from quivermq.log.flusher import Flusher, Scheduler
from quivermq.metrics import Metrics
from quivermq.settings import Settings
from quivermq.topic.draft import Draft
from quivermq.topic.names import (
    DEAD_LETTER_SUFFIX,
    check_topic_name,
    dead_letter_name,
    is_dead_letter_topic,
)
from quivermq.topic.partition import Partition
from quivermq.topic.settings import TopicSettings
from quivermq.topic.stored import StoredTopic, load_topic, store_topic
from quivermq.topic.topic import Topic

logger = logging.getLogger(__name__)

_PARTITION = re.compile(r"p[0-9]{1,4}")

# A clock that was set by less is not worth a word.
_JUMP_US = 1_000_000

# Told of a topic and of what happened to it, by whichever thread did it; must neither wait nor fail.
TopicWatcher = Callable[[str, Literal["created", "altered", "deleted"]], None]


class Hosting:
    """An open data directory, and everything that is in it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Settings,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        base = clock or SystemClock()
        self.settings = settings
        self.metrics = Metrics()
        self.clock = SteadyClock(base)
        self.topic_bell = Bell()
        self.topic_watchers: list[TopicWatcher] = []
        self._space = Space()
        self._directory = DataDirectory(
            path,
            settings.storage,
            disk=disk,
            clock=self.clock,
            scheduler=scheduler,
            sync_time=self.metrics.histogram(
                "quiver_fsync_seconds", "How long it took to make what was written durable."
            ),
        )
        self._ages = Ages(self.clock)
        self._gauges = Gauges(self.metrics, self._directory.disk, self._ages)
        self._measuring = threading.Lock()
        self.path = self._directory.path
        self._scheduler = scheduler or Flusher(self.clock)
        self._owns_scheduler = scheduler is None
        self.renewer = Renewer(self.clock, self._scheduler)
        # Held only to look at and change the dict, and to open a topic; never while waiting for a cursor.
        self._topics_lock = threading.RLock()
        # One after the other: altering and deleting topics; writing their settings.
        self._changing = threading.Lock()
        self._storing = threading.Lock()
        self._hosted: dict[str, Hosted] = {}
        self._broken: dict[str, QuiverError] = {}
        self._retained_at = self.clock.monotonic()
        self._jumped_us = 0
        self._is_closed = False
        self.members = Coordinator(self.clock, lambda: self._hosted, self._partitions_of)
        try:
            self.archive = QueueArchive(self._directory.disk, self.path)
            self._open_topics()
        except BaseException:
            self._directory.close()
            raise
        self._look_at_disk()
        self._schedule_maintenance()

    def maintain(self) -> None:
        """Do what is due by now. A thread does this all the time; calling it does no harm."""
        if self._is_closed:
            return
        now_us = self.clock.now_us()
        self._look_at_clock()
        self._look_at_disk()
        self.members.expire()
        for hosted in list(self._hosted.values()):
            self._guarded(hosted, partial(hosted.maintain, now_us))
        if self.clock.monotonic() - self._retained_at >= self.settings.engine.retention_interval_ms / 1000:
            self._retained_at = self.clock.monotonic()
            for hosted in list(self._hosted.values()):
                self._guarded(hosted, hosted.retain)

    def close(self) -> None:
        """Write and sync everything and let go of the directory. Closing twice is allowed.

        Raises DiskFull when buffered messages cannot be written: call it again once there is room.
        """
        self._is_closed = True
        if self._owns_scheduler:
            self._scheduler.close()
        for hosted in list(self._hosted.values()):
            hosted.close()
        self.topic_bell.ring(len(self.topic_bell.waiting))
        self.members.wake_all()
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine {self.path}, {len(self._hosted)} topics>"

    def check_open(self) -> None:
        """Raise Closing once the queue was closed."""
        if self._is_closed:
            raise Closing(f"{self.path} was closed: open it again")

    def hosted(self, name: str) -> Hosted:
        """The topic of that name. Raises TopicNotFound, InvalidName."""
        self.check_open()
        # Before anything is looked up: a name may be of any type.
        check_topic_name(name)
        hosted = self._hosted.get(name)
        if hosted is None:
            self._check_whole(name)
            raise TopicNotFound(f"there is no topic {name}: topics() lists those there are")
        return hosted

    def check_space(self) -> None:
        """Raise DiskFull while there is no room for messages."""
        self._space.check()

    def find(self, name: str) -> Hosted | None:
        """The topic of that name, if there is one. Raises what keeps it from being opened."""
        hosted = self._hosted.get(name)
        if hosted is None:
            self._check_whole(name)
        return hosted

    def find_all(self, matches: Callable[[str], bool]) -> list[Hosted]:
        """The topics whose names match."""
        return [hosted for name, hosted in self._hosted.items() if matches(name)]

    def _partitions_of(self, topic: str) -> int:
        hosted = self._hosted.get(topic)
        return 0 if hosted is None else hosted.settings.partitions

    def seam(self, topic: str, partition: Partition, lane: int) -> Seam:
        """One lane of a topic, its archived part included."""
        return Seam(self.archive, partial(self.created_us, topic), partition, lane)

    def draft(self) -> Draft:
        """What a topic with the defaults would let in."""
        settings = TopicSettings.make({}, self.settings.storage)
        return Draft(settings, settings.storage(self.settings.storage), self.clock)

    def created_us(self, name: str) -> int:
        """When a topic was made, which tells it from an earlier one of its name. Raises TopicNotFound."""
        stored = load_topic(self._directory.disk, self._topic_path(name))
        if stored is None:
            raise TopicNotFound(f"there is no topic {name}")
        return stored.created_us

    def hosted_or_new(self, name: str) -> Hosted:
        """The topic of that name, created with the defaults when it is new."""
        hosted = self._hosted.get(name)
        if hosted is None:
            check_topic_name(name)
            with self._topics_lock:
                self.check_open()
                hosted = self._hosted.get(name)
                if hosted is None:
                    self._check_whole(name)
                    hosted = self._create(name, TopicSettings.make({}, self.settings.storage))
        return hosted

    def _open_topics(self) -> None:
        disk, root = self._directory.disk, self.path / "topics"
        for name in disk.names(root):
            if disk.is_directory(root / name):
                try:
                    self._open_topic(name)
                except (StorageFailed, InvalidSettings) as error:
                    self._set_aside(name, error)
        groups = self._stored_groups()
        for name, hosted in self._hosted.items():
            hosted.open_groups(groups.get(name, []))
        for name, hosted in list(self._hosted.items()):
            try:
                hosted.topic.open_delays()
            except StorageFailed as error:
                self._set_aside(name, error)
        for hosted in list(self._hosted.values()):
            self._guarded(hosted, partial(finish_moves, hosted, self.find))

    def _stored_groups(self) -> dict[str, list[str]]:
        """By topic, the groups that have been here before."""
        disk, root = self._directory.disk, self.path / "groups"
        found: dict[str, list[str]] = {}
        for group in disk.names(root):
            for topic in disk.names(root / group):
                found.setdefault(topic, []).append(group)
        return found

    def _open_topic(self, name: str) -> None:
        disk, path = self._directory.disk, self._topic_path(name)
        # Whoever changed the settings last may have died before their file's name was durable.
        disk.sync_directory(path)
        stored = load_topic(disk, path)
        if stored is None:
            self._adopt(name)
        elif stored.deleted:
            self._remove_files(name)
        else:
            self._hosted[name] = self._host(name, stored.settings)

    def _set_aside(self, name: str, error: QuiverError) -> None:
        """Go on without a topic that cannot be opened; whoever asks for it is told."""
        logger.error("topic %s cannot be opened: %s", name, error, extra={"topic": name})
        self._broken[name] = error
        self._hosted = {other: h for other, h in self._hosted.items() if other != name}
        self.members.topic_changed(name)

    def _check_whole(self, name: str) -> None:
        """Raise what keeps a topic from being opened; the others go on."""
        if name in self._broken:
            raise copy(self._broken[name])

    def _adopt(self, name: str) -> None:
        """A directory without `topic.json`: the file was lost, or its making was interrupted."""
        disk, path = self._directory.disk, self._topic_path(name)
        numbers = [int(part[1:]) for part in disk.names(path) if _PARTITION.fullmatch(part)]
        if not numbers:
            return
        settings = TopicSettings.make({"partitions": max(numbers) + 1}, self.settings.storage)
        logger.warning("%s has messages but no topic.json: it is opened with the defaults", path)
        self._create(name, settings)

    def _create(self, name: str, settings: TopicSettings) -> Hosted:
        self._store(name, settings)
        logger.info("created topic %s", name, extra={"topic": name})
        hosted = self._host(name, settings)
        hosted.topic.open_delays()
        self._hosted = {**self._hosted, name: hosted}
        self.members.topic_changed(name)
        self.topic_bell.ring(len(self.topic_bell.waiting))
        self._tell_watchers(name, "created")
        return hosted

    def _tell_watchers(self, name: str, change: Literal["created", "altered", "deleted"]) -> None:
        for watcher in self.topic_watchers:
            watcher(name, change)

    def _host(self, name: str, settings: TopicSettings) -> Hosted:
        topic = Topic(self._directory, name, settings, self.clock)
        return Hosted(
            self._directory,
            topic,
            self.clock,
            self.metrics,
            self._space,
            self._graves,
            self._archived,
            self._settle,
        )

    def _archived(self, topic: str) -> ArchivedTopic | None:
        if self.archive.look() is None:
            return None
        return self.archive.durable_topic(topic, self.created_us(topic))

    def _graves(self, topic: str, create: bool) -> Graves | None:
        if is_dead_letter_topic(topic):
            return None
        name = dead_letter_name(topic)
        hosted = self.hosted_or_new(name) if create else self._hosted.get(name)
        if hosted is None:
            return None
        # One that is just being added is not known to all groups yet.
        return Graves(hosted.topic.partitions[: hosted.settings.partitions], hosted.ring)

    def _settle(self, topic: str) -> bool:
        """Have written down which messages of a topic came from its dead letters, or are dead letters.

        Until then, they themselves tell it, and have to stay; False while some are on their way. Raises
        DiskRefused.
        """
        origin = topic.removesuffix(DEAD_LETTER_SUFFIX)
        if origin != topic:
            hosted = self._hosted.get(origin)
            for group in hosted.groups.values() if hosted is not None else ():
                for cursor in group.cursors:
                    cursor.settle()
            return True
        graves = self._hosted.get(dead_letter_name(topic))
        return graves is None or all(each.removals.settle() for each in graves.topic.partitions)

    def _topic_path(self, name: str) -> Path:
        return self.path / "topics" / name

    def _store(self, name: str, settings: TopicSettings, *, deleted: bool = False) -> None:
        disk, path = self._directory.disk, self._topic_path(name)
        with self._storing:
            before = load_topic(disk, path)
            if before is not None and before.deleted and not deleted:
                # Its removal was interrupted: nothing of it may come back under the same name.
                self._remove_files(name)
                before = None
            created_us = self.clock.now_us() if before is None else before.created_us
            store_topic(disk, path, StoredTopic(settings=settings, created_us=created_us, deleted=deleted))

    def _remove_files(self, name: str) -> None:
        """Take away what a deleted topic left; `topic.json`, which says so, goes last."""
        disk = self._directory.disk
        for group in disk.names(self.path / "groups"):
            if disk.is_directory(self.path / "groups" / group / name):
                self._directory.remove(f"groups/{group}/{name}")
        for part in disk.names(self._topic_path(name)):
            if disk.is_directory(self._topic_path(name) / part):
                self._directory.remove(f"topics/{name}/{part}")
        self._directory.remove(f"topics/{name}")

    def _schedule_maintenance(self) -> None:
        self._scheduler.schedule(self.settings.engine.maintenance_interval_ms / 1000, self._maintain)

    def _maintain(self) -> None:
        try:
            self.maintain()
        finally:
            if not self._is_closed:
                self._schedule_maintenance()

    def _guarded(self, hosted: Hosted, act: Callable[[], object]) -> None:
        """One topic in trouble must not keep the others from being looked after."""
        try:
            act()
        except QuiverError as error:
            if not (hosted.is_gone or self._is_closed):
                logger.error("maintenance of %s failed: %s", hosted.name, error)
        except Exception:
            logger.exception("maintenance of %s failed", hosted.name)

    def _look_at_disk(self) -> None:
        free = self._directory.disk.free_bytes(self.path)
        wanted = self.settings.engine.free_bytes_min
        if free >= wanted:
            self._space.shortage = None
        elif self._space.shortage is None:
            logger.error("%s has only %d bytes left: messages are refused", self.path, free)
            self._space.shortage = DiskFull(self.path, needed_bytes=wanted - free)

    def _look_at_clock(self) -> None:
        jumped_us = self.clock.jumped_us()
        if abs(jumped_us - self._jumped_us) >= _JUMP_US:
            logger.warning(
                "the system's clock was set by %+.1f s: times here go on as before until the next opening",
                (jumped_us - self._jumped_us) / 1_000_000,
            )
            self._jumped_us = jumped_us
