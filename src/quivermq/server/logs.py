"""The log as JSON, a line for each record, for those who collect logs from many machines.

Only what a record says and its extra fields are written. Nobody puts headers or messages into those.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

# What every record has: everything else on it was given as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {
            name: value for name, value in vars(record).items() if name not in _OWN and value is not None
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        # The record's own words win over an extra field of the same name.
        return json.dumps({**extra, **told}, default=str, ensure_ascii=False)


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
