"""What the topics and groups of a source are called here."""

import re
from collections.abc import Mapping, Sequence

from quivermq.errors import InvalidRequest
from quivermq.importers.model import ImportSource, SourceTopic
from quivermq.topic.names import IMPORTS_TOPIC, NAME_LENGTH_MAX, check_topic_name, usual_origin

_STRANGE = re.compile(r"[^A-Za-z0-9._-]")


def own_name(name: str) -> str:
    """A name as it may be here: levels are separated by dots, and what is not allowed becomes a dash."""
    made = _STRANGE.sub("-", name.replace("/", "."))[:NAME_LENGTH_MAX]
    return made if made.strip(".") else "-"


def chosen_topics(
    source: ImportSource, topic: str | None, wanted: Sequence[str], names: Mapping[str, str]
) -> list[tuple[str, SourceTopic]]:
    """The topics to import, each with its name here. Raises InvalidRequest.

    `wanted` are names in the source, by default all; `names` says what some are called here. One topic gets
    the name `topic`; several get it as a prefix, or keep their own names where there is none.
    """
    there = {each.name: each for each in source.topics}
    if missing := [name for name in (*wanted, *names) if name not in there]:
        others = ", ".join(map(repr, sorted(there))) or "none"
        raise InvalidRequest(f"{source.path} has no topic {missing[0]!r}: it has {others}")
    chosen = [each for each in source.topics if not wanted or each.name in wanted]
    if topic is None and not source.has_names and any(each.name not in names for each in chosen):
        raise InvalidRequest(f"a {source.kind} queue has no name of its own: say which topic it becomes")
    made = [(names.get(each.name) or _name(each.name, topic, len(chosen)), each) for each in chosen]
    _check(made)
    return made


def _name(own: str, topic: str | None, count: int) -> str:
    if topic is None:
        return own_name(own)
    return topic if count == 1 else f"{topic}.{own_name(own)}"


def _check(made: list[tuple[str, SourceTopic]]) -> None:
    taken: dict[str, str] = {}
    for name, topic in made:
        check_topic_name(name)
        if (origin := usual_origin(name)) is not None:
            raise InvalidRequest(f"{name} is where dead letters go: name the topic they are of, {origin}")
        if name == IMPORTS_TOPIC:
            raise InvalidRequest(f"{name} is where imports note what they have done: choose another name")
        if name in taken:
            raise InvalidRequest(
                f"{taken[name]!r} and {topic.name!r} would both become {name}: give one another name"
            )
        taken[name] = topic.name
