"""Bringing the state of a group back when its partition is opened."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quivermq.delivery import journal
from quivermq.delivery.dead_letters import DeadLetterTopic
from quivermq.delivery.fresh import messages_at
from quivermq.delivery.journal import DeadLetterTransfer, Replay
from quivermq.delivery.ordering import KeyOrder, LaneOffset
from quivermq.delivery.state import FOR_ITS_TURN, LaneState
from quivermq.errors import StorageFailed
from quivermq.model.lanes import LANE_NUMBERS
from quivermq.topic.offsets import runs
from quivermq.topic.partition import Partition
from quivermq.topic.state_log import StateLog
from quivermq.topic.transfer import find_transfer


def recover(
    lanes: list[LaneState],
    notes: StateLog,
    partition: Partition,
    find_graves: Callable[[], DeadLetterTopic | None],
) -> bool:
    """Replay the journal into `lanes`, which are new, and finish what the process died over.

    The dead letters are asked for only when some were on their way: they may have to be opened. Returns
    whether the group was paused.
    """
    replay = Replay(lanes)
    notes.apply(replay.apply_record)
    _forget_lost(lanes, notes, partition)
    graves = find_graves() if replay.burials else None
    for burial in replay.burials:
        if graves is not None and _has_arrived(burial, graves):
            notes.sync(notes.append(journal.finished(burial.lane, runs(burial.offsets))))
            lanes[burial.lane].finish(burial.offsets)
    for state in lanes:
        state.forget_ahead()
        state.forget_tried()
        state.rebuild_ready()
    return replay.is_paused


def _forget_lost(lanes: list[LaneState], notes: StateLog, partition: Partition) -> None:
    """Where a power loss took the end of a lane, other messages will come there, and are pending."""
    changes = b""
    for lane, (state, log) in enumerate(zip(lanes, partition.logs, strict=True)):
        end = log.end if log else 0
        if state.reaches_behind(end):
            changes += journal.cut(lane, end)
            state.cut(end)
    if changes:
        # Before anything new can be appended there.
        notes.sync(notes.append(changes))


def _has_arrived(burial: DeadLetterTransfer, graves: DeadLetterTopic) -> bool:
    if burial.target_partition >= len(graves.partitions):
        return False
    grave = graves.partitions[burial.target_partition].log(LANE_NUMBERS["normal"])
    if find_transfer(grave, burial.target_end, burial.transfer) is None:
        return False
    grave.sync()
    return True


class KeysUnread(StorageFailed):
    """The keys of messages that are in flight or wait cannot be read now, as those of an archive.

    Nothing is wrong with the group: to open it later may succeed.
    """


def line_up(lanes: list[LaneState], partition: Partition) -> KeyOrder:
    """The order inside of keys, made from the messages that are in flight or wait.

    Those in flight come first, then those that failed or were released and so had their turn, then those
    that still wait for it; only the first of each key stays ready. Raises KeysUnread.
    """
    order = KeyOrder()
    messages = [
        LaneOffset(lane, offset) for lane, state in enumerate(lanes) for offset in sorted(state.leases)
    ]
    waiting = [
        (retry == FOR_ITS_TURN, lane, offset)
        for lane, state in enumerate(lanes)
        for offset, retry in state.retries.items()
    ]
    messages += [LaneOffset(lane, offset) for _, lane, offset in sorted(waiting)]
    try:
        keys = {
            LaneOffset(lane, record.offset): record.key
            for lane, state in enumerate(lanes)
            for record in messages_at(partition, lane, {*state.leases, *state.retries})
        }
    except StorageFailed as error:
        raise KeysUnread(str(error), path=error.path) from error
    late = {message for message in messages if not order.enter(keys.get(message), message)}
    for lane, state in enumerate(lanes):
        state.give_turns(without={offset for offset in state.retries if LaneOffset(lane, offset) in late})
    return order


class _Rest:
    """How many want it to rest, and whether it is to work again afterwards."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_enabled = False

    def begin(self) -> None:
        with self.lock:
            if not self.count:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.was_enabled:
                gc.enable()

    def forget(self) -> None:
        """In a forked child: those who wanted it are threads that it does not have."""
        if self.count and self.was_enabled:
            gc.enable()
        self.lock, self.count = threading.Lock(), 0


_rest = _Rest()


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Make objects that all stay: to look through them again and again takes as long as making them.

    For short, because in the meantime nothing that refers to itself is freed, of the whole process. Several
    threads may be in here at once; whoever had the collector off before finds it so afterwards.
    """
    _rest.begin()
    try:
        yield
    finally:
        _rest.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rest.forget)
