"""The catalog: which topics there are. It finds and opens them, and creates, alters and deletes them.

It holds a `TopicTable`, which knows what there is, and `TopicDirectories`, which read and write what says
so on the disk. `Opening` opens topics that nobody asks for, `TopicRelations` finds one topic for another.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal
from weakref import WeakSet

from quivermq.clock import SteadyClock
from quivermq.engine.archived import QueueArchive, Seam
from quivermq.engine.closed_topics import StoredCatalog, may_be_summarized
from quivermq.engine.dead_letters import finish_moves
from quivermq.engine.limits import Limits, Space
from quivermq.engine.open_topic import OpenTopic
from quivermq.engine.relations import TopicRelations, dead_letter_settings
from quivermq.engine.topic_directories import TopicDirectories
from quivermq.engine.topic_table import TopicTable
from quivermq.errors import (
    Closing,
    DiskRefused,
    FsyncFailed,
    InvalidSettings,
    QuiverError,
    StorageFailed,
    TopicExists,
    TopicNotFound,
)
from quivermq.group.coordinator import Coordinator
from quivermq.group.waiters import Waiters
from quivermq.log import DataDirectory
from quivermq.metrics import Metrics
from quivermq.model.names import Pattern, check_topic_name
from quivermq.model.topic_settings import TopicSettings
from quivermq.model.turns import in_turns
from quivermq.settings import Settings
from quivermq.topic.defaults import TopicDefaults
from quivermq.topic.topic import Topic

logger = logging.getLogger(__name__)

# Told of a topic and of what happened to it, by whichever thread did it; must neither wait nor fail.
TopicWatcher = Callable[[str, Literal["created", "altered", "deleted"]], None]

_open_here: "WeakSet[Catalog]" = WeakSet()


class Catalog:
    """The topics of an open data directory. Thread-safe."""

    def __init__(
        self,
        directory: DataDirectory,
        settings: Settings,
        defaults: TopicDefaults,
        archive: QueueArchive,
        *,
        metrics: Metrics,
        clock: SteadyClock,
    ) -> None:
        self._directory = directory
        self._storage = settings.storage
        self._defaults = defaults
        self._archive = archive
        self._metrics = metrics
        self._clock = clock
        self.space = Space(directory.disk, directory.path, settings.engine.free_bytes_min)
        self.directories = TopicDirectories(directory, clock)
        self.stored = StoredCatalog(directory)
        self.table = TopicTable(Limits(settings.engine))
        self.members = Coordinator(
            clock, self.table.names, self.table.partitions_of, origin_of=self.table.origin_of
        )
        self._relations = TopicRelations(self, archive)
        # Where those wait who want to know of new topics, and those who are told of every change.
        self.waiters = Waiters()
        self.watchers: list[TopicWatcher] = []
        # One after the other: altering and deleting topics.
        self._changing = threading.Lock()
        # Those that are just being opened.
        self._opening: dict[str, OpenTopic] = {}
        self.is_closed = False
        self.is_interrupted = False
        self._is_of_parent = False
        _open_here.add(self)

    def check_open(self) -> None:
        """Raise Closing once the queue was closed, and in a forked child."""
        if self._is_of_parent:
            raise Closing(f"{self._directory.path} was opened before the fork: open it in the child")
        if self.is_closed or self.is_interrupted:
            raise Closing(f"{self._directory.path} was closed: open it again")

    # Looking up.

    def get(self, name: str) -> OpenTopic:
        """The topic of that name. Raises TopicNotFound, InvalidName."""
        self.check_open()
        # Before anything is looked up: a name may be of any type.
        check_topic_name(name)
        topic = self.find(name)
        if topic is None:
            raise TopicNotFound.named(name)
        return topic

    def find(self, name: str) -> OpenTopic | None:
        """The topic of that name, if there is one. Raises what keeps it from being opened."""
        if self._is_of_parent:
            self.check_open()
        topic = self.table.find_open(name)
        if topic is None:
            if self.table.find_closed(name) is not None:
                return self.open_closed(name)
            self.table.check_not_set_aside(name)
            # Another thread may have opened it between the two looks.
            topic = self.table.find_open(name)
        return topic

    def find_readable(self, name: str) -> OpenTopic | None:
        """The topic of that name, if there is one that can be opened."""
        with suppress(StorageFailed, InvalidSettings):
            return self.find(name)
        return None

    def get_or_create(self, name: str, *, is_ours: bool = False) -> OpenTopic:
        """The topic of that name, created with the defaults when it is new. Raises LimitReached.

        One that `is_ours` is made whatever the limits are: messages would be lost otherwise.
        """
        topic = self.table.find_open(name)
        if topic is None:
            check_topic_name(name)
            with self.table.lock:
                self.check_open()
                topic = self.find(name)
                if topic is None:
                    settings = self.settings_of_new(name)
                    if not is_ours:
                        self.table.limits.check_topic(name, len(settings.own_partitions))
                    topic = self._create(name, settings, {})
            self._take_over_dead_letters(topic)
        return topic

    def find_matching(self, pattern: Pattern) -> list[OpenTopic]:
        """The topics that a pattern stands for, all of them open."""

        def matches(name: str) -> bool:
            return pattern.matches(name, self.table.origin_of(name))

        for name in in_turns([name for name in self.table.closed_topics() if matches(name)]):
            self.find_readable(name)
        return [topic for name, topic in self.table.open_topics().items() if matches(name)]

    def dead_letter_topic_of(self, name: str) -> OpenTopic | None:
        """Where the dead letters of a topic are; of one that has dead letters, itself. None without any.

        Raises what keeps them from being opened.
        """
        return self.find(self.table.dead_letter_name_of(name))

    def created_us(self, name: str) -> int:
        """When a topic was made, which tells it from an earlier one of its name. Raises TopicNotFound."""
        return self.directories.created_us(name)

    def settings_of_new(self, name: str, **given: Any) -> TopicSettings:
        """What a topic is made with: what is given, and what the rules for topics say of the rest."""
        made = self._defaults.make(name, given, origin=self.table.origin_of(name))
        if made.spread > 1 and made.spread_index is None:
            reason = (
                f"{made.spread} needs a cluster, by the URLs of several brokers, such as"
                " http://a:7070,http://b:7070: a data directory, or a broker alone, has all partitions"
            )
            raise InvalidSettings("spread", reason, origin="arguments")
        return made

    # Changes.

    def create(self, name: str, settings: Mapping[str, Any], *, exist_ok: bool) -> None:
        """Create a topic. Raises TopicExists, InvalidName, InvalidSettings."""
        check_topic_name(name)
        made = self.settings_of_new(name, **settings)
        with self.table.lock:
            self.check_open()
            self.table.check_not_set_aside(name)
            if self.find(name) is not None:
                if exist_ok:
                    if (commits := self._directory.disk.commits) is not None:
                        # Whoever has just made it may still wait for that.
                        commits.commit(commits.ticket())
                    return
                raise TopicExists(f"the topic {name} exists already: {TopicExists.advice}")
            self.table.limits.check_topic(name, len(made.own_partitions))
            topic = self._create(name, made, settings)
        self._take_over_dead_letters(topic)

    def _create(self, name: str, settings: TopicSettings, given: Mapping[str, Any]) -> OpenTopic:
        """Make a topic; one whose name says so gets the dead letters of another one.

        Raises TopicExists, InvalidName and InvalidSettings.
        """
        origin = self.table.origin_of_new(name)
        if origin is None:
            self.table.check_new(name, settings)
        else:
            settings = dead_letter_settings(self._settings_of(origin), origin, settings, given)
        self.directories.store(name, settings, origin=origin)
        logger.info("created topic %s", name, extra={"topic": name})
        topic = self._open_topic(name, settings, origin)
        closed = self.table.find_closed(name)
        topic.open_groups([] if closed is None else closed.groups)
        topic.topic.open_delays()
        self.table.add(topic)
        self.members.topic_changed(name)
        self.waiters.wake_all()
        self._tell_watchers(name, "created")
        return topic

    def alter(self, name: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a topic while it is in use. Raises TopicNotFound, InvalidSettings."""
        with self._changing:
            topic = self.get(name)
            changed = topic.settings.changed(settings)
            if topic.origin is not None:
                source = self._settings_of(topic.origin)
                changed = dead_letter_settings(source, topic.origin, changed, settings)
            changed.storage(self._storage)
            more = len(changed.own_partitions) - len(topic.settings.own_partitions)
            self.table.limits.check_partitions(name, more)
            # Before there can be a dead letter that needs a partition there; and once more, for a topic
            # that was made for the first one meanwhile.
            self._alter_dead_letters(topic, changed)
            self._configure(topic, changed)
            self._alter_dead_letters(topic, changed)
        logger.info("altered topic %s", name, extra={"topic": name, "settings": settings})
        self._tell_watchers(name, "altered")

    def delete(self, name: str) -> None:
        """Delete a topic, its messages and what its groups know. Its dead letters stay."""
        with self._changing:
            topic = self.get(name)
            try:
                self.directories.store_deleted(name, topic.settings, origin=topic.origin)
            except FsyncFailed as error:
                # Only the next opening tells whether it is deleted: until then it promises nothing.
                topic.close()
                with self.table.lock:
                    self.set_aside(name, error)
                raise
            topic.close(is_deleted=True)
            with self.table.lock:
                self.table.drop(name)
                self.members.topic_changed(name)
                self.directories.remove(name)
        self._metrics.forget(topic=name)
        logger.info("deleted topic %s", name, extra={"topic": name})
        self._tell_watchers(name, "deleted")

    def _take_over_dead_letters(self, topic: OpenTopic) -> None:
        """Let dead letters that were there before their topic follow its settings. Without any lock."""
        if topic.dead_letter_name in self.table:
            with self._changing:
                self._alter_dead_letters(topic, topic.settings)

    def _configure(self, topic: OpenTopic, settings: TopicSettings) -> None:
        self.directories.store(topic.name, settings, origin=topic.origin)
        own, before = settings.own_partitions, topic.settings.own_partitions
        self.table.limits.partitions += len(own) - len(before)
        topic.configure(settings)
        self.members.topic_changed(topic.name)

    def _alter_dead_letters(self, topic: OpenTopic, settings: TopicSettings) -> None:
        """Let the dead-letter topic of a topic follow its settings."""
        name = topic.dead_letter_name
        dead_letters = None if name is None else self.find_readable(name)
        if dead_letters is not None and dead_letters.origin == topic.name:
            follows = settings.of_dead_letters(dead_letters.settings)
            if follows != dead_letters.settings:
                self._configure(dead_letters, follows)

    def _tell_watchers(self, name: str, change: Literal["created", "altered", "deleted"]) -> None:
        for watcher in self.watchers:
            watcher(name, change)

    # Opening and closing.

    def open_closed(self, name: str) -> OpenTopic | None:
        """A topic that was not open; None when it turns out to be none.

        Raises StorageFailed and InvalidSettings: then it is set aside. Raises DiskRefused: not now.
        """
        with self.table.lock:
            self.check_open()
            topic = self.table.find_open(name) or self._opening.get(name)
            closed = self.table.find_closed(name)
            if topic is not None or closed is None:
                return topic
            self.stored.use(name)
            closed.summary = None
            try:
                return self._open(name, closed.groups)
            except (StorageFailed, InvalidSettings) as error:
                self.set_aside(name, error)
                raise
            finally:
                self._opening.pop(name, None)

    def _open(self, name: str, groups: list[str]) -> OpenTopic | None:
        stored = self.directories.load_synced(name)
        if stored is None or stored.deleted:
            if stored is None:
                self._adopt(name)
            else:
                self.directories.remove(name)
            if self.table.find_closed(name) is not None:
                self.table.drop(name)
            return self.table.find_open(name)
        settings, origin = stored.settings, stored.dead_letters_of
        if origin is not None and (source := self._settings_of(origin)) is not None:
            settings = dead_letter_settings(source, origin, settings, {})
            if settings != stored.settings:
                # Its topic was altered, and the process died before this one was.
                self._try_to_store(name, settings, origin)
        # Whoever has to be asked on the way, and asks this topic in turn, finds its logs here.
        topic = self._opening[name] = self._open_topic(name, settings, origin)
        topic.open_groups(groups)
        topic.topic.open_delays()
        self.attempt(topic, partial(finish_moves, topic, self.find))
        self.table.add(topic)
        return topic

    def _adopt(self, name: str) -> None:
        """A directory without `topic.json`: the file was lost, or its making was interrupted."""
        partitions = self.directories.partition_count(name)
        if partitions:
            settings = self.settings_of_new(name, partitions=partitions)
            path = self.directories.path(name)
            logger.warning("%s has messages but no topic.json: it is opened with the defaults", path)
            self._create(name, settings, {})

    def _settings_of(self, name: str) -> TopicSettings | None:
        """The settings of a topic, which is not opened for it; None when there is none that can be read."""
        if (topic := self.table.find_open(name) or self._opening.get(name)) is not None:
            return topic.settings
        if self.table.find_closed(name) is not None:
            stored = self.directories.load_if_there(name)
            return None if stored is None else stored.settings
        return None

    def _try_to_store(self, name: str, settings: TopicSettings, origin: str) -> None:
        try:
            self.directories.store(name, settings, origin=origin)
        except DiskRefused as error:
            # The next opening makes it the same again.
            logger.warning("settings of %s are not written: %s", name, error)

    def set_aside(self, name: str, error: QuiverError) -> None:
        """Go on without a topic that cannot be opened; whoever asks for it is told."""
        self.table.set_aside(name, error)
        self.members.topic_changed(name)

    def attempt(self, topic: OpenTopic, act: Callable[[], object]) -> None:
        """Do something for a topic: one in trouble must not keep the others from being looked after."""
        try:
            act()
        except QuiverError as error:
            if not (topic.is_gone or self.is_closed):
                logger.error("maintenance of %s failed: %s", topic.name, error)
        except Exception:
            logger.exception("maintenance of %s failed", topic.name)

    def _open_topic(self, name: str, settings: TopicSettings, origin: str | None) -> OpenTopic:
        self.table.note_suffix(settings)
        with_archive = partial(Seam, self._archive, self.created_us(name))
        topic = Topic(self._directory, name, settings, self._clock, origin, with_archive)
        return OpenTopic(
            self._directory,
            topic,
            self._clock,
            self._metrics,
            self.space,
            self._relations,
            self.table.limits,
            self.table.busy.add,
        )

    def refuse_calls(self) -> None:
        """Answer every further call with Closing. What is at work goes on."""
        self.is_closed = True

    def wake_all(self) -> None:
        """Wake everybody who waits. Takes no lock, so a signal handler may call this at any moment."""
        for topic in self.table.open_topics().values():
            topic.wake_all()
        self.waiters.wake_all()

    def close(self) -> list[OpenTopic]:
        """Serve nobody any more. Returns the topics that a summary can be made of."""
        topics = list(self.table.open_topics().values())
        for topic in topics:
            topic.close()
        self.waiters.wake_all()
        self.members.wake_all()
        return [topic for topic in topics if may_be_summarized(topic)]

    def disown(self) -> None:
        """In a forked child: what the parent has in memory goes on without this process."""
        self._is_of_parent = True
        for topic in self.table.open_topics().values():
            for group in topic.groups.values():
                for cursor in group.cursors.values():
                    cursor.disown()


def _disown() -> None:
    for catalog in list(_open_here):
        catalog.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
