"""Looking through dead letters, and sending them back to where they came from.

A dead letter that goes back is first written down as on its way, then appended to its topic, then taken
out of the dead letters, each step durable before the next: whatever dies in between, it is in exactly
one of the two when everything is open again.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice, takewhile

from quivermq.delivery.dead_letters import dead_letter, holds_dead_letters
from quivermq.engine.editing import Edits, edited
from quivermq.engine.hosted import Hosted
from quivermq.engine.reasons import BEFORE_ALL, Place
from quivermq.errors import InvalidName, NotFound, QuiverError
from quivermq.frame import OFFSET_MAX, each_left
from quivermq.log import Log
from quivermq.model.dead_letters import DeadLetter
from quivermq.model.lanes import LANE_NUMBERS
from quivermq.topic.incoming import message_bytes
from quivermq.topic.partition import Partition
from quivermq.topic.removals import Move
from quivermq.topic.splitting import FrameLimits, split
from quivermq.topic.transfer import find_transfer, new_transfer, transfer_producer

logger = logging.getLogger(__name__)

# As quivermq.delivery.dead_letters writes them: partition, lane and offset.
_ID = re.compile(r"([0-9]{1,9})-([0-2])-([0-9]{1,19})")

NO_EDITS: Edits = {}

Filter = Callable[[DeadLetter], bool]
Find = Callable[[str], Hosted]

# Where a dead letter lies: its partition, lane and offset in the dead-letter topic.
_Lying = tuple[Partition, int, int, DeadLetter]


def dead_letters(graves: Hosted, limit: int | None) -> list[DeadLetter]:
    """The dead letters, oldest first in each partition."""
    return list(islice(each_dead_letter(graves), limit))


def each_dead_letter(graves: Hosted, after: Place = BEFORE_ALL) -> Iterator[DeadLetter]:
    """The dead letters behind a place one by one, for those who may not want them all in memory."""
    return (letter for *_, letter in _lying(graves, after))


def redrive(
    graves: Hosted,
    wanted: Filter | None,
    limit: int | None,
    find: Find,
    ids: Collection[str] | None = None,
    edits: Edits = NO_EDITS,
) -> int:
    """Send dead letters back, and return how many. `find` gives the topic of a name.

    What `edits` has for an id goes back in place of that dead letter. Raises InvalidRequest when a topic
    would not take it; then nothing has moved.
    """
    # Chosen in full first: what goes back may fail and be back here before the end.
    chosen = _chosen(graves, wanted, limit, ids)
    by_place: dict[tuple[int, int, str, int, int], list[_Lying]] = {}
    lost: QuiverError | None = None
    for partition, lane, offset, lying in chosen:
        letter = lying
        try:
            target = find(letter.topic)
            number = letter.partition % target.settings.partitions
        except (NotFound, InvalidName) as error:
            # Where it came from is not there any more: it stays, and the others go.
            lost = error
            continue
        if letter.id in edits:
            target.topic.checked([edits[letter.id]])
            letter = edited(letter, edits[letter.id])
        place = (partition.number, lane, letter.topic, number, LANE_NUMBERS[letter.priority])
        by_place.setdefault(place, []).append((partition, lane, offset, letter))
    for place, items in by_place.items():
        target = find(place[2])
        log = target.topic.partitions[place[3]].log(place[4])
        for batch in split(items, lambda item: _size(item[3]), FrameLimits.of(log.settings)):
            _send_back(target, place, batch)
    moved = sum(map(len, by_place.values()))
    if lost is not None:
        if not moved:
            raise lost
        logger.warning("%d dead letters of %s stay: %s", len(chosen) - moved, graves.name, lost)
    return moved


def _size(letter: DeadLetter) -> int:
    return message_bytes(letter.value, letter.key, letter.headers)


def _chosen(
    graves: Hosted, wanted: Filter | None, limit: int | None, ids: Collection[str] | None
) -> list[_Lying]:
    named = _lying(graves) if ids is None else _lying_at(graves, frozenset(ids))
    return list(islice((item for item in named if wanted is None or wanted(item[3])), limit))


def discard(
    graves: Hosted, wanted: Filter | None, limit: int | None, ids: Collection[str] | None = None
) -> int:
    """Take dead letters out for good, and return how many."""
    gone: dict[tuple[Partition, int], list[int]] = {}
    for partition, lane, offset, _ in _chosen(graves, wanted, limit, ids):
        gone.setdefault((partition, lane), []).append(offset)
    for (partition, lane), offsets in gone.items():
        partition.removals.remove(lane, offsets)
    return sum(map(len, gone.values()))


def finish_moves(graves: Hosted, find: Callable[[str], Hosted | None]) -> None:
    """After a crash: take out what had arrived already, and leave the rest where it is."""
    for partition in graves.topic.partitions:
        for move in list(partition.removals.unfinished.values()):
            log = _target_of(move, find(move.target))
            if log is not None and find_transfer(log, move.target_end, move.transfer) is not None:
                log.sync()
                partition.removals.finish(move)
            else:
                partition.removals.give_up(move)


def _target_of(move: Move, target: Hosted | None) -> Log | None:
    """Where a move went; None when the topic is gone, or is another one of the same name."""
    if target is None or move.target_partition >= len(target.topic.partitions):
        return None
    return target.topic.partitions[move.target_partition].logs[move.target_lane]


def _lying(graves: Hosted, after: Place = BEFORE_ALL) -> Iterator[_Lying]:
    for partition in graves.topic.partitions:
        for lane in range(len(partition.logs)):
            place = partition.number, lane
            if place >= after[:2]:
                start = after[2] + 1 if place == after[:2] else 0
                yield from _lying_in(graves, partition, lane, start, OFFSET_MAX)


def _lying_at(graves: Hosted, ids: frozenset[str]) -> Iterator[_Lying]:
    """Those of these ids, without looking at what lies before the first and behind the last of a lane."""
    offsets: dict[tuple[int, int], list[int]] = {}
    for match in filter(None, map(_ID.fullmatch, ids)):
        partition, lane, offset = map(int, match.groups())
        offsets.setdefault((partition, lane), []).append(offset)
    for (number, lane), each in sorted(offsets.items()):
        if number < len(graves.topic.partitions):
            found = _lying_in(graves, graves.topic.partitions[number], lane, min(each), max(each) + 1)
            yield from (item for item in found if item[3].id in ids)


def _lying_in(graves: Hosted, partition: Partition, lane: int, start: int, end: int) -> Iterator[_Lying]:
    log = partition.logs[lane]
    if log is None:
        return
    topic = graves.origin or graves.name
    removed = partition.removals.lanes[lane]
    start = max(log.start, removed.floor, start)
    frames = log.frames(start) if start < min(log.end, end) else iter(())
    for frame in takewhile(lambda frame: frame.header.base_offset < end, frames):
        told = holds_dead_letters(frame.header)
        for record in each_left(frame, start):
            if record.offset >= end:
                break
            if record.offset not in removed:
                letter = dead_letter(record, partition.number, lane, topic, is_marked=told)
                yield partition, lane, record.offset, letter


def _make_sure(batch: list[_Lying]) -> None:
    """Have dead letters on stable storage before they leave: one whose sync failed may not be there.

    Its message would then be where it was, and come back a second time. Raises FsyncFailed.
    """
    partition, lane = batch[0][:2]
    log = partition.logs[lane]
    assert log is not None, "they lie in it"
    log.sync(max(offset for _, _, offset, _ in batch) + 1)


def _send_back(target: Hosted, place: tuple[int, int, str, int, int], batch: list[_Lying]) -> None:
    _, lane, topic, target_partition, target_lane = place
    removals = batch[0][0].removals
    _make_sure(batch)
    log = target.topic.partitions[target_partition].log(target_lane)
    offsets = tuple(offset for _, _, offset, _ in batch)
    letters = [letter for *_, letter in batch]
    move = Move(new_transfer(), lane, offsets, topic, target_partition, target_lane, log.end)
    removals.begin(move)
    try:
        log.append_many(
            [letter.value for letter in letters],
            timestamp=[letter.timestamp for letter in letters],
            keys=[letter.key for letter in letters],
            headers=[letter.original_headers for letter in letters],
            origin_ids=[letter.scheduled_id for letter in letters],
            producer=transfer_producer(move.transfer),
            durability="fsync",
            is_moved=True,
        )
    except Exception:
        if find_transfer(log, move.target_end, move.transfer) is None:
            removals.give_up(move)
        raise
    removals.finish(move)
    target.ring(len(letters))
