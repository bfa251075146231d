"""Taking messages from the shards of a topic, or of a pattern: from each in its turn."""

from collections.abc import Callable, Sequence

from quivermq.backend import QueueBackend
from quivermq.clock import Clock
from quivermq.cluster.awaiting import Awaiting
from quivermq.cluster.places import Place
from quivermq.errors import QuiverError, Unavailable
from quivermq.helping import Latch
from quivermq.model.checks import Period, seconds_of
from quivermq.model.deliveries import Delivery
from quivermq.model.operations import Tokens

# After so long, it is looked up again where the topic is: it may have become wide meanwhile.
_SLICE_S = 20.0
# A shard that said there is something, of which nothing could be taken, is asked again a little later.
_PAUSE_S = 0.01
_PAUSE_S_MAX = 1.0

Taken = tuple[list[Delivery], dict[int, QuiverError]]


class ShardTaking:
    """What a queue of a cluster does when somebody wants messages. Thread-safe."""

    def __init__(
        self,
        place: Callable[[], Place],
        queue_at: Callable[[int], QueueBackend],
        prompt_at: Callable[[int], QueueBackend],
        awaiting: Awaiting,
        clock: Clock,
        check_open: Callable[[], None],
    ) -> None:
        self._place = place
        self._queue_at = queue_at
        self._prompt_at = prompt_at
        self._awaiting = awaiting
        self._clock = clock
        self._check_open = check_open
        self._pause = Latch()
        self._turn = 0

    def take(
        self, count: int, timeout: Period | None, lease: Period | None, tokens: Tokens, pop: bool
    ) -> list[Delivery]:
        """What is there, or what comes first."""
        wait_s = None if timeout is None else seconds_of("timeout", timeout, lowest=0)
        end = None if wait_s is None else self._clock.monotonic() + wait_s
        while True:
            left = _SLICE_S if end is None else max(0.0, end - self._clock.monotonic())
            place, slice_s = self._place(), min(left, _SLICE_S)
            if len(place) == 1:
                found = self._queue_at(place[0]).take(count, slice_s, lease, tokens, pop)
            else:
                found = self._take_of(place, count, slice_s, lease, tokens, pop)
            if found or (end is not None and self._clock.monotonic() >= end):
                return found
            self._check_open()

    def _take_of(
        self,
        place: Place,
        count: int,
        wait_s: float,
        lease: Period | None,
        tokens: Tokens,
        pop: bool,
    ) -> list[Delivery]:
        """From several shards. One that nobody serves keeps nobody from what the others have."""
        end, pause_s = self._clock.monotonic() + wait_s, _PAUSE_S
        quiet = self._awaiting.quiet() if wait_s else set()
        asked = [shard for shard in self._in_turn(place) if shard not in quiet]
        found, failed = self._from_each(asked, count, lease, tokens, pop)
        while not found and (left := end - self._clock.monotonic()) > 0:
            self._check_open()
            ready = self._awaiting.wait(place, left)
            asked = [shard for shard in place if shard in ready]
            if asked:
                found, failing = self._from_each(asked, count, lease, tokens, pop)
                failed = {shard: error for shard, error in failed.items() if shard not in ready} | failing
                if not found:
                    self._pause.wait(min(pause_s, left))
                    pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        for shard in failed if not found else ():
            # Nobody can say that there is nothing before it is asked with patience.
            found += self._queue_at(shard).take(count - len(found), 0, lease, tokens, pop)
            if len(found) >= count:
                break
        return found

    def _in_turn(self, place: Place) -> Sequence[int]:
        """Those first that said there is something; else each in its turn."""
        self._turn += 1
        start = self._turn % len(place)
        ready = self._awaiting.take_ready()
        return sorted([*place[start:], *place[:start]], key=lambda shard: shard not in ready)

    def _from_each(
        self, shards: Sequence[int], count: int, lease: Period | None, tokens: Tokens, pop: bool
    ) -> Taken:
        found: list[Delivery] = []
        failed: dict[int, QuiverError] = {}
        for shard in shards:
            try:
                found += self._prompt_at(shard).take(count - len(found), 0, lease, tokens, pop)
            except Unavailable as error:
                failed[shard] = error
            except QuiverError:
                # What others gave is leased already, and has to reach the caller.
                if not found:
                    raise
                break
            if len(found) >= count:
                break
        return found, failed
