"""Bringing the state of a group back when its partition is opened."""

from collections.abc import Callable

from quivermq.delivery import journal
from quivermq.delivery.dead_letters import DeadLetterTopic
from quivermq.delivery.fresh import messages_at
from quivermq.delivery.journal import DeadLetterIntent, Replay
from quivermq.delivery.ordering import KeyOrder, LaneOffset
from quivermq.delivery.state import FOR_ITS_KEY, LaneState
from quivermq.errors import StorageFailed
from quivermq.model.lanes import NORMAL
from quivermq.topic.offsets import runs
from quivermq.topic.partition import Partition
from quivermq.topic.state_log import StateLog
from quivermq.topic.transfer import find_transfer


def recover(
    lanes: list[LaneState],
    state_log: StateLog,
    partition: Partition,
    find_dead_letter_topic: Callable[[], DeadLetterTopic | None],
) -> bool:
    """Replay the journal into `lanes`, which are new, and finish what the process died over.

    The dead letters are asked for only when some were on their way: they may have to be opened. Returns
    whether the group was paused.
    """
    replay = Replay(lanes)
    state_log.apply(replay.apply_record)
    _forget_lost(lanes, state_log, partition)
    target = find_dead_letter_topic() if replay.intents else None
    for intent in replay.intents:
        if target is not None and _has_arrived(intent, target):
            state_log.sync(state_log.append(journal.finished(intent.lane, runs(intent.offsets))))
            lanes[intent.lane].finish(intent.offsets)
    for state in lanes:
        state.forget_ahead()
        state.forget_imported_attempts()
        state.rebuild_due_heap()
    return replay.is_paused


def _forget_lost(lanes: list[LaneState], state_log: StateLog, partition: Partition) -> None:
    """Where a power loss took the end of a lane, other messages will come there, and are pending."""
    changes = b""
    for lane, (state, log) in enumerate(zip(lanes, partition.logs, strict=True)):
        end = log.end if log else 0
        if state.reaches_behind(end):
            changes += journal.cut(lane, end)
            state.cut(end)
    if changes:
        # Before anything new can be appended there.
        state_log.sync(state_log.append(changes))


def _has_arrived(intent: DeadLetterIntent, target: DeadLetterTopic) -> bool:
    if intent.target_partition not in target.partitions:
        return False
    log = target.partitions[intent.target_partition].log(NORMAL)
    if find_transfer(log, intent.target_end, intent.transfer) is None:
        return False
    log.sync()
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
        (wait == FOR_ITS_KEY, lane, offset)
        for lane, state in enumerate(lanes)
        for offset, wait in state.waiting.items()
    ]
    messages += [LaneOffset(lane, offset) for _, lane, offset in sorted(waiting)]
    try:
        keys = {
            LaneOffset(lane, record.offset): record.key
            for lane, state in enumerate(lanes)
            for record in messages_at(partition, lane, {*state.leases, *state.waiting})
        }
    except StorageFailed as error:
        raise KeysUnread(str(error), path=error.path) from error
    late = {message for message in messages if not order.enter(keys.get(message), message)}
    for lane, state in enumerate(lanes):
        state.give_turns(without={offset for offset in state.waiting if LaneOffset(lane, offset) in late})
    return order
