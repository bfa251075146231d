"""What a shell offers while a name is being typed. It must be quick and can only help, never fail."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from quivermq.errors import QuiverError


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin like that, as far as the options so far say where to look."""
    return [name for name in _topics(context.params) if name.startswith(incomplete)]


def _topics(options: dict[str, Any]) -> list[str]:
    server = options.get("server") or (None if options.get("data") else os.environ.get("QUIVER_SERVER"))
    if server:
        return _topics_of_broker(server)
    data = options.get("data") or os.environ.get("QUIVER_DATA")
    # Read from the names of directories: the queue need not be opened, and may be open elsewhere.
    with suppress(OSError):
        return sorted(path.name for path in (Path(data) / "topics").iterdir()) if data else []
    return []


def _topics_of_broker(server: str) -> list[str]:
    from quivermq.cli.place import connected

    # A shell that is completing has no place for an error message.
    with suppress(QuiverError), connected(server, timeout=1, retries=0) as client:
        return client.topics()
    return []
