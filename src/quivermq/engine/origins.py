"""Which topic has the dead letters of which: what a name may be, and what a dead-letter topic is set to.

A dead-letter topic says itself, in its `topic.json`, whose dead letters it has. Its name alone does not
tell: what it ends with is a setting of the other topic.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from quivermq.errors import InvalidSettings, TopicExists
from quivermq.model.names import DEAD_LETTER_SUFFIX, check_dead_letter_name, usual_origin
from quivermq.model.topic_settings import TopicSettings, settled_by_origin


class Belonging(Protocol):
    """A topic, open or not."""

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str | None:
        """The topic whose dead letters it has."""
        ...

    @property
    def dead_letter_name(self) -> str | None:
        """Where its own dead letters go."""
        ...


class Origins:
    """The topics that there are, asked who belongs to whom."""

    def __init__(self) -> None:
        self._suffixes = frozenset([DEAD_LETTER_SUFFIX])

    def note(self, settings: TopicSettings) -> None:
        """Know the suffix of a topic from now on. That no topic has it any more does no harm."""
        if settings.dead_letter_suffix not in self._suffixes:
            self._suffixes |= {settings.dead_letter_suffix}

    def note_name(self, topic: str, dead_letter_name: str | None) -> None:
        """The same, of a topic that is not open."""
        if dead_letter_name is not None and not dead_letter_name.endswith(DEAD_LETTER_SUFFIX):
            self._suffixes |= {dead_letter_name.removeprefix(topic)}

    def of_new(self, topics: Mapping[str, Belonging], name: str) -> str | None:
        """The topic whose dead letters a new topic of this name would have; None for one of its own."""
        for suffix in self._suffixes:
            hosted = topics.get(name.removesuffix(suffix))
            if hosted is not None and hosted.dead_letter_name == name:
                return hosted.name
        origin = usual_origin(name)
        # A topic that is there has its dead letters where it says.
        return None if origin in topics else origin

    def check_new(self, topics: Mapping[str, Belonging], name: str, settings: TopicSettings) -> None:
        """Raise TopicExists or InvalidName when a topic could not have its dead letters there."""
        suffix = settings.dead_letter_suffix
        check_dead_letter_name(name, suffix)
        taken = topics.get(name + suffix)
        if taken is not None and taken.origin != name:
            raise TopicExists(
                f"dead letters of {name} would go to {taken.name}, which is there for something else:"
                " choose another dead_letter_suffix"
            )


def graves_of(topics: Mapping[str, Belonging], topic: str) -> str:
    """The name of the topic with the dead letters of a topic, or that one itself if it has dead letters.

    They outlive their topic, and whether they are there is another question.
    """
    hosted = topics.get(topic)
    if hosted is not None:
        return hosted.dead_letter_name or topic
    left = [name for name in topics if (each := topics.get(name)) is not None and each.origin == topic]
    return left[0] if left else topic + DEAD_LETTER_SUFFIX


def dead_letter_settings(
    source: TopicSettings | None, origin: str, own: TopicSettings, given: Mapping[str, Any]
) -> TopicSettings:
    """What a dead-letter topic is set to: its own settings, and what follows from `source`, its topic's.

    Raises InvalidSettings when `given`, which somebody asked for, has something that follows.
    """
    made = (source or TopicSettings()).of_dead_letters(own)
    for name in settled_by_origin():
        if name in given and getattr(own, name) != getattr(made, name):
            reason = (
                "each of them is kept, whatever its key"
                if name == "cleanup"
                else f"set dead_letter_retention_ms of {origin}"
            )
            raise InvalidSettings(name, f"cannot be set for dead letters: {reason}", origin="arguments")
    return made
