"""What a group knows of a partition, and how it is kept: in memory, and in a journal.

Every change is in the journal before anybody is told of it: first the record is appended, under the
lock, then the state changes, and outside of the lock the caller waits until the record is as durable as
the topic asks for. Whoever crashes in between has promised nothing.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import repeat
from socket import gethostname
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.delivery import journal
from quivermq.delivery.dead_letter_transfer import DeadLetterReport, DeadLetterTopic, bury
from quivermq.delivery.dead_letters import Origin, Verdict
from quivermq.delivery.ordering import Deadlines, KeyOrder, LaneOffset
from quivermq.delivery.recovery import collector_at_rest, line_up, recover
from quivermq.delivery.state import FOR_ITS_TURN, NOW, LaneState, PendingRetry, is_last
from quivermq.errors import Closing, DiskRefused, QuiverError
from quivermq.metrics import Counter, Histogram
from quivermq.topic.offsets import runs
from quivermq.topic.partition import LANES, Partition
from quivermq.topic.settings import TopicSettings
from quivermq.topic.state_log import StateLog, parts


class DeliveryMeter(NamedTuple):
    """The counters of one group in one topic."""

    delivered: Counter
    acked: Counter
    nacked: Counter
    released: Counter
    refused: Counter
    expired: Counter
    leases_expired: Counter
    buried: Counter
    dropped: Counter
    age: Histogram


logger = logging.getLogger(__name__)

# How long to wait before a dead letter that could not be written is tried again.
BURIAL_RETRY_US = 1_000_000


class CursorState:
    """The state of all lanes, and every way to change it that handing out and settling have in common."""

    def __init__(
        self,
        group: str,
        partition: Partition,
        log: StateLog,
        settings: TopicSettings,
        *,
        clock: Clock,
        graves: Callable[[bool], DeadLetterTopic | None],
        meter: DeliveryMeter,
        on_ready: Callable[[int], None],
        keeps_dead: bool = False,
    ) -> None:
        self.group = group
        self.topic = partition.topic
        self.partition = partition.number
        self.settings = settings
        self._partition = partition
        self._journal = log
        self._clock = clock
        self._graves = graves
        self._meter = meter
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_gone = False
        self._why_closed = ""
        # The dead letters themselves are never given up.
        self._keeps_dead = keeps_dead
        self._owed = b""
        self._news = DeadLetterReport()
        # Burials that may or may not have reached the dead letters, by transfer.
        self._open_burials: dict[int, bytes] = {}
        # How often the end of one message gave another one its turn.
        self.freed = 0
        # Who holds what is handed out here without a word of who asked.
        self._own_name = f"process {os.getpid()} on {gethostname()}"
        # Which numbers the journal has for those who hold leases, since its last snapshot.
        self._holders: dict[str, int] = {}
        self.lanes = [LaneState() for _ in LANES]
        self._deadlines = Deadlines(self.lanes)
        with collector_at_rest():
            self._recover(log, partition)
        self._order: KeyOrder | None = None
        self._build_order()

    def _recover(self, log: StateLog, partition: Partition) -> None:
        self.is_paused = recover(self.lanes, log, partition, lambda: self._graves(False))
        for lane, state in enumerate(self.lanes):
            self._deadlines.watch_all(lane, state.leases_by_identity())

    @property
    def meter(self) -> DeliveryMeter:
        """What was counted so far: the same for all partitions of the topic."""
        return self._meter

    def _check_open(self) -> None:
        if self._is_closed:
            told = f"group {self.group} of {self.topic} "
            raise Closing(told + (self._why_closed or "was closed or deleted"))

    def _sync(self, end: int) -> None:
        if end and self.settings.durability == "fsync":
            self._journal.sync(end)

    def settle(self) -> None:
        """Write down what is done already: then nobody has to look for dead letters. Raises DiskRefused."""
        with self._lock:
            self._pay()

    def _pay(self) -> None:
        """Write down what is done already. Until then nothing else may be written.

        When the process dies before, the intent of the burial in the journal leads to the dead letters.
        """
        if self._owed:
            self._journal.sync(self._journal.append(self._owed))
            self._owed = b""

    def _append(self, record: bytes) -> int:
        if self._owed:
            self._pay()
        try:
            return self._journal.append(record, self.settings.durability)
        except BaseException as error:
            if not isinstance(error, Exception):
                # Of a signal handler, maybe behind the write: the state was not changed, and counts.
                self._journal.doubt()
            raise

    def _keep_short(self) -> None:
        if self._journal.wants_snapshot:
            self._journal.try_snapshot(self._snapshot())

    def _number_of(self, owner: str) -> int:
        """The number that stands for a name in the journal, which is told it once."""
        number = self._holders.get(owner)
        if number is None:
            number = len(self._holders) + 1
            self._append(journal.holder_named(number, owner))
            self._holders[owner] = number
        return number

    def _snapshot(self) -> Iterable[bytes]:
        # It has numbers of its own, for who holds something; whoever comes next is told anew.
        self._holders = {}
        pause = [journal.paused(True)] * self.is_paused
        return parts([*pause, *journal.snapshot(self.lanes), *self._open_burials.values()])

    def _expire(self, now_us: int) -> None:
        released = 0
        doomed: dict[int, dict[int, Verdict]] = {}
        for lane, lease, offsets in self._deadlines.take_due(now_us):
            self._meter.leases_expired.add(len(offsets))
            if not self._keeps_dead and is_last(lease.attempt, self.settings):
                verdict = Verdict(lease.attempt, "lease_expired")
                doomed.setdefault(lane, {}).update(dict.fromkeys(offsets, verdict))
                # Until the dead letter is written: it may take more than one attempt.
                self._deadlines.watch(lane, lease, offsets, now_us + BURIAL_RETRY_US)
                continue
            for offset in offsets:
                is_its_turn = self._is_first(lane, offset)
                self.lanes[lane].wait(
                    offset, PendingRetry(lease.attempt, lease.deadline), is_its_turn=is_its_turn
                )
            released += len(offsets)
        for lane, verdicts in doomed.items():
            try:
                self._bury(lane, verdicts, now_us)
            except QuiverError as error:
                logger.error("dead letters of %s wait: %s", self._journal.name, error)
        if released:
            self._on_ready(released)

    def _bury(self, lane: int, verdicts: dict[int, Verdict], now_us: int) -> None:
        if not self.settings.dead_letters:
            self._drop(lane, list(verdicts))
            return
        origin = Origin(self.topic, self.partition, lane, self.group)
        self._pay()
        graves = self._graves(True)
        assert graves is not None, "they were to be made"
        burials = bury(self._partition, self._journal, graves, origin, verdicts, now_us, self._open_burials)
        for offsets in burials:
            # They are dead letters now, also when there is no room for the note of it.
            self._owed += journal.finished(lane, runs(offsets))
            self._finish(lane, offsets)
            with suppress(DiskRefused):
                self._pay()
            self._meter.buried.add(len(offsets))
            self._news.add(origin, offsets, now_us)

    def _drop(self, lane: int, offsets: list[int]) -> None:
        """Be done with messages that are given up, where the topic wants no dead letters."""
        self._journal.sync(self._append(journal.finished(lane, runs(offsets))))
        self._finish(lane, offsets)
        self._meter.dropped.add(len(offsets))
        logger.warning(
            "%d messages of %s were given up and dropped: dead_letters is off",
            *(len(offsets), self.topic),
            extra={
                "topic": self.topic,
                "partition": self.partition,
                "group": self.group,
                "offsets": offsets[:100],
            },
        )

    def _finish(self, lane: int, offsets: Sequence[int]) -> None:
        state = self.lanes[lane]
        if state.retries or state.times:
            state.finish(offsets)
        else:
            deque(map(state.leases.pop, offsets, repeat(None)), maxlen=0)
        if self._order is not None:
            self._leave(lane, offsets)

    def _leave(self, lane: int, offsets: Iterable[int]) -> None:
        """Let the next message of each key have its turn."""
        if self._order is None:
            return
        for offset in offsets:
            turn = self._order.leave(LaneOffset(lane, offset))
            if turn is not None and (waits := self.lanes[turn.lane].retries.get(turn.offset)) is not None:
                self.lanes[turn.lane].wait(turn.offset, NOW if waits == FOR_ITS_TURN else waits)
                self.freed += 1
                self._on_ready(1)

    def _is_first(self, lane: int, offset: int) -> bool:
        return self._order is None or self._order.is_first(LaneOffset(lane, offset))

    def _build_order(self) -> None:
        if self.settings.ordering == "key":
            self._order = line_up(self.lanes, self._partition)
        else:
            self._order = None
            for state in self.lanes:
                state.give_turns()
