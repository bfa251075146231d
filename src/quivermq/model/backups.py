"""What is said of a backup, and of a queue that was restored from one."""

from dataclasses import dataclass

from quivermq.model.stats import Report


@dataclass(frozen=True, slots=True)
class Backup:
    """A queue as it was at one moment, as it is stored in a target."""

    number: int
    """The backups of a target are numbered in order; numbers of those that came to nothing are left out."""
    taken_us: int
    """The moment, in unix microseconds."""
    files: int
    bytes: int
    """How large the queue was."""
    new_bytes: int
    """How much of it the target did not have yet."""
    archive: str | None = None
    """The archive of the queue, when it lies elsewhere: then it is not in the backup."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A queue that was made from a backup."""

    backup: Backup
    topics: int
    report: Report
    """What `verify` says of it."""

    @property
    def is_sound(self) -> bool:
        """Whether every byte that should hold a message does."""
        return self.report.is_sound
