"""`archive.json` in a data directory: where the queue's archive is."""

import json
from pathlib import Path

from quivermq.disk import Disk, read_file, replace_file
from quivermq.errors import StorageFailed
from quivermq.sealed import open_seal, sealed

FILE_NAME = "archive.json"
DEFAULT_NAME = "archive"

_VERSION = 1
_BYTES_MAX = 64 * 1024


def load_pointer(disk: Disk, data: Path) -> Path | None:
    """The archive of a data directory; None when it has none. Raises StorageFailed."""
    path = data / FILE_NAME
    try:
        document = json.loads(read_file(disk, path, bytes_max=_BYTES_MAX))
        if document["version"] != _VERSION:
            raise StorageFailed(
                f"{path} has version {document['version']!r}, this release knows {_VERSION}", path=path
            )
        open_seal(document, ("version", "directory"))
        directory = document["directory"]
        if directory is not None and not isinstance(directory, str):
            raise TypeError(f"{directory!r} is not a path")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageFailed(
            f"{path}, which says where the archive is, cannot be understood: {error!r};"
            " call use_archive with its directory again, or with None if there is no archive",
            path=path,
        ) from error
    return None if directory is None else data / directory


def store_pointer(disk: Disk, data: Path, directory: Path | None) -> None:
    """Name the archive of a data directory, durably.

    One that lies inside is named relative to it, so that both can be moved together.
    """
    told = None if directory is None else str(directory)
    if directory is not None and directory.is_relative_to(data):
        told = str(directory.relative_to(data))
    document = {"version": _VERSION, "directory": told}
    replace_file(disk, data / FILE_NAME, sealed(document, indent=None))
