"""Tiered storage: ranges of lanes as Parquet files, and manifests that say which files count.

Reading manifests needs nothing; reading and writing the files needs pyarrow (`quivermq[spark]`), which is
imported when it is first needed.
"""

from quivermq.archive.manifest import ArchivedFile, ArchivedLane, Manifest
from quivermq.archive.places import LanePlace
from quivermq.archive.pointer import load_pointer, store_pointer
from quivermq.archive.reading import Archive, ArchivedTopic

__all__ = [
    "Archive",
    "ArchivedFile",
    "ArchivedLane",
    "ArchivedTopic",
    "LanePlace",
    "Manifest",
    "load_pointer",
    "store_pointer",
]
