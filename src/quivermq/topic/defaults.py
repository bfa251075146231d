"""What a new topic is made with: the settings of `[topics]`, and of the patterns that stand for it.

Setting by setting, the most specific rule counts that names it. Of two patterns that stand for one topic
that is decided by the first level in which they differ: a name counts more than `*`, and `*` more than `>`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from quivermq.errors import InvalidName, InvalidSettings
from quivermq.model.names import Pattern, check_topic_name, usual_origin
from quivermq.model.topic_settings import TopicSettings, parse_settings, storage_names
from quivermq.settings import TOPICS, LoadedSettings, Settings, SettingValue
from quivermq.settings import load_settings as gather_settings
from quivermq.settings.setting import settings_of

# By pattern, or "" for all topics, and setting: where it was said.
_Origins = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class _Rule:
    """Some settings, for all topics or for those of a pattern."""

    text: str
    pattern: Pattern | None
    values: Mapping[str, Any]

    @property
    def order(self) -> tuple[int, ...]:
        """Grows with how specific the rule is."""
        levels = self.text.split(".") if self.text else []
        return tuple({">": 0, "*": 1}.get(level, 2) for level in levels)

    def key(self, name: str) -> str:
        """How a setting of it is called."""
        return f"{TOPICS}.{name}" if self.pattern is None else f'{TOPICS}."{self.text}".{name}'


class TopicDefaults:
    """The rules of a queue. Raises InvalidSettings for one that says something impossible."""

    def __init__(self, settings: Settings) -> None:
        self._storage = settings.storage
        self._origins = settings.topic_origins
        # By the rules that are about a topic, what it is made with when nobody asks for anything else.
        self._made: dict[tuple[str, ...], TopicSettings] = {}
        self._rules = _rules_of(settings)
        for rule in self._rules:
            self._check(rule)

    def make(self, topic: str, given: Mapping[str, object], *, origin: str | None = None) -> TopicSettings:
        """The settings of a new topic: those given, which may be text, and what the rules say for the rest.

        With an `origin` it is for the dead letters of that topic, which `[topics]` is not about: only a
        pattern that asks for them is. Raises InvalidSettings.
        """
        rules = self._rules_of(topic, origin)
        if given:
            return self._make(rules, given)
        known = tuple(rule.text for rule in rules)
        if (made := self._made.get(known)) is None:
            made = self._made[known] = self._make(rules, {})
        return made

    def _make(self, rules: list[_Rule], given: Mapping[str, object]) -> TopicSettings:
        preset: dict[str, Any] = {}
        for rule in rules:
            preset.update(rule.values)
        return TopicSettings.make(given, self._storage, preset=preset)

    def of(self, topic: str) -> Iterator[SettingValue]:
        """Every setting of a topic that is made now, and which rule says so. Raises InvalidName."""
        check_topic_name(topic)
        rules = self._rules_of(topic, usual_origin(topic))
        for common in self._common(any(rule.pattern is None for rule in rules)):
            name = common.setting.name
            found = [rule for rule in rules if rule.pattern is not None and name in rule.values]
            yield self._default(found[-1], name, found[-1].values[name]) if found else common

    def _rules_of(self, topic: str, origin: str | None) -> list[_Rule]:
        return [
            rule
            for rule in self._rules
            if (origin is None if rule.pattern is None else rule.pattern.matches(topic, origin))
        ]

    def values(self) -> Iterator[SettingValue]:
        """Every setting as it is for all topics, and then what patterns say, the most specific last."""
        yield from self._common(True)
        for rule in self._rules[1:]:
            for name, value in rule.values.items():
                yield self._default(rule, name, value)

    def _common(self, is_ruled: bool) -> Iterator[SettingValue]:
        """What topics have that no pattern stands for; those of dead letters are not ruled."""
        common, shared = self._rules[0], storage_names()
        for name, setting in settings_of(TopicSettings).items():
            if is_ruled and name in common.values:
                yield self._default(common, name, common.values[name])
            elif name in shared:
                value = getattr(self._storage, name)
                yield SettingValue(common.key(name), setting, value, f"storage.{name}")
            else:
                yield SettingValue(common.key(name), setting, setting.default, "default")

    def _default(self, rule: _Rule, name: str, value: object) -> SettingValue:
        setting = settings_of(TopicSettings)[name]
        return SettingValue(rule.key(name), setting, value, self._origin(rule.text, name))

    def _origin(self, pattern: str, name: str) -> str:
        return _origin(self._origins, pattern, name)

    def _check(self, rule: _Rule) -> None:
        """Raise InvalidSettings for values that do not go together, or not with what all topics have."""
        preset = {} if rule.pattern is None else self._rules[0].values
        try:
            TopicSettings.make(rule.values, self._storage, preset=preset)
        except InvalidSettings as error:
            raise InvalidSettings(
                rule.key(error.key), error.reason, origin=self._origin(rule.text, error.key)
            ) from None


def load_settings(
    *,
    toml: Path | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    arguments: Mapping[str, object] = MappingProxyType({}),
) -> LoadedSettings:
    """The settings that all sources together ask for, those of topics checked as well.

    `toml` is a file that must exist, `environ` is all of the environment, and the keys of
    `arguments` are dotted (`storage.codec`). Paths in the file begin where the file is. Raises
    InvalidSettings.
    """
    # Each source by itself first, because all of it counts, also where a later one overrules it.
    for source in (gather_settings(toml=toml), gather_settings(environ=environ)):
        _rules_of(source.settings)
    loaded = gather_settings(toml=toml, environ=environ, arguments=arguments)
    TopicDefaults(loaded.settings)
    return loaded


def _rules_of(settings: Settings) -> list[_Rule]:
    """The rules, the most specific last. Raises InvalidSettings for a value that no topic can have."""
    common = {name: raw for name, raw in settings.topics.items() if _is_setting(name, raw)}
    rules = [_rule("", common, settings.topic_origins)]
    for name, raw in settings.topics.items():
        if name not in common:
            rules.append(_rule(name, raw, settings.topic_origins))
    return sorted(rules, key=lambda rule: rule.order)


def _rule(text: str, given: Mapping[str, Any], origins: _Origins) -> _Rule:
    try:
        pattern = Pattern(text) if text else None
    except InvalidName as error:
        raise InvalidSettings(
            f"{TOPICS}.{text}",
            f"is no setting of a topic, and no pattern: {error}",
            origin=_origin(origins, "", text),
        ) from None
    rule = _Rule(text, pattern, {})
    values: dict[str, Any] = {}
    for name, raw in given.items():
        origin = _origin(origins, text, name)
        try:
            values |= parse_settings({name: raw}, origin)
        except InvalidSettings as error:
            raise InvalidSettings(rule.key(error.key), error.reason, origin=origin) from None
    return _Rule(text, pattern, MappingProxyType(values))


def _origin(origins: _Origins, pattern: str, name: str) -> str:
    return origins.get((pattern, name), "arguments")


def _is_setting(name: str, raw: object) -> bool:
    """Whether it is a setting of all topics, or meant as one; otherwise it is a pattern with its own."""
    return name in settings_of(TopicSettings) or not isinstance(raw, Mapping)
