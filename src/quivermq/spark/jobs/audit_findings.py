"""What an audit may find, and what each kind of finding means."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]

# Kind to what it means for the whole: a warning is told, and loses nothing that is not lost already.
SEVERITIES: dict[str, Severity] = {
    # Bytes that are not the frames they should be, or messages that are missing.
    "damage": "error",
    # A journal or the settings of a topic that cannot be understood.
    "state": "error",
    # A batch of a producer, or of a move between topics, that is there twice.
    "sequence": "error",
    # A message that became a dead letter of one group twice.
    "dead_letter": "error",
    # An archive that does not hold what its manifest says.
    "archive": "error",
    # A deduplication id that is there twice within the window of its topic. The window may have been
    # shorter when they came, and of very many ids a topic forgets the oldest before their time.
    "dedup_id": "warning",
    # A torn write, or one that is under way.
    "tail": "warning",
    # An index that does not fit its log: made anew when it is next needed.
    "index": "warning",
    # Damage of the past, which a repair has set aside.
    "gap": "warning",
    # Frames that came in later and say that they came earlier: somebody has set the clock.
    "append_time": "warning",
    # A directory of a partition that its topic does not have.
    "partition": "warning",
}


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Something that is not as it should be. `where` is a file, with a position in it, or a lane."""

    kind: str
    where: str
    offsets: tuple[int, int | None]
    reason: str
    position: int | None = None

    @property
    def severity(self) -> Severity:
        return SEVERITIES[self.kind]
