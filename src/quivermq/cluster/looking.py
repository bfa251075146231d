"""Operations on a topic that is on several shards, or on all topics of a pattern: who does what of them."""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from quivermq.cluster.merging import (
    in_order,
    merged_scheduled,
    merged_timeline,
    place_in_flight,
    place_of_id,
    place_of_message,
)
from quivermq.cluster.places import Place
from quivermq.errors import GroupNotFound, OffsetOutOfRange, QuiverError
from quivermq.model import operations
from quivermq.model.checks import seconds_of
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason, merged_reasons
from quivermq.model.deliveries import InFlight
from quivermq.model.messages import Scheduled, StoredMessage, Timeline
from quivermq.model.operations import QueueOperation
from quivermq.model.stats import QueueStats, stats_of_all

if TYPE_CHECKING:
    from quivermq.cluster.queue import ClusterQueue

T = TypeVar("T")


def perform_on(queue: "ClusterQueue", place: Place, operation: QueueOperation[T]) -> T:
    """Carry it out on several shards."""
    answer: T = _METHODS[type(operation)](queue, place, operation)
    return answer


def _each(queue: "ClusterQueue", place: Place, operation: QueueOperation[T]) -> list[T]:
    return queue.backend.together.of_each(place, lambda shard: queue.at(shard).perform(operation))


def _first(queue: "ClusterQueue", place: Place, operation: QueueOperation[T]) -> T:
    """What every shard knows."""
    return queue.at(place[0]).perform(operation)


def _on_all(queue: "ClusterQueue", place: Place, operation: QueueOperation[Any]) -> None:
    _each(queue, place, operation)


def _sum(queue: "ClusterQueue", place: Place, operation: QueueOperation[int]) -> int:
    return sum(_each(queue, place, operation))


def _any(queue: "ClusterQueue", place: Place, operation: QueueOperation[bool]) -> bool:
    answers: list[bool] = _each(queue, place, operation)
    return any(answers)


def _lease_s(queue: "ClusterQueue", _: Place, operation: operations.GetLeaseSeconds) -> float:
    return queue.at(queue.backend.places.of(operation.topic)[0]).perform(operation)


def _wait(queue: "ClusterQueue", place: Place, operation: operations.WaitForMessages) -> bool:
    # One after the other waits a part of the time: a cluster's own queues wait by `Awaiting`.
    share = operations.WaitForMessages(seconds_of("seconds", operation.seconds, lowest=0) / len(place))
    return any(queue.at(shard).perform(share) for shard in place)


def _seek(queue: "ClusterQueue", place: Place, operation: operations.Seek) -> None:
    target = operation.target
    if target.partition is not None:
        queue.at(place[target.partition % len(place)]).perform(operation)
        return
    outcomes = queue.backend.together.outcomes(
        [partial(queue.at(shard).perform, operation) for shard in place]
    )
    missed = {
        shard: outcome
        for shard, outcome in zip(place, outcomes, strict=True)
        if isinstance(outcome, OffsetOutOfRange)
    }
    for outcome in outcomes:
        if isinstance(outcome, QuiverError) and not (
            isinstance(outcome, OffsetOutOfRange) and len(missed) < len(place)
        ):
            raise outcome
    # As in one shard: where the offset is not, the group goes on from the nearest there is.
    for shard, outcome in missed.items():
        assert target.offset is not None, "only an offset may be out of range"
        nearest = "latest" if target.offset > outcome.end else "earliest"
        there = target._replace(to=nearest, offset=None, priority=target.priority or "normal")
        queue.at(shard).perform(operations.Seek(there))


def _peek(queue: "ClusterQueue", place: Place, operation: operations.Peek) -> list[StoredMessage]:
    found: list[list[StoredMessage]] = _each(queue, place, operation)
    return in_order(found, place_of_message, operation.limit)


def _stats(queue: "ClusterQueue", place: Place, operation: operations.GetQueueStats) -> QueueStats:
    return stats_of_all(queue.topic, queue.group, _each(queue, place, operation))


