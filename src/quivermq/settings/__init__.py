"""The settings: one frozen, typed tree, and where each of its values came from."""

from quivermq.settings.load import TOPICS, LoadedSettings, SettingValue, load_settings, settings_from
from quivermq.settings.tree import (
    ClientSettings,
    ClusterSettings,
    CodecName,
    Durability,
    EngineSettings,
    ServerSettings,
    Settings,
    StorageSettings,
)

__all__ = [
    "TOPICS",
    "ClientSettings",
    "ClusterSettings",
    "CodecName",
    "Durability",
    "EngineSettings",
    "LoadedSettings",
    "ServerSettings",
    "SettingValue",
    "Settings",
    "StorageSettings",
    "load_settings",
    "settings_from",
]
