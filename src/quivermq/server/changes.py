"""What is new since the last look, for listeners who know the rest.

A listener gets everything once, with the number of its version. From then on it gets what is different from
the version before, as a JSON merge patch (RFC 7396) of topics and groups: what is not there is as it was,
null is gone. Who missed one sees it by the number, and asks anew. When a topic is gone, everything is told
once more. The difference is made once, and each listener's part of it is chosen by topic.
"""

from dataclasses import dataclass
from typing import Any

from quivermq.engine.survey import Survey
from quivermq.engine.turns import in_turns
from quivermq.server.figures import Wanted, rest_told, topic_told

# Moves with every look while nothing happens; `oldest_unacked_at` says the same and stays.
_ALWAYS_NEW = "oldest_unacked_ms"


@dataclass(frozen=True, slots=True)
class Version:
    """One look, and how it differs from the one before. Never changed, so any thread may ask it."""

    number: int
    survey: Survey
    topics: dict[str, dict[str, Any]]
    changed: dict[str, dict[str, Any]]
    """By topic: what is new."""
    has_removed: bool
    """Whether a topic is gone. Who knew of it is not known here, so everybody is told everything anew."""
    is_trouble_new: bool

    def names(self, wanted: Wanted) -> frozenset[str]:
        """The topics that somebody hears of in this version."""
        return frozenset(filter(wanted, self.topics))

    def full(self, names: frozenset[str]) -> dict[str, Any]:
        """Everything."""
        topics = {name: topic for name, topic in self.topics.items() if name in names}
        return {
            "version": self.number,
            "time": self.survey.time_us,
            "topics": topics,
            **self._rest(names),
        }

    def changes(self, names: frozenset[str]) -> dict[str, Any]:
        """What is different from the version before."""
        rest = self._rest(names)
        if not self.is_trouble_new:
            del rest["problems"], rest["alerts"]
        return {
            "version": self.number,
            "since": self.number - 1,
            "time": self.survey.time_us,
            "topics": {name: change for name, change in self.changed.items() if name in names},
            **rest,
        }

    def _rest(self, names: frozenset[str]) -> dict[str, Any]:
        topics = [topic for name, topic in self.survey.stats.topics.items() if name in names]
        return rest_told(self.survey, names.__contains__, topics)


def next_version(before: Version | None, survey: Survey) -> Version:
    """The version that a look makes."""
    topics = {
        name: topic_told(topic, survey.activity.get(name))
        for name, topic in in_turns(survey.stats.topics.items())
    }
    if before is None:
        return Version(1, survey, topics, {}, has_removed=True, is_trouble_new=True)
    changed: dict[str, dict[str, Any]] = {}
    for name, topic in in_turns(topics.items()):
        if difference := _topic_difference(before.topics.get(name), topic):
            changed[name] = difference
    was, now = before.survey, survey
    is_trouble_new = (was.problems, was.stats.alerts) != (now.problems, now.stats.alerts)
    has_removed = not before.topics.keys() <= topics.keys()
    return Version(before.number + 1, survey, topics, changed, has_removed, is_trouble_new)


def _topic_difference(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    if before is None:
        return now
    changed = _difference(before, now, "groups")
    if groups := _groups_difference(before["groups"], now["groups"]):
        changed["groups"] = groups
    return changed


def _groups_difference(
    before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any] | None]:
    groups: dict[str, dict[str, Any] | None] = {name: None for name in before if name not in now}
    for name, group in now.items():
        known = before.get(name)
        if difference := group if known is None else _difference(known, group, _ALWAYS_NEW):
            groups[name] = difference
    return groups


def _difference(before: dict[str, Any], now: dict[str, Any], left_out: str) -> dict[str, Any]:
    return {name: value for name, value in now.items() if before[name] != value and name != left_out}
