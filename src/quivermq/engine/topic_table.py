"""Which topics there are: open, closed, or set aside, and which of them holds whose dead letters.

A dead-letter topic says itself, in its `topic.json`, whose dead letters it has. Its name alone does not
tell: what it ends with is a setting of the other topic.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from copy import copy

from quivermq.engine.closed_topics import ClosedTopic
from quivermq.engine.limits import Limits
from quivermq.engine.open_topic import OpenTopic
from quivermq.errors import QuiverError, TopicExists
from quivermq.model.names import DEAD_LETTER_SUFFIX, check_dead_letter_name, usual_origin
from quivermq.model.topic_settings import TopicSettings

logger = logging.getLogger(__name__)


class TopicTable(Mapping[str, OpenTopic | ClosedTopic]):
    """Every topic there is, open or closed, by name. Who changes it holds `lock`; looking needs none."""

    def __init__(self, limits: Limits) -> None:
        # Held only to look at and change the table, and to open a topic; never while waiting for a cursor.
        self.lock = threading.RLock()
        # Changed in place: whoever walks over one walks over a copy.
        self._open: dict[str, OpenTopic] = {}
        self._closed: dict[str, ClosedTopic] = {}
        self._set_aside: dict[str, QuiverError] = {}
        # The topics in which something may fall due: maintenance looks at no others.
        self.busy: set[OpenTopic] = set()
        self.limits = limits
        self._suffixes = frozenset([DEAD_LETTER_SUFFIX])

    def __getitem__(self, name: str) -> OpenTopic | ClosedTopic:
        # In this order: one that is opened meanwhile is in both for a moment, and then only in the first.
        found = self._closed.get(name)
        return self._open[name] if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter({**self._closed.copy(), **self._open.copy()})

    def __len__(self) -> int:
        return len(self._closed) + len(self._open)

    def names(self) -> list[str]:
        return list(self)

    def find_open(self, name: str) -> OpenTopic | None:
        return self._open.get(name)

    def find_closed(self, name: str) -> ClosedTopic | None:
        return self._closed.get(name)

    def open_topics(self) -> dict[str, OpenTopic]:
        """A copy, by name."""
        return self._open.copy()

    def closed_topics(self) -> dict[str, ClosedTopic]:
        """A copy, by name."""
        return self._closed.copy()

    def set_aside_topics(self) -> dict[str, QuiverError]:
        """The topics that cannot be opened, by name, and why."""
        return self._set_aside.copy()

    def is_closed(self, name: str) -> bool:
        """Whether there is a topic of that name that is not open: whoever uses it waits for the disk."""
        return name in self._closed

    @property
    def has_closed(self) -> bool:
        """Whether there are topics that are not open."""
        return bool(self._closed)

    def check_not_set_aside(self, name: str) -> None:
        """Raise what keeps a topic from being opened; the others go on."""
        if name in self._set_aside:
            raise copy(self._set_aside[name])

    def groups_by_topic(self) -> dict[str, list[str]]:
        """By name of each topic, open or not, its groups."""
        groups = {name: closed.groups for name, closed in self._closed.copy().items()}
        return groups | {name: list(topic.groups) for name, topic in self._open.copy().items()}

    def partitions_of(self, name: str) -> range:
        """Its partitions in this directory; none of a topic that is not there.

        Without opening it: whoever asks holds a lock that others want who open and make topics.
        """
        if (closed := self._closed.get(name)) is not None:
            return closed.partitions
        topic = self._open.get(name)
        return range(0) if topic is None else topic.settings.own_partitions

    # Changes.

    def add(self, topic: OpenTopic) -> None:
        """A topic was opened or made."""
        name = topic.name
        if (closed := self._closed.get(name)) is not None:
            self.limits.count_topic(-len(closed.partitions), -len(closed.groups))
        self.limits.count_topic(len(topic.settings.own_partitions), len(topic.groups))
        # In this order: whoever looks at both, the other way round, finds it in one of them at least.
        self._open[name] = topic
        self._closed.pop(name, None)
        topic.become_busy()

    def add_closed(self, closed: ClosedTopic) -> None:
        """A topic was found on the disk, or one that was set aside can be tried again."""
        self._set_aside.pop(closed.name, None)
        self._closed[closed.name] = closed
        self.limits.count_topic(len(closed.partitions), len(closed.groups))
        if closed.dead_letter_name is not None:
            self._note_suffix(closed.dead_letter_name.removeprefix(closed.name))

    def drop(self, name: str) -> None:
        """Count a topic no more that is not there any more."""
        if (topic := self._open.pop(name, None)) is not None:
            self.limits.count_topic(-len(topic.settings.own_partitions), -len(topic.groups))
            self.busy.discard(topic)
        elif (closed := self._closed.pop(name, None)) is not None:
            self.limits.count_topic(-len(closed.partitions), -len(closed.groups))

    def set_aside(self, name: str, error: QuiverError) -> None:
        """Go on without a topic that cannot be opened; whoever asks for it is told."""
        logger.error("topic %s cannot be opened: %s", name, error, extra={"topic": name})
        self._set_aside[name] = error
        self.drop(name)

    # Which topic holds whose dead letters.

    def note_suffix(self, settings: TopicSettings) -> None:
        """Know the suffix of a topic from now on. That no topic has it any more does no harm."""
        self._note_suffix(settings.dead_letter_suffix)

    def _note_suffix(self, suffix: str) -> None:
        if suffix not in self._suffixes:
            self._suffixes |= {suffix}

    def origin_of(self, name: str) -> str | None:
        """The topic whose dead letters are in the topic of that name, or would be if it were made now.

        None for a topic of its own.
        """
        known = self.get(name)
        return self.origin_of_new(name) if known is None else known.origin

    def origin_of_new(self, name: str) -> str | None:
        """The topic whose dead letters a new topic of this name would have; None for one of its own."""
        for suffix in self._suffixes:
            topic = self.get(name.removesuffix(suffix))
            if topic is not None and topic.dead_letter_name == name:
                return topic.name
        origin = usual_origin(name)
        # A topic that is there has its dead letters where it says.
        return None if origin in self else origin

    def check_new(self, name: str, settings: TopicSettings) -> None:
        """Raise TopicExists or InvalidName when a topic could not have its dead letters there."""
        suffix = settings.dead_letter_suffix
        check_dead_letter_name(name, suffix)
        taken = self.get(name + suffix)
        if taken is not None and (there := self.partitions_of(taken.name)).step != settings.spread:
            raise TopicExists(
                f"dead letters of {name} would go to {taken.name}, which has spread={there.step}: create"
                " this one so, too, or delete that"
            )
        if taken is not None and taken.origin != name:
            raise TopicExists(
                f"dead letters of {name} would go to {taken.name}, which is there for something else:"
                " choose another dead_letter_suffix"
            )

    def dead_letter_name_of(self, name: str) -> str:
        """The name of the topic with the dead letters of a topic, or of that one itself if it has some.

        They outlive their topic, and whether they are there is another question.
        """
        topic = self.get(name)
        if topic is not None:
            return topic.dead_letter_name or name
        left = [each for each in self if (found := self.get(each)) is not None and found.origin == name]
        return left[0] if left else name + DEAD_LETTER_SUFFIX
