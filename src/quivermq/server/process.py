"""What a process that serves sets up for itself: its allocator, its open files, its pauses, its log."""

import ctypes
import gc
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

logger = logging.getLogger(__name__)

# Blocks from this size on are mapped by themselves, always. Usual batches are smaller.
LARGE_BYTES = 1024 * 1024

# As in malloc.h.
_M_MMAP_THRESHOLD = -3
_ENVIRONMENT = "MALLOC_MMAP_THRESHOLD_"


def return_large_blocks() -> bool:
    """Let large blocks go back to the system when they are freed; whether the C library does so.

    glibc begins to keep large blocks once a process has freed some, and bodies and answers of all sizes
    leave holes then that no other fits into: the process takes about twice of what it holds, and keeps it.
    Other C libraries have no such call. Who has said in the environment how it should be has the last word.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or _ENVIRONMENT in os.environ:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))


# For the logs of topics, besides the connections.
_FILES = 4096


def allow_open_files(connections: int) -> None:
    """Ask for as many as that many connections need, and warn when there are fewer to have."""
    wanted = connections + _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.warning(
            "%d open files are allowed, and %d connections may need %d: raise the limit (`ulimit -n`)"
            " or lower server.connections_max",
            allowed,
            connections,
            wanted,
        )


# A tenth of what Python has by default. To switch costs some microseconds.
_SWITCH_S = 0.0005

# So many objects that outlived a whole collection are set aside, where the next one does not look: walking
# over them takes about as long as a put may wait.
SURVIVORS_MAX = 50_000
# But not for ever: of what is set aside, rings that nobody refers to any more are found only by looking.
_LOOK_AGAIN_S = 3600.0


class Collections:
    """Keeps whole collections of garbage short, as one of `gc.callbacks`."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                self.look_again()
        elif len(gc.get_objects(generation=2)) > SURVIVORS_MAX:
            gc.freeze()

    def look_again(self) -> None:
        """Let the collection that begins now walk over everything."""
        self._looked_at = time.monotonic()
        gc.unfreeze()


@contextmanager
def short_pauses() -> Iterator[None]:
    """Let nobody who puts a message wait long for whatever else the broker counts or collects.

    Two things let one thread keep all others waiting. Whoever computes gives the interpreter away only
    after an interval, and a put needs it several times. And a collection of garbage stops everybody while
    it walks over all objects there are, which takes half a second where there are thousands of groups, and
    finds nothing. For as long as a broker serves, and the process does nothing else.
    """
    interval_s, collections = sys.getswitchinterval(), Collections()
    # What is open already stays open, most of it.
    gc.freeze()
    gc.callbacks.append(collections)
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        gc.callbacks.remove(collections)
        gc.unfreeze()


# What every record has: everything else on it was given as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, and the extra fields.

    Nobody puts headers or messages into those.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {
            name: value for name, value in vars(record).items() if name not in _OWN and value is not None
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # The record's own words win over an extra field of the same name.
        return json.dumps({**extra, **line}, default=str, ensure_ascii=False)


def configure_logging(
    *, as_json: bool = False, level: int = logging.INFO, stream: TextIO | None = None
) -> logging.Handler:
    """Write what the package logs to standard error, or to `stream`, and return what does so."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        JsonFormatter()
        if as_json
        else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    package = logging.getLogger("quivermq")
    package.addHandler(handler)
    package.setLevel(level)
    # Otherwise a handler of the root logger would say everything a second time.
    package.propagate = False
    return handler
