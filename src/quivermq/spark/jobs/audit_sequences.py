"""The batches of producers in one lane: each sequence of a producer's epoch may be there once."""

from typing import NamedTuple

# Sequences are counted in 32 bits; what is less than half a round behind is a repetition, not a leap.
_ROUND = 2**32
_HALF = 2**31


class SequenceRun(NamedTuple):
    """Batches of a producer that follow each other without a gap, from an offset on."""

    producer_id: int
    epoch: int
    sequence: int
    messages: int
    base_offset: int


class Sequences:
    """Takes batches in the order of their offsets and tells which were there before."""

    def __init__(self) -> None:
        # By producer and epoch: where its last run began, how long it is, and where it lies.
        self._last: dict[tuple[int, int], SequenceRun] = {}
        self.runs: list[SequenceRun] = []

    def add(self, run: SequenceRun) -> bool:
        """Take in a batch, or a run of them. False when some of its sequences were there before."""
        key = run.producer_id, run.epoch
        last = self._last.get(key)
        if last is None:
            self._last[key] = run
            return True
        ahead = (run.sequence - last.sequence - last.messages) % _ROUND
        if ahead == 0:
            self._last[key] = last._replace(messages=last.messages + run.messages)
            return True
        if ahead >= _HALF:
            return False
        # Something is missing in between, which a power loss or a repair may have taken.
        self.runs.append(last)
        self._last[key] = run
        return True

    def all_runs(self) -> list[SequenceRun]:
        """Everything that was taken in, by offset."""
        return sorted([*self.runs, *self._last.values()], key=lambda run: run.base_offset)
