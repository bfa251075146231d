"""Taking messages for a group: out of one topic, or out of those of a pattern in turn."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quivermq.delivery.delivery import Taken, message_count
from quivermq.engine.hosted import Hosted
from quivermq.engine.scope import Scope
from quivermq.engine.waiting import Watch, wait_for
from quivermq.errors import Closing, DiskRefused, NotFound, QuiverError, StorageFailed
from quivermq.group.group import Group
from quivermq.model.checks import Period, seconds_of, seconds_us
from quivermq.reentry import entered

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine


class Taking:
    """What a queue does when somebody wants messages. Thread-safe."""

    def __init__(self, engine: "Engine", scope: Scope, group: str) -> None:
        self._engine = engine
        self._scope = scope
        self._group = group
        self._hosted: Hosted | None = None
        self._turn = 0

    def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        *,
        pop: bool = False,
        whole: bool = False,
        owner: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """Up to `count` messages, waiting for the first; with `whole` as parts of frames if possible."""
        lease_us = None if lease is None else seconds_us("lease", lease, lowest=0.001)

        def take() -> list[Taken]:
            return self.take_now(count, lease_us, pop, whole, owner, token)

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
        owner: str | None = None,
        token: int | None = None,
    ) -> list[Taken]:
        """What is there now."""
        hosted = self._hosted
        if hosted is not None and not hosted.is_gone and self._scope.pattern is None:
            return self._take_from(hosted, count, lease_us, pop, whole, owner, token)
        self._engine.check_open()
        if self._scope.pattern is None:
            self._hosted = self._engine.find(self._scope.topic)
            if self._hosted is None:
                return []
            return self._take_from(self._hosted, count, lease_us, pop, whole, owner, token)
        topics = self._scope.all()
        self._turn += 1
        start = self._turn % len(topics) if topics else 0
        taken: list[Taken] = []
        left = count
        failures: list[QuiverError] = []
        for topic in [*topics[start:], *topics[:start]]:
            try:
                given = self._take_from(topic, left, lease_us, pop, whole, owner, token)
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
        hosted: Hosted,
        count: int,
        lease_us: int | None,
        pop: bool,
        whole: bool,
        owner: str | None,
        token: int | None,
    ) -> list[Taken]:
        try:
            if hosted.topic.delays.next_due is not None:
                hosted.release(self._engine.clock.now_us())
            group = hosted.groups.get(self._group) or hosted.group(self._group)
            taken = group.take(count, lease_us, pop=pop, whole=whole, owner=owner, token=token)
            # Only now, and also when it was nothing: some may have been passed over, and wait.
            hosted.took(group)
            return taken
        except (Closing, NotFound):
            # The topic was deleted meanwhile: then it has no messages.
            self._engine.check_open()
            if hosted.is_gone:
                return []
            raise

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call `wake` once, from whatever thread, when there may be something to take."""
        return Watch(self._engine, self.groups(), wake)

    @entered
    def groups(self) -> list[tuple[Hosted, Group]]:
        """The topics that there are, each with the group, which comes to be."""
        return [(hosted, hosted.group(self._group)) for hosted in self._scope.all()]
