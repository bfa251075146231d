"""Which topics a user means, for work that takes all of them unless it is told otherwise."""

from collections.abc import Callable, Iterable, Mapping

from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.topic.names import NO_ORIGINS, Pattern, is_pattern, origin_in


def topic_filter(
    topics: Iterable[str] | str | None,
    origins: Mapping[str, str | None] = NO_ORIGINS,
    *,
    with_dead_letters: bool = True,
) -> Callable[[str], bool]:
    """Whether a topic was asked for, by name or pattern, or its dead letters with it. None asks for all.

    `origins` tells of topics whose dead letters they have, if any; of others, the name does.
    """
    if topics is None:
        return lambda _: True
    texts = _texts(topics)
    if not texts:
        raise InvalidRequest("topics has no name in it: leave it out for all topics")
    patterns = [Pattern(text) for text in texts]

    def is_wanted(topic: str) -> bool:
        origin = origin_in(origins, topic)
        if any(pattern.matches(topic, origin) for pattern in patterns):
            return True
        is_with = with_dead_letters and origin is not None
        return is_with and any(pattern.matches(origin or "", None) for pattern in patterns)

    return is_wanted


def check_named(topics: Iterable[str] | str | None, present: Iterable[str]) -> None:
    """Raise TopicNotFound for a name that is no topic. A pattern may stand for none."""
    # Dead letters may have survived the topic they come from.
    origins = present if isinstance(present, Mapping) else NO_ORIGINS
    known = {name for topic in present for name in (topic, origin_in(origins, topic))}
    for text in [] if topics is None else _texts(topics):
        if not is_pattern(text) and text not in known:
            raise TopicNotFound(f"there is no topic {text}: `quiver topic list` shows those there are")


def _texts(topics: Iterable[str] | str) -> list[str]:
    return [text.strip() for text in (topics.split(",") if isinstance(topics, str) else topics)]
