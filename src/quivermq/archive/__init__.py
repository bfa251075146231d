"""Tiered storage: ranges of lanes as Parquet files, and manifests that say which files count.

Reading manifests needs nothing; reading and writing the files needs pyarrow (`quivermq[spark]`), which is
imported when it is first needed.
"""

from quivermq.archive.manifest import ArchivedFile, ArchivedLane, Manifest
from quivermq.archive.reading import Archive, ArchivedTopic, load_pointer, store_pointer

__all__ = [
    "Archive",
    "ArchivedFile",
    "ArchivedLane",
    "ArchivedTopic",
    "Manifest",
    "load_pointer",
    "store_pointer",
]
