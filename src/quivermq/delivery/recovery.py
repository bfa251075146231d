"""Bringing the state of a group back when its partition is opened."""

from collections.abc import Callable

from quivermq.delivery import journal
from quivermq.delivery.burial import Graves
from quivermq.delivery.fresh import messages_at
from quivermq.delivery.journal import Burial, Replay
from quivermq.delivery.order import KeyOrder, Place
from quivermq.delivery.retry import FOR_ITS_TURN
from quivermq.delivery.state import LaneState
from quivermq.errors import StorageFailed
from quivermq.topic.offsets import runs
from quivermq.topic.partition import LANE_NUMBERS, Partition
from quivermq.topic.state_log import StateLog
from quivermq.topic.transfer import find_transfer


def recover(
    lanes: list[LaneState],
    notes: StateLog,
    partition: Partition,
    find_graves: Callable[[], Graves | None],
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


def _has_arrived(burial: Burial, graves: Graves) -> bool:
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
    places = [Place(lane, offset) for lane, state in enumerate(lanes) for offset in sorted(state.leases)]
    waiting = [
        (retry == FOR_ITS_TURN, lane, offset)
        for lane, state in enumerate(lanes)
        for offset, retry in state.retries.items()
    ]
    places += [Place(lane, offset) for _, lane, offset in sorted(waiting)]
    try:
        keys = {
            Place(lane, record.offset): record.key
            for lane, state in enumerate(lanes)
            for record in messages_at(partition, lane, {*state.leases, *state.retries})
        }
    except StorageFailed as error:
        raise KeysUnread(str(error), path=error.path) from error
    late = {place for place in places if not order.enter(keys.get(place), place)}
    for lane, state in enumerate(lanes):
        state.give_turns(without={offset for offset in state.retries if Place(lane, offset) in late})
    return order
