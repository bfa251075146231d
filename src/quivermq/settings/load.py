"""Gathering the settings: defaults < quiver.toml < environment < arguments.

Every source is checked in full, even where a later one overrules it: a mistake that shows only once
the override is gone is harder to find. This is the only module besides disk.py that reads a file,
because the settings are needed before there is a disk.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from quivermq.errors import InvalidRequest, InvalidSettings
from quivermq.settings.setting import Setting, settings_of
from quivermq.settings.tree import (
    BucketSettings,
    ClientSettings,
    ClusterSettings,
    EngineSettings,
    ServerSettings,
    Settings,
    StorageSettings,
)

# Topics come as they are: what may be set of them, and which pattern stands for which, is known above.
TOPICS = "topics"
_SECTIONS: Mapping[str, type] = MappingProxyType(
    {
        "storage": StorageSettings,
        "engine": EngineSettings,
        "bucket": BucketSettings,
        "server": ServerSettings,
        "client": ClientSettings,
        "cluster": ClusterSettings,
    }
)
_PREFIX = "QUIVER_"

# Every setting by its dotted key, in the order of the tree.
SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        f"{section}.{name}": setting
        for section, declared in _SECTIONS.items()
        for name, setting in settings_of(declared).items()
    }
)


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting with its value and the source that had the last word on it."""

    key: str
    setting: Setting
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings and, by dotted key, where each of them came from."""

    settings: Settings
    origins: Mapping[str, str]

    def values(self) -> Iterator[SettingValue]:
        """Every setting, in the order of the tree."""
        for key, setting in SETTINGS.items():
            section, name = key.split(".")
            value = getattr(getattr(self.settings, section), name)
            yield SettingValue(key, setting, value, self.origins[key])


def load_settings(
    *,
    toml: Path | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    arguments: Mapping[str, object] = MappingProxyType({}),
) -> LoadedSettings:
    """The settings that all sources together ask for.

    `toml` is a file that must exist, `environ` is all of the environment, and the keys of
    `arguments` are dotted (`storage.codec`). Paths in the file begin where the file is. What is said of
    topics is gathered, and checked by `quivermq.topic.defaults`. Raises InvalidSettings.
    """
    origins = dict.fromkeys(SETTINGS, "default")
    sections: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    topics = _Topics()
    for section, name, raw, origin in _given(toml, environ, arguments):
        if section == TOPICS:
            topics.add(name, raw, origin)
            continue
        key = f"{section}.{name}"
        try:
            value = SETTINGS[key].parse(raw)
        except ValueError as error:
            raise InvalidSettings(key, str(error), origin=origin) from None
        if isinstance(value, Path) and toml is not None and origin == str(toml):
            value = toml.parent / value
        sections[section][name] = value
        origins[key] = origin
    try:
        made: dict[str, Any] = {name: _SECTIONS[name](**given) for name, given in sections.items()}
        settings = Settings(**made, topics=topics.given, topic_origins=MappingProxyType(topics.origins))
    except InvalidSettings as error:
        # Values that are fine one by one do not go together; only here are their origins known.
        raise InvalidSettings(error.key, error.reason, origin=origins[error.key]) from None
    return LoadedSettings(settings, MappingProxyType(origins))


def as_settings(given: Settings | Mapping[str, Any] | None) -> Settings:
    """What somebody gave as settings: those themselves, a mapping that is like the file, or nothing.

    Raises InvalidRequest for anything else, and InvalidSettings.
    """
    if given is None:
        return Settings()
    if isinstance(given, Mapping):
        return settings_from(given)
    if not isinstance(given, Settings):
        raise InvalidRequest(
            f"settings are quivermq.Settings or a mapping of sections, not a {type(given).__name__}"
        )
    return given


def settings_from(tree: Mapping[str, Any]) -> Settings:
    """The settings of a mapping that is like the file: sections, and in each of them names and values.

    Raises InvalidSettings.
    """
    for section, table in tree.items():
        _check_section(section, table, "arguments")
    arguments = {f"{section}.{name}": raw for section, table in tree.items() for name, raw in table.items()}
    return load_settings(arguments=arguments).settings


class _Topics:
    """What the sources say of topics: of one setting the last one counts."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.origins: dict[tuple[str, str], str] = {}

    def add(self, name: str, raw: object, origin: str) -> None:
        """A setting of all topics, or the settings of those that a pattern stands for."""
        before = self.given.get(name)
        if isinstance(raw, Mapping):
            self.given[name] = {**(before if isinstance(before, dict) else {}), **raw}
            self.origins.update(((name, inner), origin) for inner in raw)
        else:
            self.given[name] = raw
        self.origins["", name] = origin


def variable_of(key: str) -> str:
    """The environment variable of a setting."""
    return _PREFIX + key.replace(".", "__").upper()


def _given(
    toml: Path | None, environ: Mapping[str, str], arguments: Mapping[str, object]
) -> Iterator[tuple[str, str, object, str]]:
    """What each source says, as section, name, raw value and origin; the last one counts."""
    for key, raw in _read_toml(toml) if toml else ():
        yield *_known(key, str(toml)), raw, str(toml)
    for variable, text in environ.items():
        if variable.startswith(_PREFIX) and "__" in variable:
            origin = f"environment {variable}"
            key = variable.removeprefix(_PREFIX).replace("__", ".", 1).lower()
            known = _known(key, origin)
            if variable != variable_of(key):
                raise InvalidSettings(key, f"is spelled {variable_of(key)}", origin=origin)
            yield *known, text, origin
    for key, raw in arguments.items():
        yield *_known(key, "arguments"), raw, "arguments"


def _read_toml(path: Path) -> Iterator[tuple[str, object]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(str(path), f"cannot be read: {error.strerror}", origin="arguments") from error
    except ValueError as error:
        raise InvalidSettings(str(path), f"is not TOML: {error}", origin=str(path)) from error
    for section, table in document.items():
        _check_section(section, table, str(path))
        yield from ((f"{section}.{name}", raw) for name, raw in table.items())


def _check_section(section: str, table: object, origin: str) -> None:
    # As well as key by key, or an empty section could have any name.
    if (section not in _SECTIONS and section != TOPICS) or not isinstance(table, Mapping):
        known = ", ".join(f"[{known}]" for known in (*_SECTIONS, TOPICS))
        raise InvalidSettings(section, f"is not one of the sections {known}", origin=origin)


def _known(key: str, origin: str) -> tuple[str, str]:
    section, _, name = key.partition(".")
    if key in SETTINGS or (section == TOPICS and name):
        return section, name
    # Strict, because the name of the section alone already makes two keys alike.
    close = get_close_matches(key, SETTINGS, n=1, cutoff=0.8)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InvalidSettings(key, f"there is no such setting{hint}", origin=origin)
