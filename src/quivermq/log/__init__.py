"""An ordered run of segments: append, read, retention, verification, repair.

`DataDirectory` locks a directory and opens the logs in it; `Log` appends and reads; `LogFollower` looks
on from another process; `verify` and `repair` check and mend.
"""

from quivermq.log.directory import DataDirectory, follow
from quivermq.log.log import Log
from quivermq.log.maintenance import Removed
from quivermq.log.reader import LogFollower, LogReader
from quivermq.log.repair import Mended, Repair, repair
from quivermq.log.rewriting import Replaced
from quivermq.log.verify import Finding, Report, total_bytes, verify

__all__ = [
    "DataDirectory",
    "Finding",
    "Log",
    "LogFollower",
    "LogReader",
    "Mended",
    "Removed",
    "Repair",
    "Replaced",
    "Report",
    "follow",
    "repair",
    "total_bytes",
    "verify",
]
