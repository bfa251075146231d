"""Which topics are read: by name, by wildcard, or by regular expression."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.model.lanes import Lane
from quivermq.model.names import NO_ORIGINS, Pattern, check_topic_name, is_pattern, origin_in
from quivermq.model.operations import TopicExtent
from quivermq.spark.options import SourceOptions


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Names, patterns such as `events.*`, or an expression that has to match the whole name."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    expression: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()
    """Of the names, only these; all where nobody said which."""

    @classmethod
    def of(cls, options: SourceOptions) -> "TopicSelection":
        """What the options ask for. Raises InvalidRequest unless it is one of the two ways to ask."""
        text, expression = options.text("subscribe"), options.text("subscribePattern")
        assigned = options.text("assign")
        if sum(each is not None for each in (text, expression, assigned)) > 1:
            raise InvalidRequest("give one of the options `subscribe`, `subscribePattern` and `assign`")
        if assigned is not None:
            return cls._assigned(assigned)
        if text is None and expression is None:
            raise InvalidRequest(
                "say what to read: the option `subscribe` with topics such as orders,events.*,"
                " `subscribePattern` with a regular expression, or `assign` with partitions"
            )
        if expression is not None:
            return cls(expression=checked_expression(expression))
        assert text is not None
        parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not parts:
            raise InvalidRequest("the option `subscribe` names no topic")
        names = tuple(part for part in parts if not is_pattern(part))
        for name in names:
            check_topic_name(name)
        patterns = tuple(Pattern(part).text for part in parts if is_pattern(part))
        return cls(names, patterns)

    @classmethod
    def _assigned(cls, text: str) -> "TopicSelection":
        """Partitions by topic, as Spark's Kafka source has them."""
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not document or not all(map(_are_numbers, document.values())):
            raise InvalidRequest(f'the option `assign` is JSON such as {{"orders":[0,1]}}, not {text!r}')
        for name in document:
            check_topic_name(name)
        places = [(name, number) for name, numbers in document.items() for number in numbers]
        return cls(tuple(document), partitions=tuple(dict.fromkeys(places)))

    def takes(self, topic: str, partition: int) -> bool:
        """Whether a partition of a topic that is meant is meant, too."""
        return not self.partitions or (topic, partition) in self.partitions

    def lanes_of(self, view: TopicExtent) -> TopicExtent:
        """A look at a topic, without the partitions that are not meant."""
        if not self.partitions:
            return view
        lanes = {lane: bounds for lane, bounds in view.lanes.items() if self.takes(*lane[:2])}
        return view._replace(lanes=lanes)

    def check_partitions(self, lanes: Iterable[Lane]) -> None:
        """Raise InvalidRequest for a partition that was named and is not there."""
        there = {lane[:2] for lane in lanes}
        for topic, number in self.partitions:
            if (topic, number) not in there:
                raise InvalidRequest(
                    f"the option `assign` names partition {number} of {topic}: it has none"
                )

    @property
    def is_open(self) -> bool:
        """Whether topics may come that nobody has named."""
        return bool(self.patterns) or self.expression is not None

    def topics(self, existing: Iterable[str], origins: Mapping[str, str | None] = NO_ORIGINS) -> list[str]:
        """Those of the existing topics that are meant, sorted. Named ones may be missing.

        `origins` tells of topics whose dead letters they have, if any; of others, the name does.
        """
        matches = [Pattern(text).matches for text in self.patterns]
        if self.expression is not None:
            matches.append(partial(_matches, self.expression))
        return [
            name
            for name in sorted(existing)
            if name in self.names or any(m(name, origin_in(origins, name)) for m in matches)
        ]

    def check_all(self, found: Iterable[str]) -> None:
        """Raise TopicNotFound when a topic that was named is not among those that were found."""
        missing = sorted(set(self.names).difference(found))
        if missing:
            raise TopicNotFound(f"there is no topic {', '.join(missing)}: subscribe to one that there is")

    def __str__(self) -> str:
        return self.expression if self.expression is not None else ",".join((*self.names, *self.patterns))


def _are_numbers(given: object) -> bool:
    return (
        isinstance(given, list) and bool(given) and all(type(each) is int and each >= 0 for each in given)
    )


def checked_expression(expression: str) -> str:
    """A regular expression of the option `subscribePattern`. Raises InvalidRequest."""
    try:
        re.compile(expression)
    except re.error as error:
        raise InvalidRequest(
            f"the option `subscribePattern` is no regular expression: {error} in {expression!r}"
        ) from None
    return expression


def _matches(expression: str, name: str, origin: str | None) -> bool:
    # Dead letters are taken only by an expression that speaks of them, as it is with wildcards.
    if origin is not None and name.removeprefix(origin).lstrip("._-") not in expression:
        return False
    return re.fullmatch(expression, name) is not None


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
    texts = topic_texts(topics)
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


def chosen_topics(topics: Iterable[str] | str | None, origins: Mapping[str, str | None]) -> list[str]:
    """Those of the topics that were asked for. Raises TopicNotFound for a name that is none."""
    found = list(filter(topic_filter(topics, origins), origins))
    check_named(topics, origins)
    return found


def check_named(topics: Iterable[str] | str | None, present: Iterable[str]) -> None:
    """Raise TopicNotFound for a name that is no topic. A pattern may stand for none."""
    # Dead letters may have survived the topic they come from.
    origins = present if isinstance(present, Mapping) else NO_ORIGINS
    known = {name for topic in present for name in (topic, origin_in(origins, topic))}
    for text in [] if topics is None else topic_texts(topics):
        if not is_pattern(text) and text not in known:
            raise TopicNotFound(f"there is no topic {text}: `quiver topic list` shows those there are")


def topic_texts(topics: Iterable[str] | str) -> list[str]:
    """Names and patterns, given as such or as one text with commas."""
    return [text.strip() for text in (topics.split(",") if isinstance(topics, str) else topics)]
