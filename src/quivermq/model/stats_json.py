"""Figures, reports, producers and what is taken over from another queue, as JSON has them.

`..._json` makes a document of a value, and `..._of` the value of a document, as in `model.json`.
Figures have `as_dict`.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.backups import Backup
from quivermq.model.json import Document
from quivermq.model.messages import FirstFrame, ProducerState
from quivermq.model.stats import (
    Alert,
    Compacted,
    EngineStats,
    LogFinding,
    QueueStats,
    Report,
    TopicInfo,
    TopicStats,
)
from quivermq.model.topic_settings import TopicSettings

_QUEUE_FIELDS = tuple(each.name for each in fields(QueueStats))


def queue_stats_of(document: Mapping[str, Any]) -> QueueStats:
    """How far a group has come."""
    return QueueStats(**{name: document[name] for name in _QUEUE_FIELDS})


def topic_stats_json(stats: TopicStats) -> Document:
    """What there is in a topic, which HTTP and the command line call by its `name`."""
    document = stats.as_dict()
    return {"name": document.pop("topic"), **document}


def topic_stats_of(name: str, document: Mapping[str, Any]) -> TopicStats:
    """What there is in a topic."""
    return TopicStats(
        topic=name,
        partitions=document["partitions"],
        messages=document["messages"],
        bytes=document["bytes"],
        delayed=document["delayed"],
        dead_letters=document["dead_letters"],
        dead_letters_of=document["dead_letters_of"],
        groups={group: queue_stats_of(stats) for group, stats in document["groups"].items()},
    )


def engine_stats_of(document: Mapping[str, Any]) -> EngineStats:
    """What there is in all topics."""
    topics = {name: topic_stats_of(name, topic) for name, topic in sorted(document["topics"].items())}
    alerts = [Alert(**alert) for alert in document["alerts"]]
    return EngineStats(topics, document["messages"], document["bytes"], document["free_bytes"], alerts)


def topic_info_of(document: Mapping[str, Any]) -> TopicInfo:
    """A topic and how it is set."""
    settings = TopicSettings.from_json(document["settings"])
    return TopicInfo(document["name"], settings.partitions, settings, document["dead_letters_of"])


def compacted_of(document: Mapping[str, Any]) -> Compacted:
    """What was removed."""
    return Compacted(document["segments"], document["messages"], document["bytes"])


def backup_of(document: Mapping[str, Any]) -> Backup:
    """A backup. What a later release says besides is left out."""
    return Backup(**{field.name: document[field.name] for field in fields(Backup)})


def report_json(report: Report, root: Path) -> Document:
    """What a verification saw, with files named by where they lie below `root`."""
    findings = [
        {**asdict(finding), "path": str(relative_path(finding.path, root))} for finding in report.findings
    ]
    return {**asdict(report), "findings": findings, "is_sound": report.is_sound}


def report_of(document: Mapping[str, Any]) -> Report:
    """What a verification saw."""
    names = ("logs", "segments", "frames", "messages", "bytes")
    findings = list(map(_finding_of, document["findings"]))
    return Report(**{name: document[name] for name in names}, findings=findings)


def _finding_of(document: Mapping[str, Any]) -> LogFinding:
    return LogFinding(**{**document, "path": Path(document["path"]), "offsets": tuple(document["offsets"])})


def relative_path(path: Path, root: Path) -> Path:
    """A file's path below a directory, which everybody who asked knows already."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def producer_state_of(document: Mapping[str, Any]) -> ProducerState:
    """What a producer is told that begins anew."""
    batches = [FirstFrame(**each) for each in document["batches"]]
    return ProducerState(document["epoch"], batches, document["known_since_us"])


def progress_json(progress: Progress) -> Document:
    """How far a group came in another queue."""
    tried = [{"start": run.start, "end": run.end, "attempts": run.attempts} for run in progress.tried]
    return {"tried": tried} | ({} if progress.position is None else {"position": progress.position})


def adopted_id_json(adopted: AdoptedId) -> Document:
    """A deduplication id that another queue knew."""
    return {name: value for name, value in asdict(adopted).items() if value is not None}
