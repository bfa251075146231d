"""Which queue this is: a name that it gets with its first backup, and keeps wherever it is restored."""

import json
from os import urandom
from pathlib import Path

from quivermq.disk import Disk, read_file, replace_file
from quivermq.errors import StorageFailed
from quivermq.sealed import open_seal, sealed

NAME = "queue.json"

_VERSION = 1
_BYTES_MAX = 4096


def queue_identity(disk: Disk, root: Path) -> str:
    """The name of the queue in a directory; one is made, durably, if it has none. Raises StorageFailed."""
    path = root / NAME
    try:
        data = read_file(disk, path, bytes_max=_BYTES_MAX)
    except FileNotFoundError:
        identity = urandom(16).hex()
        replace_file(disk, path, sealed({"version": _VERSION, "queue": identity}))
        return identity
    try:
        document = json.loads(data)
        open_seal(document, ("version", "queue"))
        if document["version"] != _VERSION or not isinstance(document["queue"], str):
            raise ValueError(f"this release knows version {_VERSION}, and names that are texts")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StorageFailed(f"{path} cannot be understood: {error}", path=path) from error
    return str(document["queue"])
