"""What a group knows of one partition, in memory and in a journal: what all parts of a cursor share.

Every change is in the journal before anybody hears of it: first the caller appends the record, under the
lock, then it changes the state, and outside of the lock it waits until the record is as durable as the
topic asks for. Who crashes in between has promised nothing.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from socket import gethostname
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.delivery import journal
from quivermq.delivery.collector import collector_at_rest
from quivermq.delivery.dead_letters import DeadLetterTopic
from quivermq.delivery.deadlines import Deadlines
from quivermq.delivery.ordering import KeyOrder, LaneOffset
from quivermq.delivery.recovery import line_up, recover
from quivermq.delivery.state import FOR_ITS_KEY, KEY_IS_FREE, LaneState, Wait, is_last
from quivermq.errors import Closing
from quivermq.metrics import Counter, Histogram
from quivermq.model.lanes import LANE_COUNT
from quivermq.model.topic_settings import TopicSettings
from quivermq.topic.offsets import runs
from quivermq.topic.partition import Partition
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
    dead_lettered: Counter
    dropped: Counter
    age: Histogram


class CursorState:
    """The state of all lanes of a partition, its journal, and how to change both.

    The parts of a cursor read and set the attributes directly. Whoever does so, or calls a method, holds
    `lock`; only `sync` is for those who do not hold it any more.
    """

    def __init__(
        self,
        group: str,
        partition: Partition,
        log: StateLog,
        settings: TopicSettings,
        *,
        clock: Clock,
        dead_letter_topic: Callable[[bool], DeadLetterTopic | None],
        meter: DeliveryMeter,
        on_ready: Callable[[int], None],
        is_dead_letter_topic: bool = False,
    ) -> None:
        """`dead_letter_topic` finds where dead letters go, and with True makes that topic.

        `on_ready` wakes so many of those who wait for messages.
        """
        self.group = group
        self.partition = partition
        self.journal = log
        self.settings = settings
        self.clock = clock
        self.dead_letter_topic = dead_letter_topic
        self.meter = meter
        self.on_ready = on_ready
        # What lies in a dead-letter topic is never given up.
        self.is_dead_letter_topic = is_dead_letter_topic
        self.lock = threading.Lock()
        self.is_closed = False
        # It was deleted: no lease holds any more.
        self.is_gone = False
        self.why_closed = "was closed or deleted"
        # The transfers of which nobody knows whether the dead letters are there, by number.
        self.open_transfers: dict[int, bytes] = {}
        # What was transferred, and is not noted in the journal yet.
        self.pending_transfers = b""
        # How often the end of one message gave another one its turn.
        self.freed = 0
        # Who holds what is handed out here, where whoever asks does not say.
        self.own_name = f"process {os.getpid()} on {gethostname()}"
        # Which numbers the journal has for those who hold leases, since its last snapshot.
        self.holders: dict[str, int] = {}
        self.lanes = [LaneState() for _ in range(LANE_COUNT)]
        self.deadlines = Deadlines(self.lanes)
        self.order: KeyOrder | None = None
        with collector_at_rest():
            self.is_paused = recover(self.lanes, log, partition, lambda: dead_letter_topic(False))
            for lane, state in enumerate(self.lanes):
                self.deadlines.watch_all(lane, state.leases_by_identity())
        self.rebuild_order()

    def check_open(self) -> None:
        """Raise Closing once it is closed."""
        if self.is_closed:
            raise Closing(f"group {self.group} of {self.partition.topic} {self.why_closed}")

    def is_last(self, attempt: int) -> bool:
        """Whether a message becomes a dead letter when this attempt fails."""
        return not self.is_dead_letter_topic and is_last(attempt, self.settings)

    # The journal.

    def append(self, record: bytes) -> int:
        """Write changes to the journal; returns its end behind them, for `sync`."""
        if self.pending_transfers:
            self.finish_transfers()
        try:
            return self.journal.append(record, self.settings.durability)
        except BaseException as error:
            if not isinstance(error, Exception):
                # Of a signal handler, maybe behind the write: the state was not changed, and counts.
                self.journal.doubt()
            raise

    def sync(self, end: int) -> None:
        """Return once the journal up to `end` is as durable as the topic asks for; 0 is at once."""
        if end and self.settings.durability == "fsync":
            self.journal.sync(end)

    def finish_transfers(self) -> None:
        """Note what became dead letters. Until that is written, nothing else may be. Raises DiskRefused.

        When the process dies before, the intent of the transfer in the journal leads to the dead letters.
        """
        if self.pending_transfers:
            self.journal.sync(self.journal.append(self.pending_transfers))
            self.pending_transfers = b""

    def holder_number(self, holder: str) -> int:
        """The number that stands for a name in the journal, which has the name itself only once."""
        number = self.holders.get(holder)
        if number is None:
            number = len(self.holders) + 1
            self.append(journal.holder_named(number, holder))
            self.holders[holder] = number
        return number

    def keep_short(self) -> None:
        """Write a snapshot when the journal has grown long."""
        if self.journal.wants_snapshot:
            self.journal.try_snapshot(self._snapshot())

    def compact(self) -> int:
        """Put a snapshot in place of the journal. Returns how many bytes that freed."""
        self.finish_transfers()
        return self.journal.snapshot(self._snapshot())

    def _snapshot(self) -> Iterable[bytes]:
        # It has numbers of its own for holders, so the next grant names its holder anew.
        self.holders = {}
        pause = [journal.paused(True)] * self.is_paused
        return parts([*pause, *journal.snapshot(self.lanes), *self.open_transfers.values()])

    # The state.

    def wait(
        self,
        lane: int,
        waits: dict[Wait, list[int]],
        note: Callable[[int, Wait, Sequence[int]], bytes] = journal.waiting,
    ) -> int:
        """Note that messages wait, and let them; returns the end of the journal."""
        end = self.append(b"".join(note(lane, wait, runs(offsets)) for wait, offsets in waits.items()))
        state = self.lanes[lane]
        self.deadlines.sweep()
        for wait, offsets in waits.items():
            for offset in offsets:
                state.wait(offset, wait, is_its_turn=self.is_first(lane, offset))
        return end

    def finish(self, lane: int, offsets: Sequence[int]) -> None:
        """Be done with messages. The journal has that already."""
        state = self.lanes[lane]
        if state.waiting or state.times:
            state.finish(offsets)
        else:
            # As `LaneState.finish` where nothing has failed, as usual: without a loop in Python.
            deque(map(state.leases.pop, offsets, repeat(None)), maxlen=0)
        if self.order is not None:
            self.free_keys(lane, offsets)

    def free_keys(self, lane: int, offsets: Iterable[int]) -> None:
        """Let the next message of each key have its turn."""
        if self.order is None:
            return
        for offset in offsets:
            turn = self.order.leave(LaneOffset(lane, offset))
            if turn is not None and (waits := self.lanes[turn.lane].waiting.get(turn.offset)) is not None:
                self.lanes[turn.lane].wait(turn.offset, KEY_IS_FREE if waits == FOR_ITS_KEY else waits)
                self.freed += 1
                self.on_ready(1)

    def is_first(self, lane: int, offset: int) -> bool:
        """Whether no earlier message of the same key has to be finished first."""
        return self.order is None or self.order.is_first(LaneOffset(lane, offset))

    def rebuild_order(self) -> None:
        """Line up anew what is in flight or waits, by key if the topic asks for that."""
        if self.settings.ordering == "key":
            self.order = line_up(self.lanes, self.partition)
        else:
            self.order = None
            for state in self.lanes:
                state.give_turns()