def _deliveries(
    queue: "ClusterQueue", place: Place, operation: operations.ListDeliveries
) -> list[InFlight]:
    found: list[list[InFlight]] = _each(queue, place, operation)
    return in_order(found, place_in_flight, operation.limit)


def _pause(queue: "ClusterQueue", place: Place, operation: operations.PauseGroup) -> None:
    """Where the group has never been, it comes to be, so that it is paused there as well."""
    queue.backend.together.of_known(place, lambda shard: queue.at(shard).perform(operation))
    for shard in place:
        try:
            queue.at(shard).perform(operation)
        except GroupNotFound:
            queue.at(shard).perform(operations.WaitForMessages(0))
            queue.at(shard).perform(operation)


def _retry_now(queue: "ClusterQueue", place: Place, operation: operations.RetryNow) -> int:
    known = queue.backend.together.of_known(place, lambda shard: queue.at(shard).perform(operation))
    return sum(known.values())


def _dead_letters(
    queue: "ClusterQueue", place: Place, operation: operations.ListDeadLetters
) -> list[DeadLetter]:
    found: list[list[DeadLetter]] = _each(queue, place, operation)
    return in_order(found, lambda letter: place_of_id(letter.id), operation.limit)


def _reasons(
    queue: "ClusterQueue", place: Place, operation: operations.CountReasons
) -> list[DeadLetterReason]:
    return merged_reasons(reason for each in _each(queue, place, operation) for reason in each)


def _move(queue: "ClusterQueue", place: Place, operation: operations.Redrive | operations.Discard) -> int:
    """Chosen in full first, where all shards together decide which ones; then each moves its own."""
    ids: Collection[str] | None = operation.ids
    if operation.limit is not None or operation.wanted is not None:
        named = None if ids is None else frozenset(ids)
        letters = _dead_letters(queue, place, operations.ListDeadLetters(None))
        chosen = (
            letter.id
            for letter in letters
            if (named is None or letter.id in named)
            and (operation.wanted is None or operation.wanted(letter))
        )
        ids = list(chosen)[: operation.limit]
    moved = 0
    for shard in place:
        own = None if ids is None else [each for each in ids if _is_in(each, place, shard)]
        if own is None or own:
            moved += queue.at(shard).perform(
                operations.Redrive(None, None, own, operation.edits)
                if isinstance(operation, operations.Redrive)
                else operations.Discard(None, None, own)
            )
    return moved


def _is_in(dead_letter_id: str, place: Place, shard: int) -> bool:
    """Whether a dead letter of that id would be in a shard. For what is no id, one of them is asked."""
    partition = dead_letter_id.partition("-")[0]
    number = int(partition) if partition.isascii() and partition.isdigit() else 0
    return place[number % len(place)] == shard


def _scheduled(queue: "ClusterQueue", place: Place, operation: operations.ListScheduled) -> list[Scheduled]:
    found: list[list[Scheduled]] = _each(queue, place, operation)
    return merged_scheduled(found, operation.limit)


def _timeline(queue: "ClusterQueue", place: Place, operation: operations.CountScheduled) -> Timeline:
    until_us = operation.until_us
    if until_us is None:
        until_us = max(one.end for one in _each(queue, place, operation))
    return merged_timeline(_each(queue, place, operations.CountScheduled(until_us, operation.bins)))


_METHODS: dict[type[QueueOperation[Any]], Callable[..., Any]] = {
    operations.SyncTopic: _on_all,
    operations.GetLeaseSeconds: _lease_s,
    operations.WaitForMessages: _wait,
    operations.CountPartitions: _first,
    operations.Seek: _seek,
    operations.Peek: _peek,
    operations.GetQueueStats: _stats,
    operations.ListDeliveries: _deliveries,
    operations.PauseGroup: _pause,
    operations.RetryNow: _retry_now,
    operations.Purge: _sum,
    operations.ListDeadLetters: _dead_letters,
    operations.CountReasons: _reasons,
    operations.Redrive: _move,
    operations.Discard: _move,
    operations.ListScheduled: _scheduled,
    operations.CountScheduled: _timeline,
    operations.Cancel: _sum,
    operations.DeliverNow: _any,
}
