"""What an import did, in numbers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quivermq.importers.model import Finding, Findings


@dataclass(slots=True)
class TopicSummary:
    """One topic of the source, and what became of it. A dry run tells what would."""

    source_topic: str
    topic: str
    imported: int = 0
    """Messages that were added, the scheduled ones among them."""
    scheduled: int = 0
    dead_letters: int = 0
    already_there: int = 0
    """Messages and dead letters that an earlier import added."""
    consumed: int = 0
    """Messages and dead letters that were left out because the source is done with them."""
    expired: int = 0
    """Messages that were left out because their time is over."""
    unstorable: int = 0
    """Messages that the topic does not let in."""
    retried: int = 0
    """Of those that were added, how many go on counting attempts."""
    groups: list[str] = field(default_factory=list)
    """The groups that go on where they were."""
    groups_left: list[str] = field(default_factory=list)
    """The groups that have been elsewhere here, and were left alone."""
    dedup_ids: int = 0
    passed_over: int = 0
    """Of those that count as consumed, how many the source may never have delivered."""
    settings: dict[str, object] = field(default_factory=dict)
    """The settings of the source that a topic which is new here got."""

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class ImportSummary:
    """All of it."""

    kind: str
    path: Path
    is_dry: bool
    topics: list[TopicSummary] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """The first of them."""
    findings_count: int = 0
    damages: int = 0
    """How many findings are about something that was not imported."""

    def take_findings(self, findings: Findings) -> None:
        self.findings, self.findings_count = list(findings.kept), findings.count
        self.damages = findings.damages

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "dry_run": self.is_dry,
            "topics": [topic.as_json() for topic in self.topics],
            "findings": [{**each._asdict(), "path": str(each.path)} for each in self.findings],
            "findings_count": self.findings_count,
            "damages": self.damages,
        }
