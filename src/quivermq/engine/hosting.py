"""The topics of a queue as they lie on the disk: opened, looked up, looked after, and closed."""

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakSet

from quivermq.archive import ArchivedTopic
from quivermq.clock import Clock, SteadyClock, SystemClock
from quivermq.delivery.dead_letters import DeadLetterTopic
from quivermq.disk import Disk
from quivermq.engine.ages import Ages
from quivermq.engine.archived import QueueArchive, Seam
from quivermq.engine.catalog import Catalog
from quivermq.engine.dead_letters import finish_moves
from quivermq.engine.gauges import Gauges
from quivermq.engine.hosted import Hosted, Space
from quivermq.engine.limits import Limits
from quivermq.engine.origins import Origins, dead_letter_settings, graves_of
from quivermq.engine.renewal import LeaseRenewer
from quivermq.engine.resting import Known, Rest, may_rest, resting
from quivermq.engine.survey import Surveyor
from quivermq.errors import (
    Closing,
    Conflict,
    DiskFull,
    DiskRefused,
    InvalidSettings,
    QuiverError,
    StorageFailed,
    TopicNotFound,
)
from quivermq.group.coordinator import Coordinator
from quivermq.group.waiters import Waiters
from quivermq.log import DataDirectory
from quivermq.log.flusher import Flusher, Scheduler
from quivermq.metrics import Metrics
from quivermq.model.names import Pattern, check_topic_name
from quivermq.model.topic_settings import TopicSettings
from quivermq.model.turns import in_turns
from quivermq.reentry import entered, is_inside, soon
from quivermq.settings import Settings
from quivermq.topic.defaults import TopicDefaults
from quivermq.topic.draft import Draft
from quivermq.topic.partition import Partition
from quivermq.topic.stored import StoredTopic, load_topic, store_topic
from quivermq.topic.topic import Topic

logger = logging.getLogger(__name__)

_PARTITION = re.compile(r"p[0-9]{1,4}")

# So many topics are opened at once, whatever they are like; more are opened when they are used.
_OPENED_AT_START = 64
# For so long at a time, those are opened of which nothing is known.
_OPENING_S = 0.05
# A topic that the disk refused to open is tried again after this long.
_TRY_AGAIN_US = 1_000_000

# A clock that was set by less is not worth a word.
_JUMP_US = 1_000_000

# Told of a topic and of what happened to it, by whichever thread did it; must neither wait nor fail.
TopicWatcher = Callable[[str, Literal["created", "altered", "deleted"]], None]


