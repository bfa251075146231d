"""Checking every byte that backups name, without restoring any."""

from dataclasses import dataclass, field

from quivermq.backup.copying import BytesProgress
from quivermq.backup.sets import BackupManifest, BackupSet
from quivermq.errors import DamagedChunk, NotFound, QuiverError, UnsupportedChunk
from quivermq.model.backups import Backup
from quivermq.shared.checkpoint import Part


@dataclass(slots=True)
class BackupReport:
    """What was found: of each backup by its number, what is wrong with it, or nothing."""

    backups: dict[int, Backup | None] = field(default_factory=dict)
    objects: int = 0
    bytes: int = 0
    damage: dict[int, str] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether every backup can be restored."""
        return not self.damage


def check_backups(
    target: BackupSet, number: int | None = None, *, progress: BytesProgress | None = None
) -> BackupReport:
    """Read all that the backups of a target name, or that one of them does, once.

    Raises NotFound when there is none, and what keeps the store from answering; damage is reported.
    """
    report = BackupReport()
    parts: dict[Part, list[int]] = {}
    for each, entry in target.entries():
        if number is None or each == number:
            _note(target, each, entry, report, parts)
    if not report.backups:
        raise NotFound(f"{target.url} has no backup{'' if number is None else f' {number}'}")
    total, done = sum(part.size for part in parts), 0
    for part, numbers in parts.items():
        try:
            target.part(part)
        except DamagedChunk as error:
            for each in numbers:
                report.damage.setdefault(each, str(error))
        report.objects += 1
        report.bytes += part.size
        done += part.size
        if progress is not None:
            progress(done, total)
    return report


def _note(
    target: BackupSet,
    number: int,
    entry: BackupManifest | QuiverError,
    report: BackupReport,
    parts: dict[Part, list[int]],
) -> None:
    """Note the parts that a backup names, and what shows by its lists alone."""
    report.backups[number] = None
    if isinstance(entry, QuiverError):
        report.damage[number] = str(entry)
        return
    report.backups[number] = entry.backup
    try:
        for listed in entry.shards.values():
            for file in target.files(listed).files:
                for part in file.parts:
                    parts.setdefault(part, []).append(number)
    except (DamagedChunk, UnsupportedChunk) as error:
        report.damage[number] = str(error)
