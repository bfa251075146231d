"""The settings: one frozen, typed tree, and where each of its values came from."""

from quivermq.settings.load import (
    TOPICS,
    LoadedSettings,
    SettingValue,
    as_settings,
    load_settings,
    settings_from,
)
from quivermq.settings.place import check_bucket, check_path, is_bucket, place_of
from quivermq.settings.tree import (
    BucketSettings,
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
    "BucketSettings",
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
    "as_settings",
    "check_bucket",
    "check_path",
    "is_bucket",
    "load_settings",
    "place_of",
    "settings_from",
]
