"""Where the groups of a source are in the lanes here: worked out from the imported messages themselves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from quivermq.delivery.adoption import RUNS_MAX, Progress, Tried
from quivermq.importers.marks import identity_of
from quivermq.importers.model import Item, Position, SourceGroup
from quivermq.importers.stream import extend_runs
from quivermq.importers.target import ImportTarget, LaneId


class LaneMessage(NamedTuple):
    """A message of a lane. One that was not imported, or of another source, has no partition there."""

    offset: int
    partition: int | None
    identity: int


class Finished:
    """Whether every group of a source topic is done with an item; without groups nobody is."""

    def __init__(self, groups: Sequence[SourceGroup], partitions: int) -> None:
        self._positions = {
            number: [group.positions.get(number) for group in groups] for number in range(partitions)
        }

    def __call__(self, item: Item) -> bool:
        positions = self._positions.get(item.partition, [])
        return bool(positions) and all(is_finished(item.identity, each) for each in positions)


def is_finished(identity: int, position: Position | None) -> bool:
    """Whether a group that is there is done with an item."""
    return position is not None and identity < position.next and identity not in position.unfinished


def messages_of(
    target: ImportTarget, topic: str, lane: LaneId, offsets: range, producers: Mapping[int, int]
) -> Iterator[LaneMessage]:
    """The messages of a lane; `producers` says of which partition of the source the frames of each are."""
    for frame in target.frames(topic, lane, offsets.start, offsets.stop):
        partition = producers.get(frame.header.producer_id)
        for offset, headers in enumerate(frame.headers(), frame.header.base_offset):
            identity = None if partition is None else identity_of(headers)
            if offset in offsets:
                yield LaneMessage(offset, None if identity is None else partition, identity or 0)


def progress_in(messages: Iterator[LaneMessage], group: SourceGroup, start: int) -> Progress:
    """How far a group came in a lane that begins at `start`.

    Messages that were there before are not finished. Raises ValueError when it is too scattered to be kept.
    """
    position = start
    runs: list[Tried] = []
    for message in messages:
        held = None if message.partition is None else group.positions.get(message.partition)
        if is_finished(message.identity, held):
            position = message.offset + 1
        else:
            attempts = 0 if held is None else held.unfinished.get(message.identity, 0)
            extend_runs(runs, message.offset, attempts)
    # Behind the position, what was never tried is what it would be anyway.
    runs = [run for run in runs if run.start < position or run.attempts]
    if len(runs) > RUNS_MAX:
        raise ValueError(f"what it has finished lies in more than {RUNS_MAX} pieces")
    return Progress(position, tuple(runs))
