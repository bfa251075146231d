"""An archiver that is killed at one of its steps: a program of its own, for `kill -9` is not caught.

`python -m support.doomed_archiver DATA WHEN`, where WHEN is before:manifest:2, after:file:1 and so on, for
the names that the driver gives to files; or `worker`, for a task that dies with its files staged.
"""

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from quivermq.disk import SystemDisk
from quivermq.spark import archive, session
from quivermq.spark.jobs import archive as job
from quivermq.spark.jobs.archive_work import run

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_rename(when: str) -> None:
    """Let the driver die before or after the so-manieth time that it names a file of a kind."""
    seen: Counter[str] = Counter()
    rename = SystemDisk.rename

    def doomed(disk: SystemDisk, source: Path, target: Path) -> None:
        kind = (
            "file" if target.suffix == ".parquet" else "manifest" if "_quiver" in target.parts else "other"
        )
        seen[kind] += 1
        if when == f"before:{kind}:{seen[kind]}":
            die()
        rename(disk, source, target)
        if when == f"after:{kind}:{seen[kind]}":
            die()

    SystemDisk.rename = doomed  # type: ignore[assignment, method-assign]


def die_in_task(work: Any) -> Any:
    """In an executor: do all of the work, and never tell of it."""
    run(work)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    data, when = sys.argv[1:]
    if when == "worker":
        job.run = die_in_task  # type: ignore[attr-defined]
    else:
        die_at_rename(when)
    archive(data, age=0, spark=session("local[2]", **QUICK))


if __name__ == "__main__":
    main()
