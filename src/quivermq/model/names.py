"""What topics and groups may be called, and which topics a pattern stands for.

A name becomes the name of a directory, so this check is also what keeps a name inside of its directory.
"""

import re
from collections.abc import Mapping, Sequence

from quivermq.errors import InvalidName, InvalidRequest

DEAD_LETTER_SUFFIX = ".dlq"
"""What the names of dead-letter topics end with, unless a topic has another `dead_letter_suffix`."""
SUFFIX_PATTERN = r"[._-][A-Za-z0-9._-]{1,49}"
IMPORTS_TOPIC = "quiver.imports"
"""Where imports note what they have done. No pattern stands for it: nobody asked for that."""

NAME_LENGTH_MAX = 249

_ONE_LEVEL = "*"
_REST = ">"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SHOWN_LENGTH_MAX = 80


def check_topic_name(name: object) -> None:
    """Raise InvalidName unless a topic may be called that."""
    _check("a topic", name, _topic_length_max(name))


def check_group_name(name: object) -> None:
    """Raise InvalidName unless a group may be called that."""
    _check("a group", name, NAME_LENGTH_MAX)


def check_dead_letter_name(topic: str, suffix: str) -> None:
    """Raise InvalidName when a topic cannot have its dead letters under that suffix."""
    check_topic_name(topic)
    if suffix != DEAD_LETTER_SUFFIX and len(topic) + len(suffix) > NAME_LENGTH_MAX:
        raise InvalidName(
            f"{_shown(topic + suffix)} is too long for the name of a dead-letter topic, which has at most"
            f" {NAME_LENGTH_MAX} characters: choose a shorter dead_letter_suffix"
        )


def usual_origin(name: str) -> str | None:
    """The topic whose dead letters a name is for by default; None for any other name.

    What a topic really is stands in its `topic.json`, because the suffix is a setting: this is only for
    one that is not there, or not yet.
    """
    origin = name.removesuffix(DEAD_LETTER_SUFFIX)
    return None if origin in (name, "") else origin


NO_ORIGINS: Mapping[str, str | None] = {}


def origin_in(origins: Mapping[str, str | None], name: str) -> str | None:
    """The topic whose dead letters a topic has, as it was given; by default as its name says."""
    return origins[name] if name in origins else usual_origin(name)


def is_pattern(text: object) -> bool:
    """Whether this asks for all topics of a kind rather than for one by its name."""
    return isinstance(text, str) and (_ONE_LEVEL in text or _REST in text)


class Pattern:
    """The topics whose levels, which are separated by dots, look like those of the pattern.

    `*` stands for exactly one level and `>`, which must be the last, for one or more. Dead letters are
    taken only by a pattern that asks for them, by ending as their topic does, such as in `.dlq`. Raises
    InvalidName.
    """

    __slots__ = ("_head", "_takes_rest", "text")

    def __init__(self, text: str) -> None:
        levels = _checked_levels(text)
        self.text = text
        self._takes_rest = levels[-1] == _REST
        self._head = levels[:-1] if self._takes_rest else levels

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, topic: str, origin: str | None) -> bool:
        """Whether the pattern stands for this topic; `origin` is the one whose dead letters it has, if any.

        Takes time in proportion to the name's length.
        """
        if topic == IMPORTS_TOPIC:
            return False
        if origin is not None and not self.text.endswith(topic.removeprefix(origin)):
            return False
        return self.looks_like(topic)

    def looks_like(self, topic: str) -> bool:
        """Whether the name is of the pattern, whatever the topic is for."""
        levels = topic.split(".")
        head = self._head
        if not (len(levels) > len(head) if self._takes_rest else len(levels) == len(head)):
            return False
        # The rest of the name, if there is one, is what `>` stands for.
        return all(want in (_ONE_LEVEL, have) for want, have in zip(head, levels, strict=False))


class Scope:
    """What a queue is about: one topic, which need not exist yet, or those that a pattern stands for."""

    __slots__ = ("pattern", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.pattern = Pattern(topic) if is_pattern(topic) else None
        if self.pattern is None:
            check_topic_name(topic)

    def check_single(self, act: str) -> None:
        """Raise InvalidName for a pattern, which cannot be put into and the like."""
        if self.pattern is not None:
            raise InvalidName(f"{self.topic} stands for many topics: {act} one of them")

    def check_includes(self, topic: str) -> None:
        """Raise InvalidRequest for a message of another topic."""
        is_ours = topic == self.topic if self.pattern is None else self.pattern.looks_like(topic)
        if not is_ours:
            raise InvalidRequest(f"the message is one of {topic}, not of {self.topic}")


def _checked_levels(text: object) -> Sequence[str]:
    if not is_pattern(text):
        check_topic_name(text)
    assert isinstance(text, str)
    # A wildcard takes the place of at least one character, so what is longer can match no topic.
    if len(text) > _topic_length_max(text):
        raise InvalidName(f"a pattern has at most {NAME_LENGTH_MAX} characters, not {len(text)}")
    levels = text.split(".")
    if _REST in levels[:-1]:
        raise InvalidName(f"the pattern {text!r} goes on behind its `>`, which must be the last level")
    for level in levels:
        if level not in ("", _ONE_LEVEL, _REST) and not _NAME.fullmatch(level):
            raise InvalidName(
                f"the pattern {text!r} has a level {level!r}: a level is `*`, `>`,"
                " or of letters, digits, `_` and `-`"
            )
    return levels


def _topic_length_max(name: object) -> int:
    # A topic of any allowed name must be able to have its dead letters.
    has_suffix = isinstance(name, str) and name.endswith(DEAD_LETTER_SUFFIX)
    return NAME_LENGTH_MAX + (len(DEAD_LETTER_SUFFIX) if has_suffix else 0)


def _check(what: str, name: object, length_max: int) -> None:
    if not isinstance(name, str):
        raise InvalidName(f"the name of {what} is a str, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"the name of {what} is empty")
    if len(name) > length_max:
        raise InvalidName(f"the name of {what} has at most {length_max} characters, not {len(name)}")
    if not _NAME.fullmatch(name):
        raise InvalidName(
            f"{_shown(name)} cannot be the name of {what}: use letters (A-Z, a-z), digits, `.`, `_` and `-`"
        )
    if not name.strip("."):
        raise InvalidName(f"{_shown(name)} cannot be the name of {what}: it has nothing but dots")


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_LENGTH_MAX else name[:_SHOWN_LENGTH_MAX] + "…")
