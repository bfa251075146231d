"""The topics that are opened before anybody asks for them: at the start, and when something falls due.

A queue of few topics opens all of them at once. Of many, it opens those that were not closed in order, a
few at a time, because nobody knows what is in them.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from heapq import heapify, heappop, heappush

from quivermq.clock import Clock
from quivermq.disk import Disk, ordered
from quivermq.engine.catalog import Catalog
from quivermq.engine.closed_topics import ClosedTopic, summary_of
from quivermq.engine.open_topic import OpenTopic
from quivermq.errors import DiskRefused, InvalidSettings, QuiverError, StorageFailed
from quivermq.group.group import Group
from quivermq.log.flusher import Scheduler

logger = logging.getLogger(__name__)

# So many topics are opened at once, whatever they are like; more are opened when they are used.
_OPENED_AT_START = 64
# For so long at a time, those are opened of which nothing is known.
_OPENING_S = 0.05
# A topic that the disk refused to open is tried again after this long.
_TRY_AGAIN_US = 1_000_000


class Opening:
    """Finds the topics of a directory, and opens those that have to be. Thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        clock: Clock,
        scheduler: Scheduler,
        disk: Disk,
    ) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._directories = catalog.directories
        self._clock = clock
        self._scheduler = scheduler
        self._disk = disk
        # When something falls due in those that are not open, and which are to be opened in any case.
        self._alarms: list[tuple[int, str]] = []
        self._unknown: list[str] = []

    def start(self) -> None:
        """Find the topics there are. A few are opened at once, many when they are used."""
        summaries = self._catalog.stored.load()
        odd, unknown = [], []
        for name in self._directories.names():
            groups = self._directories.groups_of(name)
            if (summary := summaries.get(name)) is not None:
                self._table.add_closed(ClosedTopic.with_summary(name, groups, summary))
            elif self._find(name):
                unknown.append(name)
            else:
                # One that is no topic is made one when it has messages, taken away, or set aside.
                odd.append(name)
        # Those of their own first: what dead letters are set to follows from them.
        unknown.sort(key=lambda name: self._table[name].origin is not None)
        for name in [*unknown[:_OPENED_AT_START], *odd]:
            self._open_or_set_aside(name)
        self._unknown = unknown[_OPENED_AT_START:]
        self._alarms = [(e.wake_us, name) for name, e in summaries.items() if e.wake_us is not None]
        heapify(self._alarms)
        if self._unknown:
            self._scheduler.schedule(0, self._open_unknown)

    def prepare_next(
        self, topics: Iterable[OpenTopic], oldest_us: Callable[[OpenTopic, Group], int]
    ) -> None:
        """Write down what the next opening need not look for. The topics are closed by now, and sound."""
        if len(self._table) <= _OPENED_AT_START:
            return
        closed = self._table.closed_topics().items()
        summaries = {name: each.summary for name, each in closed if each.summary is not None}
        for topic in topics:
            try:
                summaries[topic.name] = summary_of(topic, oldest_us)
            except (QuiverError, FileNotFoundError) as error:
                logger.warning("%s is opened at the next start: %s", topic.name, error)
        self._catalog.stored.store(summaries)

    def _find(self, name: str) -> bool:
        """Learn whose topic a directory is; False when it is none that can be read."""
        groups, stored = self._directories.groups_of(name), self._directories.load_if_there(name)
        if stored is None:
            self._table.add_closed(ClosedTopic(name, groups))
            return False
        self._table.add_closed(ClosedTopic.with_settings(name, groups, stored))
        return True

    def _open_or_set_aside(self, name: str) -> bool:
        """Open a topic; one that is in trouble is set aside with its error, for whoever asks for it."""
        try:
            self._catalog.open_closed(name)
        except DiskRefused as error:
            self._catalog.set_aside(name, error)
        except (StorageFailed, InvalidSettings):
            # It is set aside already.
            return False
        return self._table.find_open(name) is not None

    def open_refused(self) -> None:
        """Open the topics for which there was no room, once there is some."""
        found = self._table.set_aside_topics()
        refused = [name for name, error in found.items() if isinstance(error, DiskRefused)]
        for name in refused if self._catalog.space.shortage is None else ():
            with self._table.lock:
                self._find(name)
                if self._open_or_set_aside(name):
                    self._catalog.members.topic_changed(name)
                    logger.info("opened topic %s, for which there is room now", name, extra={"topic": name})

    def _open_unknown(self) -> None:
        """Open, a few at a time, the topics of which nobody knows what is in them: the process died."""
        ordered(self._disk, self.open_some_unknown)
        if self._unknown and not self._catalog.is_closed:
            self._scheduler.schedule(_OPENING_S, self._open_unknown)

    def open_some_unknown(self) -> None:
        """Open such topics for a moment."""
        end = self._clock.monotonic() + _OPENING_S
        while self._unknown and not self._catalog.is_closed and self._clock.monotonic() < end:
            with suppress(IndexError):
                # Another thread may do the same.
                self._try_open(self._unknown.pop())

    def open_due(self, now_us: int) -> None:
        """Open the topics in which something falls due."""
        while True:
            with self._table.lock:
                if not self._alarms or self._alarms[0][0] > now_us:
                    return
                name = heappop(self._alarms)[1]
            self._try_open(name)

    def _try_open(self, name: str) -> None:
        try:
            self._catalog.find(name)
        except QuiverError as error:
            if not self._catalog.is_closed:
                logger.error("topic %s cannot be opened now: %s", name, error, extra={"topic": name})
            if self._table.find_closed(name) is not None:
                # It may be another time.
                with self._table.lock:
                    heappush(self._alarms, (self._clock.now_us() + _TRY_AGAIN_US, name))
