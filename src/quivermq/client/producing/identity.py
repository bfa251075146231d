"""Who a producer is: what makes a batch that is sent twice be stored once."""

from secrets import randbits

from quivermq.client.producing.batch import Lane
from quivermq.frame import Producer

# The epoch of transfers, which no producer may have, is the highest there is.
_EPOCH_MAX = 2**16 - 2
_SEQUENCES = 2**32


class Identity:
    """A random id, an epoch, and a sequence for each lane. Used by one thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.producer_id = randbits(63) or 1
        self.epoch = 0
        self._sequences: dict[Lane, int] = {}

    def next_of(self, lane: Lane) -> Producer:
        """What the next batch of a lane is known by, until `advance`."""
        return Producer(self.producer_id, self.epoch, self._sequences.get(lane, 0))

    def advance(self, lane: Lane, count: int) -> None:
        """So many messages of a lane are stored."""
        self._sequences[lane] = (self._sequences.get(lane, 0) + count) % _SEQUENCES

    def renew(self) -> None:
        """Go on after a batch whose fate is not known, or that was given up: nothing is missing then."""
        if self.epoch >= _EPOCH_MAX:
            self._begin()
            return
        self.epoch += 1
        self._sequences = {}
