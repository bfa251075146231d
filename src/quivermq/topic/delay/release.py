"""Taking messages to their lanes, exactly once: the steps of an intent, also after a crash."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from quivermq.errors import Corruption
from quivermq.log import Log
from quivermq.model.lanes import PartitionLane
from quivermq.topic.delay.journal import Intent, ReleaseTarget
from quivermq.topic.delay.message import WaitingMessage, columns_of, id_of
from quivermq.topic.transfer import TRANSFER_EPOCH, transfer_producer

logger = logging.getLogger(__name__)

# The log of a partition and a lane, made when it is new.
LaneLog = Callable[[int, int], Log]


class Released(NamedTuple):
    """Messages that are in their lane now."""

    partition: int
    lane: int
    offsets: range


def lanes_of(batch: list[WaitingMessage]) -> list[PartitionLane]:
    """Where the messages go, in the order of the first one of each lane."""
    return list(dict.fromkeys((message.partition, message.lane) for message in batch))


def locate(intents: Sequence[Intent], lane_log: LaneLog) -> None:
    """Find out which messages are in their lanes already. Each lane is read once, as far as needed."""
    by_lane: dict[PartitionLane, dict[int, ReleaseTarget]] = {}
    for intent in intents:
        for target in intent.targets:
            target.log = lane_log(target.partition, target.lane)
            if target.log.start > target.end:
                # They were there, if something behind them is gone already.
                target.offsets = range(0)
            else:
                by_lane.setdefault((target.partition, target.lane), {})[intent.transfer] = target
    for wanted in by_lane.values():
        log = next(iter(wanted.values())).log
        assert log is not None
        _find(log, min(target.synced_end for target in wanted.values()), wanted)


def _find(log: Log, start: int, wanted: dict[int, ReleaseTarget]) -> None:
    for target in wanted.values():
        target.offsets = None
    try:
        for frame in log.frames(max(start, log.start)) if start < log.end else ():
            header = frame.header
            if header.producer_epoch == TRANSFER_EPOCH and header.producer_id in wanted:
                target = wanted.pop(header.producer_id)
                target.offsets = range(header.base_offset, header.end_offset)
                if not wanted:
                    return
    except Corruption as error:
        logger.warning("delayed messages may come twice, because their lane cannot be read: %s", error)


def finish(
    intent: Intent,
    lane_log: LaneLog,
    messages_of: Callable[[Intent], list[WaitingMessage]],
    released: list[Released],
    *,
    is_durable: bool,
) -> None:
    """Append what is not in its lane yet, and add it to `released`.

    Raises DiskRefused or StorageFailed; then the intent is not finished, and after `locate` this can be
    called again.
    """
    missing = [target for target in intent.targets if target.offsets is None]
    messages = messages_of(intent) if missing else []
    for target in missing:
        target.log = lane_log(target.partition, target.lane)
        target.offsets = _append(target, target.log, messages, intent.transfer)
        if target.offsets:
            released.append(Released(target.partition, target.lane, target.offsets))
    if is_durable:
        for target in intent.targets:
            target.sync()
    intent.is_finished = True


def _append(target: ReleaseTarget, log: Log, messages: list[WaitingMessage], transfer: int) -> range:
    mine = [m for m in messages if m.partition == target.partition and m.lane == target.lane]
    if not mine:
        return range(0)
    columns = columns_of(
        mine, keys=[message.key for message in mine], times=[message.timestamp for message in mine]
    )
    # The id that its sender knows stays with it, now that the place it names is empty.
    ids = [id_of(message.rank) for message in mine]
    producer = transfer_producer(transfer)
    base = log.append_many(**columns, origin_ids=ids, producer=producer, durability="os", is_moved=True)
    return range(base, base + len(mine))
