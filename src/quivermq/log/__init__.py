"""An ordered run of segments: append, read, retention, verification, repair.

`DataDirectory` locks a directory and opens the logs in it; `Log` appends and reads; `LogFollower` reads
while another process writes; `verify` and `repair` check and mend.
"""

from quivermq.log.directory import DataDirectory, follow
from quivermq.log.log import Log
from quivermq.log.maintenance import RetentionResult
from quivermq.log.reader import LogFollower
from quivermq.log.repair import Mended, Repair, repair
from quivermq.log.verify import total_bytes, verify
from quivermq.model.stats import LogFinding, Replaced, Report

ReadableLog = Log | LogFollower

__all__ = [
    "DataDirectory",
    "Log",
    "LogFinding",
    "LogFollower",
    "Mended",
    "ReadableLog",
    "Repair",
    "Replaced",
    "Report",
    "RetentionResult",
    "follow",
    "repair",
    "total_bytes",
    "verify",
]
