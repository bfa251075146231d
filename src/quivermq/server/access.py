"""What an API key allows. Which keys there are is the business of `keys`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quivermq.errors import Denied
from quivermq.server.http import Request
from quivermq.server.permissions import SCOPES, KeyScope

ALL_TOPICS = ">"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as the broker knows it."""

    id: str
    scope: KeyScope
    topics: tuple[str, ...]
    """Names or patterns; `>` stands for all topics."""
    created_us: int = 0

    def has_scope(self, scope: str) -> bool:
        """Whether the key may make calls of this scope."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    @property
    def is_for_all_topics(self) -> bool:
        return ALL_TOPICS in self.topics

    def allows(self, topic: str, origin: str | None) -> bool:
        """Whether the key is for a topic, or for every topic that a pattern stands for.

        `origin` is the topic whose dead letters it has, if any. A key for a topic is for its dead letters
        too: they are its messages.
        """
        if self.is_for_all_topics:
            return True
        if origin is None:
            return _any_covers(self.topics, topic)
        # Otherwise `orders.*` would be taken for the dead letters of `orders`.
        own = [allowed for allowed in self.topics if allowed.endswith(topic.removeprefix(origin))]
        return _any_covers(own, topic) or _any_covers(self.topics, origin)


def may_see(request: Request, topic: str) -> bool:
    """Whether who asks may know of a topic: for calls that list topics, and leave out the others."""
    return request.key is None or request.key.allows(topic, request.origin_of(topic))


def check_topics(request: Request, topics: Iterable[str]) -> None:
    """Raise Denied unless who asks may use all of these topics and patterns.

    The gate does this for a topic in the path. A call that takes topics in its body does it itself.
    """
    if request.key is None:
        return
    for topic in topics:
        if not request.key.allows(topic, request.origin_of(topic)):
            raise Denied(f"this key is not for {topic[:300]}: ask for one whose topics include it")


def _any_covers(patterns: Iterable[str], topic: str) -> bool:
    asked = topic.split(".")
    return any(_covers(pattern.split("."), asked) for pattern in patterns)


def _covers(allowed: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether every name that looks like `asked` also looks like `allowed`."""
    for place, level in enumerate(allowed):
        if place == len(asked):
            return False
        if level == ">":
            return True
        # One level of any name is less than the rest of any length.
        if asked[place] == ">" or level not in ("*", asked[place]):
            return False
    return len(allowed) == len(asked)
