"""Which topics are read: by name, by wildcard, or by regular expression."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.spark.options import Options
from quivermq.topic.names import Pattern, check_topic_name, is_dead_letter_topic, is_pattern


@dataclass(frozen=True, slots=True)
class Subscription:
    """Names, patterns such as `events.*`, or an expression that has to match the whole name."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    expression: str | None = None

    @classmethod
    def of(cls, options: Options) -> "Subscription":
        """What the options ask for. Raises InvalidRequest unless it is one of the two ways to ask."""
        text, expression = options.text("subscribe"), options.text("subscribePattern")
        if text is not None and expression is not None:
            raise InvalidRequest("give the option `subscribe` or `subscribePattern`, not both")
        if text is None and expression is None:
            raise InvalidRequest(
                "say what to read: the option `subscribe` with topics such as orders,events.*,"
                " or `subscribePattern` with a regular expression"
            )
        if expression is not None:
            return cls(expression=_checked(expression))
        assert text is not None
        parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not parts:
            raise InvalidRequest("the option `subscribe` names no topic")
        names = tuple(part for part in parts if not is_pattern(part))
        for name in names:
            check_topic_name(name)
        patterns = tuple(Pattern(part).text for part in parts if is_pattern(part))
        return cls(names, patterns)

    @property
    def is_open(self) -> bool:
        """Whether topics may come that nobody has named."""
        return bool(self.patterns) or self.expression is not None

    def topics(self, existing: Iterable[str]) -> list[str]:
        """Those of the existing topics that are meant, sorted. Named ones may be missing."""
        matches = [Pattern(text).matches for text in self.patterns]
        if self.expression is not None:
            matches.append(partial(_matches, self.expression))
        return [name for name in sorted(existing) if name in self.names or any(m(name) for m in matches)]

    def check_all(self, found: Iterable[str]) -> None:
        """Raise TopicNotFound when a topic that was named is not among those that were found."""
        missing = sorted(set(self.names).difference(found))
        if missing:
            raise TopicNotFound(f"there is no topic {', '.join(missing)}: subscribe to one that there is")

    def __str__(self) -> str:
        return self.expression if self.expression is not None else ",".join((*self.names, *self.patterns))


def _checked(expression: str) -> str:
    try:
        re.compile(expression)
    except re.error as error:
        raise InvalidRequest(
            f"the option `subscribePattern` is no regular expression: {error} in {expression!r}"
        ) from None
    return expression


def _matches(expression: str, name: str) -> bool:
    # Dead letters are taken only by an expression that speaks of them, as it is with wildcards.
    if is_dead_letter_topic(name) and "dlq" not in expression:
        return False
    return re.fullmatch(expression, name) is not None
