"""Which messages of a put go to which shard of a wide topic."""

from collections.abc import Sequence
from typing import NamedTuple

from quivermq.clock import SteadyClock
from quivermq.cluster.merging import whole_settings
from quivermq.errors import QuiverError
from quivermq.model.messages import Message, Put
from quivermq.model.stats import TopicInfo
from quivermq.settings import StorageSettings
from quivermq.topic.routing import Router
from quivermq.topic.rules import TopicRules


class Dealt(NamedTuple):
    """What goes to one shard."""

    shard_index: int
    """That of the shard among those of the topic."""
    places: Sequence[int]
    """Where the messages are in what was put."""
    messages: list[bytes | Message]


class WideRouting:
    """Deals the messages of one topic to its shards. Thread-safe."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._router = Router(1)
        self._rules: tuple[TopicInfo, TopicRules] | None = None
        # The index of the shard whose turn it is. Two threads may give it to the same one.
        self._next = 0

    def router(self, info: TopicInfo) -> Router:
        """Routes to the partitions that the topic has now."""
        if self._router.partitions != info.partitions:
            self._router = Router(info.partitions)
        return self._router

    def rules(self, info: TopicInfo) -> TopicRules:
        """What the topic lets in."""
        if self._rules is None or self._rules[0] is not info:
            settings = whole_settings(info.settings)
            self._rules = info, TopicRules(settings, settings.storage(StorageSettings()), self._clock)
        return self._rules[1]

    def turn(self, spread: int) -> int:
        """The index of the shard for a message that may go to any."""
        index = self._next % spread
        self._next = index + 1
        return index

    def deal(self, messages: list[bytes | Message], info: TopicInfo, spread: int) -> list[Dealt]:
        """All messages, each with the shard it goes to. Raises InvalidRequest, for any, before that."""
        batch = self.rules(info).check_many(messages)
        if batch.keys is batch.partitions is batch.dedup_ids is None:
            # Each shard deals its part to its partitions.
            first = self._next
            self._next = (first + len(messages)) % spread
            return [
                Dealt((first + step) % spread, range(step, len(messages), spread), messages[step::spread])
                for step in range(min(spread, len(messages)))
            ]
        router = self.router(info)
        dealt: dict[int, tuple[list[int], list[bytes | Message]]] = {}
        for index, message in enumerate(messages):
            partition, key = batch.item(batch.partitions, index), batch.item(batch.keys, index)
            number = partition
            if number is None:
                number = router.wide_partition_of(key, batch.item(batch.dedup_ids, index))
            places, part = dealt.setdefault(number % spread, ([], []))
            places.append(index)
            part.append(message)
        return [Dealt(index, *found) for index, found in dealt.items()]


def note_puts(
    results: list[Put | None],
    left: Sequence[int],
    dealt: Sequence[Dealt],
    outcomes: Sequence[Sequence[Put] | QuiverError],
) -> None:
    """Note where the messages are that shards took. What was dealt are those of these places."""
    for (_, places, _), outcome in zip(dealt, outcomes, strict=True):
        if not isinstance(outcome, QuiverError):
            for place, put in zip(places, outcome, strict=True):
                results[left[place]] = put
