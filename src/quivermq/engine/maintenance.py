"""What happens by time alone: the background schedule that looks after the topics, the disk and the clock.

Nothing depends on it being on time: `get` and `stats` look at the clock themselves.
"""

import logging
from functools import partial

from quivermq.clock import SteadyClock
from quivermq.disk import Disk, ordered
from quivermq.engine.catalog import Catalog
from quivermq.engine.open_topic import OpenTopic
from quivermq.engine.opening import Opening
from quivermq.engine.retention import may_shrink, retain
from quivermq.log.flusher import Scheduler
from quivermq.model.turns import in_turns
from quivermq.reentry import entered
from quivermq.settings.tree import EngineSettings

logger = logging.getLogger(__name__)

# A clock that was set by less is not worth a word.
_JUMP_US = 1_000_000


class Maintenance:
    """Does what is due, again and again, until it is stopped. Running it once more does no harm."""

    def __init__(
        self,
        settings: EngineSettings,
        catalog: Catalog,
        opening: Opening,
        *,
        clock: SteadyClock,
        scheduler: Scheduler,
        disk: Disk,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._opening = opening
        self._clock = clock
        self._scheduler = scheduler
        self._disk = disk
        self._retained_at = clock.monotonic()
        self._jumped_us = 0

    def start(self) -> None:
        self._catalog.space.look()
        self._schedule()

    def _schedule(self) -> None:
        self._scheduler.schedule(self._settings.maintenance_interval_ms / 1000, self._run_and_schedule)

    def _run_and_schedule(self) -> None:
        if self._disk.commits is not None and (failure := self._disk.commits.failure) is not None:
            if not self._catalog.is_closed:
                logger.error("nothing is looked after any more: %s", failure)
            return
        try:
            ordered(self._disk, self.run)
        finally:
            if not self._catalog.is_closed:
                self._schedule()

    @entered
    def run(self) -> None:
        """Do what is due by now."""
        if self._catalog.is_closed:
            return
        now_us = self._clock.now_us()
        self._look_at_clock()
        self._catalog.space.look()
        self._opening.open_refused()
        self._catalog.members.expire()
        self._opening.open_some_unknown()
        self._opening.open_due(now_us)
        for topic in tuple(self._catalog.table.busy):
            self._catalog.attempt(topic, partial(topic.maintain, now_us))
            self._forget_if_quiet(topic)
        if self._clock.monotonic() - self._retained_at >= self._settings.retention_interval_ms / 1000:
            self._retained_at = self._clock.monotonic()
            for topic in in_turns(list(self._catalog.table.open_topics().values())):
                if may_shrink(topic):
                    self._catalog.attempt(topic, partial(retain, topic))

    def _forget_if_quiet(self, topic: OpenTopic) -> None:
        """Look at a topic no more in which nothing can fall due before somebody uses it again."""
        if topic.is_quiet or topic.is_gone:
            self._catalog.table.busy.discard(topic)
            topic.is_busy = False
            # Whoever uses it says so afterwards, and may have done so before this.
            if not (topic.is_quiet or topic.is_gone):
                topic.become_busy()

    def _look_at_clock(self) -> None:
        jumped_us = self._clock.jumped_us()
        if abs(jumped_us - self._jumped_us) >= _JUMP_US:
            logger.warning(
                "the system's clock was set by %+.1f s: times here go on as before until the next opening",
                (jumped_us - self._jumped_us) / 1_000_000,
            )
            self._jumped_us = jumped_us
