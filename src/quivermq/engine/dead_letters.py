"""Looking through dead letters, counting them, and sending them back to where they came from.

The `topic` of each function is a dead-letter topic.

A dead letter that goes back is first written down as on its way, then appended to its topic, then taken
out of the dead letters, each step durable before the next: whatever dies in between, it is in exactly
one of the two when everything is open again.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from quivermq.delivery.dead_letters import dead_letter, holds_dead_letters
from quivermq.engine.looking import BEFORE_ALL, Place
from quivermq.engine.open_topic import OpenTopic
from quivermq.errors import InvalidName, NotFound, QuiverError
from quivermq.frame import OFFSET_MAX, Frame, each_left, left_of
from quivermq.log import Log
from quivermq.model.dead_letters import (
    DLQ_HEADER_PREFIX,
    NO_EDITS,
    DeadLetter,
    DeadLetterReason,
    Edits,
    Filter,
    is_dlq_header,
    merged_reasons,
)
from quivermq.model.lanes import lane_number
from quivermq.model.messages import Message
from quivermq.topic.incoming import message_bytes
from quivermq.topic.partition import Partition
from quivermq.topic.removals import Move
from quivermq.topic.splitting import FrameLimits, split
from quivermq.topic.transfer import find_transfer, new_transfer, transfer_producer

logger = logging.getLogger(__name__)

# As quivermq.delivery.dead_letters writes them: partition, lane and offset.
_ID = re.compile(r"([0-9]{1,9})-([0-2])-([0-9]{1,19})")

_REASON, _GROUP = (DLQ_HEADER_PREFIX + name for name in ("reason", "group"))

# The topic of a name, which has to exist.
Find = Callable[[str], OpenTopic]

# A dead letter, and where it lies in the dead-letter topic: its partition, lane and offset.
_Lying = tuple[Partition, int, int, DeadLetter]


def dead_letters(topic: OpenTopic, limit: int | None) -> list[DeadLetter]:
    """The dead letters, oldest first in each partition."""
    return list(islice(each_dead_letter(topic), limit))


def each_dead_letter(topic: OpenTopic, after: Place = BEFORE_ALL) -> Iterator[DeadLetter]:
    """The dead letters behind a place one by one, for those who may not want them all in memory."""
    return (letter for *_, letter in _lying(topic, after))


# Counting them.


class CountedReasons(NamedTuple):
    """What was counted, and behind which place to go on; None when that was all."""

    reasons: list[DeadLetterReason]
    next: Place | None


def count_reasons(
    topic: OpenTopic, after: Place = BEFORE_ALL, is_over: Callable[[int], bool] = lambda _: False
) -> CountedReasons:
    """Count by reason from a place on, until `is_over` says that so many bytes more were enough.

    Without a look at what is in them.
    """
    counts: Counter[tuple[bytes, bytes]] = Counter()
    next_place = None
    for place, frame, headers in _headers_left(topic, after):
        if holds_dead_letters(frame.header):
            counts.update((each.get(_REASON, b""), each.get(_GROUP, b"")) for each in headers)
        elif headers:
            counts[b"", b""] += len(headers)
        if is_over(frame.header.raw_bytes):
            next_place = place
            break
    origin = topic.origin or topic.name
    found = (
        DeadLetterReason(reason.decode(errors="replace"), origin, group.decode(errors="replace"), count)
        for (reason, group), count in counts.items()
    )
    return CountedReasons(merged_reasons(found), next_place)


def _headers_left(topic: OpenTopic, after: Place) -> Iterator[tuple[Place, Frame, list[dict[str, bytes]]]]:
    """Each frame, its last place, and the headers of the dead letters in it that are still there."""
    for partition in topic.topic.partitions.values():
        for lane, log in enumerate(partition.logs):
            place = partition.number, lane
            if log is None or place < after[:2]:
                continue
            behind = after[2] if place == after[:2] else -1
            removed = partition.removals.lanes[lane]
            start = max(log.start, removed.floor, behind + 1)
            for frame in log.frames(start) if start < log.end else ():
                headers = [
                    record.headers
                    for record in left_of(frame, frame.records())
                    if record.offset >= start and record.offset not in removed
                ]
                yield (*place, frame.header.end_offset - 1), frame, headers


# Sending them back, as they are or mended, or taking them out.


def _edited(letter: DeadLetter, message: Message) -> DeadLetter:
    """The dead letter with what is in the message, and the `quiver-dlq-` headers of its own."""
    headers = {} if letter.by_hand else letter.headers
    kept = {name: value for name, value in headers.items() if is_dlq_header(name)}
    headers = {**dict(message.headers or {}), **kept}
    return letter._replace(value=message.value, key=message.key, headers=headers)


def redrive(
    topic: OpenTopic,
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
    chosen = _chosen(topic, wanted, limit, ids)
    by_place: dict[tuple[int, int, str, int, int], list[_Lying]] = {}
    lost: QuiverError | None = None
    for partition, lane, offset, lying in chosen:
        letter = lying
        try:
            target = find(letter.topic)
            number = target.settings.own_partition(letter.partition)
        except (NotFound, InvalidName) as error:
            # Where it came from is not there any more: it stays, and the others go.
            lost = error
            continue
        if letter.id in edits:
            target.topic.rules.check(*edits[letter.id])
            letter = _edited(letter, edits[letter.id])
        place = (partition.number, lane, letter.topic, number, lane_number(letter.priority))
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
        logger.warning("%d dead letters of %s stay: %s", len(chosen) - moved, topic.name, lost)
    return moved


def _size(letter: DeadLetter) -> int:
    return message_bytes(letter.value, letter.key, letter.headers)


def _chosen(
    topic: OpenTopic, wanted: Filter | None, limit: int | None, ids: Collection[str] | None
) -> list[_Lying]:
    named = _lying(topic) if ids is None else _lying_at(topic, frozenset(ids))
    return list(islice((item for item in named if wanted is None or wanted(item[3])), limit))


def discard(
    topic: OpenTopic, wanted: Filter | None, limit: int | None, ids: Collection[str] | None = None
) -> int:
    """Take dead letters out for good, and return how many."""
    gone: dict[tuple[Partition, int], list[int]] = {}
    for partition, lane, offset, _ in _chosen(topic, wanted, limit, ids):
        gone.setdefault((partition, lane), []).append(offset)
    for (partition, lane), offsets in gone.items():
        partition.removals.remove(lane, offsets)
    return sum(map(len, gone.values()))


def finish_moves(topic: OpenTopic, find: Callable[[str], OpenTopic | None]) -> None:
    """After a crash: take out what had arrived already, and leave the rest where it is."""
    for partition in topic.topic.partitions.values():
        for move in list(partition.removals.unfinished.values()):
            log = _target_of(move, find(move.target))
            if log is not None and find_transfer(log, move.target_end, move.transfer) is not None:
                log.sync()
                partition.removals.finish(move)
            else:
                partition.removals.give_up(move)


def _target_of(move: Move, target: OpenTopic | None) -> Log | None:
    """Where a move went; None when the topic is gone, or is another one of the same name."""
    if target is None or move.target_partition not in target.topic.partitions:
        return None
    return target.topic.partitions[move.target_partition].logs[move.target_lane]


def _lying(topic: OpenTopic, after: Place = BEFORE_ALL) -> Iterator[_Lying]:
    for partition in topic.topic.partitions.values():
        for lane in range(len(partition.logs)):
            place = partition.number, lane
            if place >= after[:2]:
                start = after[2] + 1 if place == after[:2] else 0
                yield from _lying_in(topic, partition, lane, start, OFFSET_MAX)


def _lying_at(topic: OpenTopic, ids: frozenset[str]) -> Iterator[_Lying]:
    """Those of these ids, without looking at what lies before the first and behind the last of a lane."""
    offsets: dict[tuple[int, int], list[int]] = {}
    for match in filter(None, map(_ID.fullmatch, ids)):
        partition, lane, offset = map(int, match.groups())
        offsets.setdefault((partition, lane), []).append(offset)
    for (number, lane), each in sorted(offsets.items()):
        if number in topic.topic.partitions:
            found = _lying_in(topic, topic.topic.partitions[number], lane, min(each), max(each) + 1)
            yield from (item for item in found if item[3].id in ids)


def _lying_in(topic: OpenTopic, partition: Partition, lane: int, start: int, end: int) -> Iterator[_Lying]:
    log = partition.logs[lane]
    if log is None:
        return
    origin = topic.origin or topic.name
    removed = partition.removals.lanes[lane]
    start = max(log.start, removed.floor, start)
    frames = log.frames(start) if start < min(log.end, end) else iter(())
    for frame in takewhile(lambda frame: frame.header.base_offset < end, frames):
        is_marked = holds_dead_letters(frame.header)
        for record in each_left(frame, start):
            if record.offset >= end:
                break
            if record.offset not in removed:
                letter = dead_letter(record, partition.number, lane, origin, is_marked=is_marked)
                yield partition, lane, record.offset, letter


def _make_sure(batch: list[_Lying]) -> None:
    """Have dead letters on stable storage before they leave: one whose sync failed may not be there.

    Its message would then be where it was, and come back a second time. Raises FsyncFailed.
    """
    partition, lane = batch[0][:2]
    log = partition.logs[lane]
    assert log is not None, "they lie in it"
    log.sync(max(offset for _, _, offset, _ in batch) + 1)


def _send_back(target: OpenTopic, place: tuple[int, int, str, int, int], batch: list[_Lying]) -> None:
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
    target.wake(len(letters))
