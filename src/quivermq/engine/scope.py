"""The topic that a queue is about, or all topics of a pattern."""

from typing import TYPE_CHECKING

from quivermq.engine.hosted import Hosted
from quivermq.errors import InvalidName, InvalidRequest
from quivermq.model.names import Pattern, check_topic_name, is_pattern

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine


class Scope:
    """One topic, which need not exist yet, or those that a pattern matches at the time."""

    def __init__(self, engine: "Engine", topic: str) -> None:
        self.topic = topic
        self.pattern: Pattern | None = None
        if is_pattern(topic):
            self.pattern = Pattern(topic)
        else:
            check_topic_name(topic)
        self._engine = engine

    def check_single(self, act: str) -> None:
        """Raise InvalidName for a pattern, which cannot be put into and the like."""
        self._engine.check_open()
        if self.pattern is not None:
            raise InvalidName(f"{self.topic} stands for many topics: {act} one of them")

    def one(self, act: str) -> Hosted:
        """The topic, which has to exist. Raises TopicNotFound, and InvalidName for a pattern."""
        self.check_single(act)
        return self._engine.hosted(self.topic)

    def all(self) -> list[Hosted]:
        """The topics that there are."""
        if self.pattern is not None:
            return self._engine.find_by(self.pattern)
        hosted = self._engine.find(self.topic)
        return [] if hosted is None else [hosted]

    def check_includes(self, topic: str) -> None:
        """Raise InvalidRequest for a message of another topic."""
        is_ours = topic == self.topic if self.pattern is None else self.pattern.looks_like(topic)
        if not is_ours:
            raise InvalidRequest(f"the message is one of {topic}, not of {self.topic}")
