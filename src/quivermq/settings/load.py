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

from quivermq.errors import InvalidSettings
from quivermq.settings.setting import Setting, settings_of
from quivermq.settings.tree import EngineSettings, ServerSettings, Settings, StorageSettings

_SECTIONS: Mapping[str, type] = MappingProxyType(
    {"storage": StorageSettings, "engine": EngineSettings, "server": ServerSettings}
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
    `arguments` are dotted (`storage.codec`). Raises InvalidSettings.
    """
    origins = dict.fromkeys(SETTINGS, "default")
    sections: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for key, raw, origin in _given(toml, environ, arguments):
        section, name = key.split(".")
        try:
            sections[section][name] = SETTINGS[key].parse(raw)
        except ValueError as error:
            raise InvalidSettings(key, str(error), origin=origin) from None
        origins[key] = origin
    try:
        settings = Settings(**{name: _SECTIONS[name](**given) for name, given in sections.items()})
    except InvalidSettings as error:
        # Values that are fine one by one do not go together; only here are their origins known.
        raise InvalidSettings(error.key, error.reason, origin=origins[error.key]) from None
    return LoadedSettings(settings, MappingProxyType(origins))


def variable_of(key: str) -> str:
    """The environment variable of a setting."""
    return _PREFIX + key.replace(".", "__").upper()


def _given(
    toml: Path | None, environ: Mapping[str, str], arguments: Mapping[str, object]
) -> Iterator[tuple[str, object, str]]:
    """What each source says, as known key, raw value and origin; the last one counts."""
    for key, raw in _read_toml(toml) if toml else ():
        yield _known(key, str(toml)), raw, str(toml)
    for variable, text in environ.items():
        if variable.startswith(_PREFIX) and "__" in variable:
            origin = f"environment {variable}"
            key = variable.removeprefix(_PREFIX).replace("__", ".", 1).lower()
            if variable != variable_of(_known(key, origin)):
                raise InvalidSettings(key, f"is spelled {variable_of(key)}", origin=origin)
            yield key, text, origin
    for key, raw in arguments.items():
        yield _known(key, "arguments"), raw, "arguments"


def _read_toml(path: Path) -> Iterator[tuple[str, object]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(str(path), f"cannot be read: {error.strerror}", origin="arguments") from error
    except ValueError as error:
        raise InvalidSettings(str(path), f"is not TOML: {error}", origin=str(path)) from error
    for section, table in document.items():
        # Checked here as well as key by key, or an empty section could have any name.
        if section not in _SECTIONS or not isinstance(table, dict):
            known = ", ".join(f"[{known}]" for known in _SECTIONS)
            raise InvalidSettings(section, f"is not one of the sections {known}", origin=str(path))
        yield from ((f"{section}.{name}", raw) for name, raw in table.items())


def _known(key: str, origin: str) -> str:
    if key in SETTINGS:
        return key
    # Strict, because the name of the section alone already makes two keys alike.
    close = get_close_matches(key, SETTINGS, n=1, cutoff=0.8)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InvalidSettings(key, f"there is no such setting{hint}", origin=origin)
