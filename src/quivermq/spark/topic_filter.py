"""Which topics a user means, for work that takes all of them unless it is told otherwise."""

from collections.abc import Callable, Iterable

from quivermq.errors import InvalidRequest
from quivermq.topic.names import DEAD_LETTER_SUFFIX, Pattern


def topic_filter(
    topics: Iterable[str] | str | None, *, with_dead_letters: bool = True
) -> Callable[[str], bool]:
    """Whether a topic was asked for, by name or pattern, or its dead letters with it. None asks for all."""
    if topics is None:
        return lambda _: True
    texts = topics.split(",") if isinstance(topics, str) else list(topics)
    if not texts:
        raise InvalidRequest("topics has no name in it: leave it out for all topics")
    patterns = [Pattern(text.strip()) for text in texts]

    def is_wanted(topic: str) -> bool:
        names = (topic, topic.removesuffix(DEAD_LETTER_SUFFIX) if with_dead_letters else topic)
        return any(pattern.matches(name) for pattern in patterns for name in names)

    return is_wanted
