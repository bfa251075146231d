"""The queue's data in Spark: a session, the data source `quiver`, and jobs over whole topics.

Importing this imports neither Spark nor pyarrow; using one of the names does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quivermq.reading.reader import ProgressCallback
from quivermq.spark.launcher import ignore_broken_pipes

# At once and not when somebody asks for it, because the module of the same name would hide it.
from quivermq.spark.session import session

if TYPE_CHECKING:
    from quivermq.spark.jobs.archive import ArchiveSummary, archive
    from quivermq.spark.jobs.audit import AuditSummary, audit
    from quivermq.spark.jobs.audit_tasks import AuditFinding
    from quivermq.spark.jobs.compact import CompactedTopic, CompactSummary, compact
    from quivermq.spark.jobs.redrive import RedriveSummary, redrive
    from quivermq.spark.jobs.replay import ReplaySummary, replay
    from quivermq.spark.jobs.report import ReportSummary, report
    from quivermq.spark.jobs.run import RunSummary, SinkSummary, run
    from quivermq.spark.jobs.sql import sql
    from quivermq.spark.jobs.typed import typed

# The names of each job, whose module is imported when somebody asks for one of them.
_JOBS = {
    "archive": ("ArchiveSummary", "archive"),
    "audit": ("AuditSummary", "audit"),
    "audit_tasks": ("AuditFinding",),
    "compact": ("CompactSummary", "CompactedTopic", "compact"),
    "redrive": ("RedriveSummary", "redrive"),
    "replay": ("ReplaySummary", "replay"),
    "report": ("ReportSummary", "report"),
    "run": ("RunSummary", "SinkSummary", "run"),
    "sql": ("sql",),
    "typed": ("typed",),
}
_MODULES = {name: f"quivermq.spark.jobs.{job}" for job, names in _JOBS.items() for name in names}

__all__ = [
    "ArchiveSummary",
    "AuditFinding",
    "AuditSummary",
    "CompactSummary",
    "CompactedTopic",
    "ProgressCallback",
    "RedriveSummary",
    "ReplaySummary",
    "ReportSummary",
    "RunSummary",
    "SinkSummary",
    "archive",
    "audit",
    "compact",
    "redrive",
    "replay",
    "report",
    "run",
    "session",
    "sql",
    "typed",
]


ignore_broken_pipes()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
