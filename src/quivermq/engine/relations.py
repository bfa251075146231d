"""What one topic has to do with another: a dead-letter topic with its origin, both with the archive."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quivermq.archive import ArchivedTopic
from quivermq.delivery.dead_letters import DeadLetterTopic
from quivermq.engine.archived import QueueArchive
from quivermq.engine.open_topic import OpenTopic
from quivermq.errors import Conflict, InvalidSettings
from quivermq.model.topic_settings import TopicSettings, set_by_origin

if TYPE_CHECKING:
    from quivermq.engine.catalog import Catalog


class TopicRelations:
    """Answers what an open topic asks about others, by its name."""

    def __init__(self, catalog: "Catalog", archive: QueueArchive) -> None:
        self._catalog = catalog
        self._archive = archive

    def archived(self, name: str) -> ArchivedTopic | None:
        """What the archive has of a topic; None without an archive, or when it has nothing of it."""
        if self._archive.look() is None:
            return None
        return self._archive.durable_topic(name, self._catalog.created_us(name))

    def dead_letter_topic(self, topic: str, create: bool) -> DeadLetterTopic | None:
        """Where dead letters of a topic go. Raises Conflict when somebody else has a topic there."""
        asking = self._catalog.table.get(topic)
        if asking is None or (name := asking.dead_letter_name) is None:
            return None
        found = self._catalog.get_or_create(name, is_ours=True) if create else self._find_unsettled(name)
        if found is None:
            return None
        if found.origin != topic:
            raise Conflict(f"{name} is there for something else, and cannot have dead letters of {topic}")
        # One that is just being added is not known to all groups yet.
        partitions = {n: found.topic.partitions[n] for n in found.settings.own_partitions}
        return DeadLetterTopic(partitions, found.wake)

    def _find_unsettled(self, name: str) -> OpenTopic | None:
        """A topic, unless it is known to have nothing on its way, or cannot be opened."""
        closed = self._catalog.table.find_closed(name)
        return (
            None if closed is not None and closed.summary is not None else self._catalog.find_readable(name)
        )

    def settle(self, name: str) -> bool:
        """Have written down which messages of a topic came from its dead letters, or are dead letters.

        Until then, they themselves tell it, and have to stay; False while some are on their way. Raises
        DiskRefused.
        """
        origin = self._catalog.table.origin_of(name)
        if origin is not None:
            source = self._find_unsettled(origin)
            for group in source.all_groups() if source is not None else ():
                for cursor in group.cursors.values():
                    cursor.finish_transfers()
            return True
        dead_letters = self._find_unsettled(self._catalog.table.dead_letter_name_of(name))
        return dead_letters is None or all(
            each.removals.finish_moves() for each in dead_letters.topic.partitions.values()
        )


def dead_letter_settings(
    source: TopicSettings | None, origin: str, own: TopicSettings, given: Mapping[str, Any]
) -> TopicSettings:
    """What a dead-letter topic is set to: its own settings, and what follows from `source`, its topic's.

    Raises InvalidSettings when `given`, which somebody asked for, has something that follows.
    """
    if source is None:
        # It is gone: where its dead letters lie, they stay.
        source = TopicSettings(partitions=own.partitions, spread=own.spread, spread_index=own.spread_index)
    made = source.of_dead_letters(own)
    for name in set_by_origin():
        if name in given and getattr(own, name) != getattr(made, name):
            reason = (
                "each of them is kept, whatever its key"
                if name == "cleanup"
                else f"set dead_letter_retention_ms of {origin}"
            )
            raise InvalidSettings(name, f"cannot be set for dead letters: {reason}", origin="arguments")
    return made