_open_here: "WeakSet[Hosting]" = WeakSet()


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
        self.topic_defaults = TopicDefaults(settings)
        self.metrics = Metrics()
        self.clock = SteadyClock(base)
        self.topic_waiters = Waiters()
        self.topic_watchers: list[TopicWatcher] = []
        self._space = Space()
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
        self._ages = Ages(self.clock)
        self._gauges = Gauges(self.metrics, self._directory.disk, self.clock)
        self._surveyor = Surveyor(self.metrics, sync_time)
        self._measuring = threading.Lock()
        self.path = self._directory.path
        self._scheduler = scheduler or Flusher(self.clock)
        self._owns_scheduler = scheduler is None
        self.renewer = LeaseRenewer(self.clock, self._scheduler)
        # Held only to look at and change the dict, and to open a topic; never while waiting for a cursor.
        self._topics_lock = threading.RLock()
        # One after the other: altering and deleting topics; writing their settings.
        self._changing = threading.Lock()
        self._storing = threading.Lock()
        # Those that are open, those that are just being opened, and those that are there and not open.
        # Changed in place: whoever walks over one walks over a copy.
        self._hosted: dict[str, Hosted] = {}
        self._opening: dict[str, Hosted] = {}
        self._resting: dict[str, Rest] = {}
        self._stored_groups: dict[str, list[str]] = {}
        # When something falls due in those that are not open, and which are to be opened in any case.
        self._alarms: list[tuple[int, str]] = []
        self._unknown: list[str] = []
        # The topics that maintenance has to look at.
        self._busy: set[Hosted] = set()
        self._broken: dict[str, QuiverError] = {}
        self._catalog = Catalog(self._directory)
        self._limits = Limits(settings.engine)
        self._retained_at = self.clock.monotonic()
        self._jumped_us = 0
        self._is_closed = False
        self._is_of_parent = False
        _open_here.add(self)
        self._origins = Origins()
        self._known = Known(self._hosted, self._resting)
        self.members = Coordinator(self.clock, self._names, self._partitions_of, origin_of=self.origin_of)
        try:
            self.archive = QueueArchive(self._directory.disk, self.path)
            self._open_topics()
        except BaseException:
            self._directory.close()
            raise
        self._look_at_disk()
        self._schedule_maintenance()

    @entered
    def maintain(self) -> None:
        """Do what is due by now. A thread does this all the time; calling it does no harm."""
        if self._is_closed:
            return
        now_us = self.clock.now_us()
        self._look_at_clock()
        self._look_at_disk()
        self._open_the_refused()
        self.members.expire()
        self._open_some_unknown()
        self._open_due(now_us)
        for hosted in tuple(self._busy):
            self._guarded(hosted, partial(hosted.maintain, now_us))
            self._let_rest(hosted)
        if self.clock.monotonic() - self._retained_at >= self.settings.engine.retention_interval_ms / 1000:
            self._retained_at = self.clock.monotonic()
            for hosted in in_turns(list(self._hosted.values())):
                if hosted.may_shrink:
                    self._guarded(hosted, hosted.retain)

    def _let_rest(self, hosted: Hosted) -> None:
        """Look at a topic no more in which nothing can fall due before somebody uses it again."""
        if hosted.is_quiet or hosted.is_gone:
            self._busy.discard(hosted)
            hosted.is_busy = False
            # Whoever uses it says so afterwards, and may have done so before this.
            if not (hosted.is_quiet or hosted.is_gone):
                hosted.become_busy()

    def close(self) -> None:
        """Write and sync everything and let go of the directory. Closing twice is allowed.

        What `process` and `stream` are at is released; other leases stay as they are. Raises DiskFull when
        buffered messages cannot be written: call it again once there is room. In a signal handler that has
        interrupted a call of this thread, it returns at once, and the queue is closed when that call ends.
        """
        self._is_closed = True
        if is_inside():
            for hosted in list(self._hosted.values()):
                hosted.wake_all()
            self.topic_waiters.wake_all()
        soon(self._close)

    def _close(self) -> None:
        self._end_schedule()
        self.renewer.give_back()
        self._close_all()

    @entered
    def _end_schedule(self) -> None:
        if self._owns_scheduler:
            self._scheduler.close()

    @entered
    def _close_all(self) -> None:
        open_topics = self._hosted.copy()
        for hosted in open_topics.values():
            hosted.close()
        self.topic_waiters.wake_all()
        self.members.wake_all()
        sound = [hosted for hosted in open_topics.values() if may_rest(hosted)]
        self._directory.close(partial(self._store_catalog, sound))

    def _store_catalog(self, sound: list[Hosted]) -> None:
        """Write down what the next opening need not look for."""
        if len(self._hosted) + len(self._resting) <= _OPENED_AT_START:
            return
        entries = {name: rest.entry for name, rest in self._resting.items() if rest.entry is not None}
        for hosted in sound:
            try:
                entries[hosted.name] = resting(hosted, self._ages)
            except (QuiverError, FileNotFoundError) as error:
                logger.warning("%s is opened at the next start: %s", hosted.name, error)
        self._catalog.store(entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine {self.path}, {len(self._known)} topics>"

    def announce(self, url: str) -> None:
        """Tell whoever finds the directory in use where it is served."""
        self._directory.announce(url)

    def check_open(self) -> None:
        """Raise Closing once the queue was closed, and in a forked child."""
        if self._is_of_parent:
            raise Closing(f"{self.path} was opened before the fork: open it in the child")
        if self._is_closed:
            raise Closing(f"{self.path} was closed: open it again")

    def hosted(self, name: str) -> Hosted:
        """The topic of that name. Raises TopicNotFound, InvalidName."""
        self.check_open()
        # Before anything is looked up: a name may be of any type.
        check_topic_name(name)
        hosted = self.find(name)
        if hosted is None:
            raise TopicNotFound(f"there is no topic {name}: topics() lists those there are")
        return hosted

    @property
    def is_fenced(self) -> bool:
        """Whether some log takes nothing any more, until the queue is opened again."""
        return self._directory.is_fenced

    def check_space(self) -> None:
        """Raise DiskFull while there is no room for messages."""
        self._space.check()

    def find(self, name: str) -> Hosted | None:
        """The topic of that name, if there is one. Raises what keeps it from being opened."""
        if self._is_of_parent:
            self.check_open()
        hosted = self._hosted.get(name)
        if hosted is None:
            if name in self._resting:
                return self._opened(name)
            self._check_whole(name)
        return hosted

    def find_all(self, matches: Callable[[str], bool]) -> list[Hosted]:
        """The topics whose names match, all of them open."""
        for name in in_turns([name for name in self._resting.copy() if matches(name)]):
            with suppress(StorageFailed, InvalidSettings):
                self._opened(name)
        return [hosted for name, hosted in self._hosted.copy().items() if matches(name)]

    def is_resting(self, name: str) -> bool:
        """Whether there is a topic of that name that is not open: whoever uses it waits for the disk."""
        return name in self._resting

    @property
    def has_resting(self) -> bool:
        """Whether there are topics that are not open."""
        return bool(self._resting)

    def groups_by_topic(self) -> dict[str, list[str]]:
        """By name of each topic, open or not, its groups."""
        groups = {name: self._groups_of(name) for name in self._resting.copy()}
        return groups | {name: list(hosted.groups) for name, hosted in self._hosted.copy().items()}

    def _groups_of(self, name: str) -> list[str]:
        """The groups that a topic that is not open has on the disk."""
        return self._stored_groups.get(name, [])

    def _names(self) -> list[str]:
        return list({**dict.fromkeys(self._resting.copy()), **dict.fromkeys(self._hosted.copy())})

    def find_by(self, pattern: Pattern) -> list[Hosted]:
        """The topics that a pattern stands for, all of them open."""
        return self.find_all(lambda name: pattern.matches(name, self.origin_of(name)))

    def origin_of(self, name: str) -> str | None:
        """The topic whose dead letters are in the topic of that name, or would be if it were made now.

        None for a topic of its own.
        """
        known = self._known.get(name)
        return self._origins.of_new(self._known, name) if known is None else known.origin

    def dead_letters_of(self, topic: str) -> Hosted | None:
        """Where the dead letters of a topic are; of one that has dead letters, itself. None without any.

        Raises what keeps them from being opened.
        """
        return self.find(graves_of(self._known, topic))

    def _partitions_of(self, topic: str) -> int:
        """Without opening it: whoever asks holds a lock that others want who open and make topics."""
        if (rest := self._resting.get(topic)) is not None:
            return rest.partitions
        hosted = self._hosted.get(topic)
        return 0 if hosted is None else hosted.settings.partitions

    def seam(self, topic: str, partition: Partition, lane: int) -> Seam:
        """One lane of a topic, its archived part included."""
        return Seam(self.archive, self.created_us(topic), partition, lane)

    def draft(self, topic: str) -> Draft:
        """What a topic that is not there would let in."""
        settings = self._settings_of_new(topic)
        return Draft(settings, settings.storage(self.settings.storage), self.clock)

    def _settings_of_new(self, name: str, **given: Any) -> TopicSettings:
        """What a topic is made with: what is given, and what the rules for topics say of the rest."""
        return self.topic_defaults.make(name, given, origin=self.origin_of(name))

    def created_us(self, name: str) -> int:
        """When a topic was made, which tells it from an earlier one of its name. Raises TopicNotFound."""
        stored = load_topic(self._directory.disk, self._topic_path(name))
        if stored is None:
            raise TopicNotFound(f"there is no topic {name}")
        return stored.created_us

    def hosted_or_new(self, name: str, *, is_ours: bool = False) -> Hosted:
        """The topic of that name, created with the defaults when it is new. Raises LimitReached.

        One that `is_ours` is made whatever the limits are: messages would be lost otherwise.
        """
        hosted = self._hosted.get(name)
        if hosted is None:
            check_topic_name(name)
            with self._topics_lock:
                self.check_open()
                hosted = self.find(name)
                if hosted is None:
                    settings = self._settings_of_new(name)
                    if not is_ours:
                        self._limits.check_topic(name, settings.partitions)
                    hosted = self._create(name, settings, {})
            self._take_over_dead_letters(hosted)
        return hosted

    def _take_over_dead_letters(self, hosted: Hosted) -> None:
        """Let dead letters that were there before their topic follow its settings. Without any lock."""
        if hosted.dead_letter_name in self._known:
            with self._changing:
                self._alter_dead_letters(hosted, hosted.settings)

    def _configure(self, hosted: Hosted, settings: TopicSettings) -> None:
        self._store(hosted.name, settings, origin=hosted.origin)
        self._limits.partitions += settings.partitions - hosted.settings.partitions
        hosted.configure(settings)
        self.members.topic_changed(hosted.name)

    def _alter_dead_letters(self, hosted: Hosted, settings: TopicSettings) -> None:
        """Let the dead-letter topic of a topic follow its settings."""
        graves = None if hosted.dead_letter_name is None else self._if_whole(hosted.dead_letter_name)
        if graves is not None and graves.origin == hosted.name:
            follows = settings.of_dead_letters(graves.settings)
            if follows != graves.settings:
                self._configure(graves, follows)

    # Opening.

    def _open_topics(self) -> None:
        """Find the topics there are. A few are opened at once, many when they are used."""
        disk, root = self._directory.disk, self.path / "topics"
        names = [name for name in disk.names(root) if disk.is_directory(root / name)]
        entries = self._catalog.load()
        self._stored_groups = self._find_groups()
        self._resting.update((name, Rest.of(name, entries.get(name))) for name in names)
        # One that is no topic is made one when it has messages, taken away, or set aside.
        odd = {name: None for name in names if name not in entries and not self._look_at_topic(name)}
        for name, rest in self._resting.items():
            self._limits.count_topic(rest.partitions, len(self._groups_of(name)))
            self._origins.note_name(name, rest.dead_letter_name)
        unknown = [name for name in names if name not in entries and name not in odd]
        # Those of their own first: what dead letters are set to follows from them.
        unknown.sort(key=lambda name: self._resting[name].origin is not None)
        for name in [*unknown[:_OPENED_AT_START], *odd]:
            self._open_or_set_aside(name)
        self._unknown = unknown[_OPENED_AT_START:]
        self._alarms = [(e.wake_us, name) for name, e in entries.items() if e.wake_us is not None]
        heapify(self._alarms)
        if self._unknown:
            self._scheduler.schedule(0, self._open_unknown)

    def _open_or_set_aside(self, name: str) -> bool:
        """Open a topic; one that is in trouble is set aside with its error, for whoever asks for it."""
        try:
            self._opened(name)
        except DiskRefused as error:
            self._set_aside(name, error)
        except (StorageFailed, InvalidSettings):
            # That has happened already.
            return False
        return name in self._hosted

    def _open_the_refused(self) -> None:
        """Open the topics for which there was no room, once there is some."""
        refused = [name for name, error in self._broken.copy().items() if isinstance(error, DiskRefused)]
        for name in refused if self._space.shortage is None else ():
            with self._topics_lock:
                del self._broken[name]
                self._resting[name] = Rest(name)
                self._look_at_topic(name)
                self._limits.count_topic(self._resting[name].partitions, len(self._groups_of(name)))
                if self._open_or_set_aside(name):
                    self.members.topic_changed(name)
                    logger.info("opened topic %s, for which there is room now", name, extra={"topic": name})

    def _look_at_topic(self, name: str) -> bool:
        """Learn whose topic a directory is; False when it is none that can be read."""
        try:
            stored = load_topic(self._directory.disk, self._topic_path(name))
        except (StorageFailed, InvalidSettings):
            return False
        if stored is None or stored.deleted:
            return False
        self._resting[name] = Rest(
            name,
            stored.dead_letters_of,
            None if stored.dead_letters_of else name + stored.settings.dead_letter_suffix,
            stored.settings.partitions,
        )
        return True

    def _find_groups(self) -> dict[str, list[str]]:
        """By topic, the groups that have been here before."""
        disk, root = self._directory.disk, self.path / "groups"
        found: dict[str, list[str]] = {}
        for group in disk.names(root):
            for topic in disk.names(root / group):
                found.setdefault(topic, []).append(group)
        return found

    def _open_unknown(self) -> None:
        """Open, a few at a time, the topics of which nobody knows what is in them: the process died."""
        self._open_some_unknown()
        if self._unknown and not self._is_closed:
            self._scheduler.schedule(_OPENING_S, self._open_unknown)

    def _open_some_unknown(self) -> None:
        end = self.clock.monotonic() + _OPENING_S
        while self._unknown and not self._is_closed and self.clock.monotonic() < end:
            with suppress(IndexError):
                # Another thread may do the same.
                self._try_open(self._unknown.pop())

    def _open_due(self, now_us: int) -> None:
        """Open the topics in which something falls due."""
        while True:
            with self._topics_lock:
                if not self._alarms or self._alarms[0][0] > now_us:
                    return
                name = heappop(self._alarms)[1]
            self._try_open(name)

    def _try_open(self, name: str) -> None:
        try:
            self.find(name)
        except QuiverError as error:
            if not self._is_closed:
                logger.error("topic %s cannot be opened now: %s", name, error, extra={"topic": name})
            if name in self._resting:
                # It may be another time.
                with self._topics_lock:
                    heappush(self._alarms, (self.clock.now_us() + _TRY_AGAIN_US, name))

    def _opened(self, name: str) -> Hosted | None:
        """A topic that was not open; None when it turns out to be none.

        Raises StorageFailed and InvalidSettings: then it is set aside. Raises DiskRefused: not now.
        """
        with self._topics_lock:
            self.check_open()
            hosted = self._hosted.get(name) or self._opening.get(name)
            if hosted is not None or name not in self._resting:
                return hosted
            self._catalog.use(name)
            self._resting[name].entry = None
            try:
                return self._open(name)
            except (StorageFailed, InvalidSettings) as error:
                self._set_aside(name, error)
                raise
            finally:
                self._opening.pop(name, None)

    def _open(self, name: str) -> Hosted | None:
        disk, path = self._directory.disk, self._topic_path(name)
        # Whoever changed the settings last may have died before their file's name was durable.
        disk.sync_directory(path)
        stored = load_topic(disk, path)
        if stored is None or stored.deleted:
            if stored is None:
                self._adopt(name)
            else:
                self._remove_files(name)
            if name in self._resting:
                self._drop(name)
            return self._hosted.get(name)
        settings, origin = stored.settings, stored.dead_letters_of
        if origin is not None and (source := self._settings_of(origin)) is not None:
            settings = dead_letter_settings(source, origin, settings, {})
            if settings != stored.settings:
                # Its topic was altered, and the process died before this one was.
                self._try_to_store(name, settings, origin)
        # Whoever has to be asked on the way, and asks this topic in turn, finds its logs here.
        hosted = self._opening[name] = self._host(name, settings, origin)
        hosted.open_groups(self._groups_of(name))
        hosted.topic.open_delays()
        self._guarded(hosted, partial(finish_moves, hosted, self.find))
        self._add(name, hosted)
        return hosted

    def _add(self, name: str, hosted: Hosted) -> None:
        if name in self._resting:
            self._limits.count_topic(-self._resting[name].partitions, -len(self._groups_of(name)))
        self._limits.count_topic(hosted.settings.partitions, len(hosted.groups))
        # In this order: whoever looks at both, the other way round, finds it in one of them at least.
        self._hosted[name] = hosted
        self._resting.pop(name, None)
        hosted.become_busy()

    def _settings_of(self, name: str) -> TopicSettings | None:
        """The settings of a topic, which is not opened for it; None when there is none that can be read."""
        if (hosted := self._hosted.get(name) or self._opening.get(name)) is not None:
            return hosted.settings
        if name in self._resting:
            with suppress(StorageFailed, InvalidSettings):
                stored = load_topic(self._directory.disk, self._topic_path(name))
                return None if stored is None or stored.deleted else stored.settings
        return None

    def _try_to_store(self, name: str, settings: TopicSettings, origin: str) -> None:
        try:
            self._store(name, settings, origin=origin)
        except DiskRefused as error:
            # The next opening makes it the same again.
            logger.warning("settings of %s are not written: %s", name, error)

    def _set_aside(self, name: str, error: QuiverError) -> None:
        """Go on without a topic that cannot be opened; whoever asks for it is told."""
        logger.error("topic %s cannot be opened: %s", name, error, extra={"topic": name})
        self._broken[name] = error
        self._drop(name)
        self.members.topic_changed(name)

    def _drop(self, name: str) -> None:
        """Count a topic no more that is not there any more."""
        if (hosted := self._hosted.pop(name, None)) is not None:
            self._limits.count_topic(-hosted.settings.partitions, -len(hosted.groups))
            self._busy.discard(hosted)
        elif name in self._resting:
            self._limits.count_topic(-self._resting[name].partitions, -len(self._groups_of(name)))
            del self._resting[name]

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
        settings = self._settings_of_new(name, partitions=max(numbers) + 1)
        logger.warning("%s has messages but no topic.json: it is opened with the defaults", path)
        self._create(name, settings, {})

    def _create(self, name: str, settings: TopicSettings, given: Mapping[str, Any]) -> Hosted:
        """Make a topic; one whose name says so gets the dead letters of another one.

        Raises TopicExists, InvalidName and InvalidSettings.
        """
        origin = self._origins.of_new(self._known, name)
        if origin is None:
            self._origins.check_new(self._known, name, settings)
        else:
            settings = dead_letter_settings(self._settings_of(origin), origin, settings, given)
        self._store(name, settings, origin=origin)
        logger.info("created topic %s", name, extra={"topic": name})
        hosted = self._host(name, settings, origin)
        hosted.open_groups(self._groups_of(name) if name in self._resting else [])
        hosted.topic.open_delays()
        self._add(name, hosted)
        self.members.topic_changed(name)
        self.topic_waiters.wake_all()
        self._tell_watchers(name, "created")
        return hosted

    def _tell_watchers(self, name: str, change: Literal["created", "altered", "deleted"]) -> None:
        for watcher in self.topic_watchers:
            watcher(name, change)

    def _host(self, name: str, settings: TopicSettings, origin: str | None) -> Hosted:
        self._origins.note(settings)
        with_archive = partial(Seam, self.archive, self.created_us(name))
        topic = Topic(self._directory, name, settings, self.clock, origin, with_archive)
        return Hosted(
            self._directory,
            topic,
            self.clock,
            self.metrics,
            self._space,
            self._graves,
            self._archived,
            self._settle,
            self._limits,
            self._busy.add,
        )

    def _archived(self, topic: str) -> ArchivedTopic | None:
        if self.archive.look() is None:
            return None
        return self.archive.durable_topic(topic, self.created_us(topic))

    def _graves(self, topic: str, create: bool) -> DeadLetterTopic | None:
        asking = self._known.get(topic)
        if asking is None or (name := asking.dead_letter_name) is None:
            return None
        hosted = self.hosted_or_new(name, is_ours=True) if create else self._found(name)
        if hosted is None:
            return None
        if hosted.origin != topic:
            raise Conflict(f"{name} is there for something else, and cannot have dead letters of {topic}")
        # One that is just being added is not known to all groups yet.
        return DeadLetterTopic(hosted.topic.partitions[: hosted.settings.partitions], hosted.ring)

    def _found(self, name: str) -> Hosted | None:
        """A topic, unless it is known to have nothing on its way, or cannot be opened."""
        rest = self._resting.get(name)
        return None if rest is not None and rest.entry is not None else self._if_whole(name)

    def _if_whole(self, name: str) -> Hosted | None:
        """A topic, unless it cannot be opened."""
        with suppress(StorageFailed, InvalidSettings):
            return self.find(name)
        return None

    def _settle(self, topic: str) -> bool:
        """Have written down which messages of a topic came from its dead letters, or are dead letters.

        Until then, they themselves tell it, and have to stay; False while some are on their way. Raises
        DiskRefused.
        """
        origin = self.origin_of(topic)
        if origin is not None:
            hosted = self._found(origin)
            for group in hosted.all_groups() if hosted is not None else ():
                for cursor in group.cursors:
                    cursor.settle()
            return True
        graves = self._found(graves_of(self._known, topic))
        return graves is None or all(each.removals.settle() for each in graves.topic.partitions)

    def _topic_path(self, name: str) -> Path:
        return self.path / "topics" / name

    def _store(
        self, name: str, settings: TopicSettings, *, origin: str | None, deleted: bool = False
    ) -> None:
        disk, path = self._directory.disk, self._topic_path(name)
        with self._storing:
            before = load_topic(disk, path)
            if before is not None and before.deleted and not deleted:
                # Its removal was interrupted: nothing of it may come back under the same name.
                self._remove_files(name)
                before = None
            created_us = self.clock.now_us() if before is None else before.created_us
            stored = StoredTopic(
                settings=settings, created_us=created_us, deleted=deleted, dead_letters_of=origin
            )
            store_topic(disk, path, stored)

    def _remove_files(self, name: str) -> None:
        """Take away what a deleted topic left; `topic.json`, which says so, goes last."""
        disk = self._directory.disk
        self._stored_groups.pop(name, None)
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
        if free >= max(wanted, 1):
            self._space.shortage = None
        elif self._space.shortage is None:
            logger.error("%s has only %d bytes left: messages are refused", self.path, free)
            # Without a reserve, it is the disk itself that has none.
            reserve = {"free_bytes_min": wanted} if wanted else {}
            self._space.shortage = DiskFull(self.path, needed_bytes=max(wanted - free, 1), **reserve)

    def _look_at_clock(self) -> None:
        jumped_us = self.clock.jumped_us()
        if abs(jumped_us - self._jumped_us) >= _JUMP_US:
            logger.warning(
                "the system's clock was set by %+.1f s: times here go on as before until the next opening",
                (jumped_us - self._jumped_us) / 1_000_000,
            )
            self._jumped_us = jumped_us


def _disown() -> None:
    """In a forked child: what the parent has in memory goes on without this process."""
    for engine in list(_open_here):
        engine._is_of_parent = True
        for hosted in engine._hosted.values():
            for group in hosted.groups.values():
                for cursor in group.cursors:
                    cursor.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
