"""Moving messages from one log to another exactly once, across crashes.

Whoever moves first writes down, durably, the number of the transfer and where the target ends. Then it
appends the messages as one frame that carries this number, and at last notes that it is done. After a
crash the number shows whether the frame is there already. The messages themselves stay as they are.
"""

import secrets

from quivermq.frame import Producer
from quivermq.log import ReadableLog

# No producer has this epoch: theirs begin at 0 and are counted up.
TRANSFER_EPOCH = 0xFFFF


def new_transfer() -> int:
    """A number that no other transfer has."""
    return secrets.randbits(63) | 1


def transfer_producer(transfer: int) -> Producer:
    """What the frame of a transfer says about who sent it."""
    return Producer(transfer, TRANSFER_EPOCH)


def find_transfer(log: ReadableLog, start: int, transfer: int) -> range | None:
    """The offsets that a transfer took in its target, which ended at `start` when it began."""
    for frame in log.frames(max(start, log.start)) if start < log.end else ():
        header = frame.header
        if header.producer_id == transfer and header.producer_epoch == TRANSFER_EPOCH:
            return range(header.base_offset, header.end_offset)
    return None
