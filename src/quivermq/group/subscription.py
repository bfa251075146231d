"""What a member wants to read: topics by name, and all topics of a pattern, also those yet to come."""

from collections.abc import Callable, Iterable

from quivermq.errors import InvalidRequest
from quivermq.topic.names import Pattern, check_topic_name, is_pattern


class Subscription:
    """Some names and patterns. Raises InvalidName, InvalidRequest."""

    __slots__ = ("_names", "_patterns", "topics")

    def __init__(self, topics: Iterable[str], topics_max: int) -> None:
        # Counted before anything is made of them.
        self.topics = tuple(topics)
        if not 0 < len(self.topics) <= topics_max:
            raise InvalidRequest(f"a member reads 1 to {topics_max} topics or patterns")
        self._patterns = [Pattern(topic) for topic in self.topics if is_pattern(topic)]
        names = [topic for topic in self.topics if not is_pattern(topic)]
        for name in names:
            check_topic_name(name)
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subscription) and set(self.topics) == set(other.topics)

    def __hash__(self) -> int:
        return hash(frozenset(self.topics))

    def matches(self, topic: str, origin: str | None) -> bool:
        """Whether this topic is asked for; `origin` is the one whose dead letters it has, if any."""
        return topic in self._names or any(pattern.matches(topic, origin) for pattern in self._patterns)

    def found_in(self, catalogue: Iterable[str], origin_of: Callable[[str], str | None]) -> frozenset[str]:
        """Those of the topics there are that are asked for."""
        if not self._patterns:
            return self._names.intersection(catalogue)
        return frozenset(topic for topic in catalogue if self.matches(topic, origin_of(topic)))
