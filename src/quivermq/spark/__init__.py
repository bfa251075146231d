"""The queue's data in Spark: a session, the data source `quiver`, and jobs over whole topics.

Importing this imports neither Spark nor pyarrow; using one of the names does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quivermq.spark.execution import Progress
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

# Where each further name is, so that it is imported when somebody asks for it.
_PLACES = {
    "ArchiveSummary": "quivermq.spark.jobs.archive",
    "archive": "quivermq.spark.jobs.archive",
    "AuditFinding": "quivermq.spark.jobs.audit_tasks",
    "AuditSummary": "quivermq.spark.jobs.audit",
    "audit": "quivermq.spark.jobs.audit",
    "CompactSummary": "quivermq.spark.jobs.compact",
    "CompactedTopic": "quivermq.spark.jobs.compact",
    "compact": "quivermq.spark.jobs.compact",
    "RedriveSummary": "quivermq.spark.jobs.redrive",
    "redrive": "quivermq.spark.jobs.redrive",
    "ReplaySummary": "quivermq.spark.jobs.replay",
    "replay": "quivermq.spark.jobs.replay",
    "ReportSummary": "quivermq.spark.jobs.report",
    "report": "quivermq.spark.jobs.report",
    "RunSummary": "quivermq.spark.jobs.run",
    "SinkSummary": "quivermq.spark.jobs.run",
    "run": "quivermq.spark.jobs.run",
    "sql": "quivermq.spark.jobs.sql",
    "typed": "quivermq.spark.jobs.typed",
}

__all__ = [
    "ArchiveSummary",
    "AuditFinding",
    "AuditSummary",
    "CompactSummary",
    "CompactedTopic",
    "Progress",
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
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
