"""The settings: one frozen, typed tree, and where each of its values came from."""

from quivermq.settings.load import LoadedSettings, SettingValue, load_settings
from quivermq.settings.tree import (
    CodecName,
    Durability,
    EngineSettings,
    ServerSettings,
    Settings,
    StorageSettings,
)

__all__ = [
    "CodecName",
    "Durability",
    "EngineSettings",
    "LoadedSettings",
    "ServerSettings",
    "SettingValue",
    "Settings",
    "StorageSettings",
    "load_settings",
]
