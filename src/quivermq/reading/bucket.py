"""A queue in a bucket, read there, beside its owner: no claim, no broker, no copy on this machine.

Whatever is asked first looks what is committed by now. Segments that are objects are read by range.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quivermq.errors import DamagedChunk, Denied, InvalidRequest
from quivermq.log import LogFinding, Report
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.reader import BytesCallback, fingerprint
from quivermq.settings import BucketSettings, check_bucket, load_settings
from quivermq.shared.beside import stored_disk
from quivermq.shared.survey import needed_bytes, survey

if TYPE_CHECKING:
    from quivermq.queue.connection import Connection

_PREFIX = "QUIVER_BUCKET__"


class BucketReader(DirectoryReader):
    """The topics of a queue in a bucket. Credentials are those of the environment of whoever reads."""

    _can_map = False

    def __init__(self, url: str, settings: BucketSettings | None = None) -> None:
        self.url = check_bucket(url)
        self._settings = bucket_settings(settings)
        self._beside = stored_disk(self.url, self._settings)
        super().__init__(str(self._beside.root))
        self.disk = self._beside

    @classmethod
    def at(cls, url: str, endpoint: str | None = None, region: str | None = None) -> "BucketReader":
        """The reader of a URL; what is not given of how to reach it, the environment says."""
        known = bucket_settings()
        given = replace(known, endpoint=endpoint or known.endpoint, region=region or known.region)
        return cls(url, given)

    def _arguments(self) -> tuple[Any, ...]:
        return self.url, self._settings

    def __str__(self) -> str:
        return self.url

    def options(self) -> dict[str, str]:
        given = {"endpoint": self._settings.endpoint, "region": self._settings.region}
        return {"path": self.url} | {name: value for name, value in given.items() if value}

    def _look(self) -> None:
        self._beside.refresh()

    def open_queue(self, *, if_locked: str = "", is_patient: bool = False) -> "Connection":  # noqa: ARG002
        raise self._owned()

    def staging_root(self) -> Path:
        raise self._owned()

    def _owned(self) -> InvalidRequest:
        return InvalidRequest(
            f"{self.url} is only read here: to open it would take it from its owner; serve it with"
            " `quiver serve --data URL`, and use that broker with `server` (--server)"
        )

    def state_root(self) -> Path:
        given = os.environ.get("XDG_STATE_HOME")
        home = Path(given) if given else Path.home() / ".local" / "state"
        return home / "quiver" / "pipelines" / fingerprint(self.url)

    def files_root(self) -> Path:
        self._look()
        return self.path

    def new_archive_directory(self) -> Path:
        raise InvalidRequest(
            f"say where the archive of {self.url} goes: a directory that every executor can reach"
        )

    def use_archive(self, directory: Path) -> None:
        raise Denied(f"{self.url} is only read here: tell its owner, with use_archive({str(directory)!r})")

    def close(self) -> None:
        super().close()
        self._beside.close()

    def verify(self, progress: BytesCallback | None = None) -> Report:
        """Check every object of the bucket, then every byte of every log in it. Claims nothing."""
        total, done = 0 if progress is None else needed_bytes(self._beside.chunks), 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None:
                progress(min(done, total), total)

        found = survey(self._beside.chunks, advance)
        try:
            self._look()
        except DamagedChunk as error:
            if all(finding.kind != "damage" for finding in found):
                # Each object is whole, and they do not fit together.
                found.append(LogFinding("damage", error.path, 0, 0, (0, None), str(error)))
            if not self._beside.number:
                return Report(findings=found)
        report = super().verify()
        report.findings = [*found, *report.findings]
        return report


def bucket_settings(settings: BucketSettings | None = None) -> BucketSettings:
    """Those given, or those of the environment. Raises InvalidSettings."""
    if settings is not None:
        return settings
    given = {name: text for name, text in os.environ.items() if name.startswith(_PREFIX)}
    return load_settings(environ=given).settings.bucket
