"""Taking messages for a group: out of one topic, or out of those of a pattern in turn."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quivermq.delivery.taken import Taken, message_count
from quivermq.engine.open_topic import OpenTopic
from quivermq.engine.waiting import Watch, WatchedGroup, wait_for
from quivermq.errors import Closing, DiskRefused, NotFound, QuiverError, StorageFailed
from quivermq.model.checks import Period, seconds_of, seconds_us
from quivermq.model.names import Scope
from quivermq.reentry import entered

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine


class Taking:
    """What a queue does when somebody wants messages. Thread-safe."""

    def __init__(self, engine: "Engine", scope: Scope, group: str) -> None:
        self._engine = engine
        self._scope = scope
        self._group = group
        self._open_topic: OpenTopic | None = None
        self._turn = 0

    def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        *,
        pop: bool = False,
        whole: bool = False,
        holder: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """Up to `count` messages, waiting for the first; with `whole` as parts of frames if possible."""
        lease_us = None if lease is None else seconds_us("lease", lease, lowest=0.001)

        def take() -> list[Taken]:
            return self.take_now(count, lease_us, pop, whole, holder, token)

        if timeout == 0:
            return take()
        wait_s = None if timeout is None else seconds_of("timeout", timeout, lowest=0)
        return wait_for(take, wait_s, self._engine, self.groups)

    @entered
    def take_now(
        self,
        count: int,
        lease_us: int | None,
        pop: bool,
        whole: bool = False,
        holder: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """What is there now."""
        topic = self._open_topic
        if topic is not None and not topic.is_gone and self._scope.pattern is None:
            return self._take_from(topic, count, lease_us, pop, whole, holder, token)
        self._engine.check_open()
        if self._scope.pattern is None:
            self._open_topic = self._engine.catalog.find(self._scope.topic)
            if self._open_topic is None:
                return []
            return self._take_from(self._open_topic, count, lease_us, pop, whole, holder, token)
        topics = self.topics()
        self._turn += 1
        start = self._turn % len(topics) if topics else 0
        taken: list[Taken] = []
        left = count
        failures: list[QuiverError] = []
        for topic in [*topics[start:], *topics[:start]]:
            try:
                given = self._take_from(topic, left, lease_us, pop, whole, holder, token)
                taken += given
                left -= message_count(given)
            except (StorageFailed, DiskRefused) as error:
                # What other topics gave is leased already, and has to reach the caller.
                failures.append(error)
            if left <= 0:
                break
        if not taken and failures:
            raise failures[0]
        return taken

    def _take_from(
        self,
        topic: OpenTopic,
        count: int,
        lease_us: int | None,
        pop: bool,
        whole: bool,
        holder: str | None,
        token: int | None,
    ) -> list[Taken]:
        try:
            if topic.topic.delays.next_due is not None:
                topic.release(self._engine.clock.now_us())
            group = topic.groups.get(self._group) or topic.group(self._group)
            taken = group.take(count, lease_us, pop, whole, holder, token)
            # Only now, and also when it was nothing: some may have been passed over, and wait.
            topic.took(group)
            return taken
        except (Closing, NotFound):
            # The topic was deleted meanwhile: then it has no messages.
            self._engine.check_open()
            if topic.is_gone:
                return []
            raise

    def topics(self) -> list[OpenTopic]:
        """The topics that there are, or the only one."""
        if self._scope.pattern is not None:
            return self._engine.catalog.find_matching(self._scope.pattern)
        topic = self._engine.catalog.find(self._scope.topic)
        return [] if topic is None else [topic]

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call `wake` once, from whatever thread, when there may be something to take."""
        return Watch(self._engine, self.groups(), wake)

    def wait_until_ready(self, seconds: Period) -> bool:
        """Wait until there seems to be something to take, and take nothing; False when nothing came."""
        wait_s = seconds_of("seconds", seconds, lowest=0)
        is_ready = bool(
            wait_for(lambda: [True] if self.is_ready() else [], wait_s, self._engine, self.groups)
        )
        if is_ready:
            self.pass_on()
        return is_ready

    @entered
    def is_ready(self) -> bool:
        """Whether there seems to be something to take."""
        self._engine.check_open()
        now_us = self._engine.clock.now_us()
        for topic, group in self.groups():
            topic.release(now_us)
            group.expire(now_us)
            if not group.is_paused and group.has_ready(now_us):
                return True
        return False

    @entered
    def pass_on(self) -> None:
        """Wake somebody else: whoever was told that there is something may not come for it."""
        now_us = self._engine.clock.now_us()
        for _, group in self.groups():
            if group.waiters.waiting and group.has_ready(now_us):
                group.waiters.wake()

    def groups(self) -> list[WatchedGroup]:
        """The topics that there are, each with the group, which comes to be."""
        return [WatchedGroup(topic, topic.group(self._group)) for topic in self.topics()]
