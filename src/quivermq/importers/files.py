"""The files of a source: what is in its directories, and small files read whole.

What cannot be read or understood becomes a finding, and the rest is imported all the same.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from quivermq.disk import Disk, File, read_file
from quivermq.errors import StorageFailed
from quivermq.importers.model import Findings

# State is small; what is larger was not written by the queue that it seems to be of.
_STATE_BYTES_MAX = 256 * 1024 * 1024
_BASE = re.compile(r"[0-9]{1,20}")


class Unreadable(ValueError):
    """What a file holds is not whole, or makes no sense. The text says why."""


class SegmentFile(NamedTuple):
    """A file and the offset that its name says it begins with."""

    path: Path
    base: int


class SourceFiles:
    """The disk that a source is on, and the findings that reading it adds to."""

    def __init__(self, disk: Disk, findings: Findings | None = None) -> None:
        self.disk = disk
        self.findings = Findings() if findings is None else findings
        self.report = self.findings.add
        self.report_once = self.findings.add_once

    def quiet(self) -> "SourceFiles":
        """The same, for a look of which nothing is reported."""
        return SourceFiles(self.disk, Findings(0))

    def names(self, path: Path) -> list[str]:
        """The names in a directory; none where it cannot be looked into."""
        try:
            return self.disk.names(path)
        except StorageFailed as error:
            self.report(path, None, f"what is in it cannot be imported: {error}")
            return []

    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory; where nobody can tell, listing the one above reports it."""
        try:
            return self.disk.is_directory(path)
        except StorageFailed:
            return False

    def subdirectories(self, path: Path) -> list[Path]:
        """The directories inside of one; a link to one counts, as operators move them to other disks."""
        return [path / name for name in self.names(path) if self.is_directory(path / name)]

    @contextmanager
    def opened(self, path: Path) -> Iterator[File]:
        """A file, for reading. Raises StorageFailed, also when there is none."""
        try:
            file = self.disk.open(path)
        except FileNotFoundError as error:
            raise StorageFailed(str(error), path=path) from None
        with closing(file):
            yield file

    def first_bytes(self, path: Path, length: int) -> bytes:
        """What a file begins with; nothing where it cannot be read."""
        try:
            with self.opened(path) as file:
                return file.read(0, length)
        except StorageFailed:
            return b""

    def size(self, path: Path) -> int:
        """How large a file is; 0 where it cannot be read."""
        try:
            with self.opened(path) as file:
                return file.size()
        except StorageFailed:
            return 0

    def json_object(self, path: Path, lost: str) -> dict[str, Any] | None:
        """The JSON object that a file holds; None when there is no file, or when it is damaged.

        `lost` says what nobody knows then, as in `retry counts are`.
        """
        try:
            found = parse_json(read_file(self.disk, path, bytes_max=_STATE_BYTES_MAX))
        except FileNotFoundError:
            return None
        except (StorageFailed, ValueError) as error:
            problem = f"it cannot be read, so {lost} not known: {error}"
            self.report(path, getattr(error, "pos", None), problem)
            return None
        if not isinstance(found, dict):
            self.report(path, 0, f"it is not a JSON object, so {lost} not known")
            return None
        return found

    def replay(self, path: Path, apply: Callable[[Any], None], lost: str, skipped: str) -> None:
        """Apply each line of a log of JSON lines, if there is one; of a line that raises ValueError it is
        reported that it was `skipped`."""
        try:
            data = read_file(self.disk, path, bytes_max=_STATE_BYTES_MAX)
        except FileNotFoundError:
            return
        except StorageFailed as error:
            self.report(path, None, f"it cannot be read, so {lost} not known: {error}")
            return
        position = 0
        for line in data.splitlines(keepends=True):
            try:
                if line.strip():
                    apply(parse_json(line))
            except ValueError as error:
                self.report(path, position, f"{skipped}: {error}", length=len(line))
            position += len(line)

    def segments(self, directory: Path, suffix: str) -> list[SegmentFile]:
        """The segments in a directory, in the order of their offsets."""
        return _segments(directory, self.names(directory), suffix)

    def only_segments(self, directory: Path, suffix: str, beside: tuple[str, ...]) -> list[SegmentFile]:
        """The same, reporting what else is there, but for files with an ending of those that lie `beside`,
        and segments that are missing."""
        try:
            names = self.disk.names(directory)
        except StorageFailed as error:
            self.report(directory, None, str(error))
            return []
        segments = _segments(directory, names, suffix)
        known = {segment.path.name for segment in segments}
        for name in names:
            if name not in known and not name.endswith(beside):
                self.report(directory / name, None, "it is not imported", is_damage=False)
        # Of a segment only the index may be left. The queue itself removes the oldest ones, and may have
        # ended before it removed the index.
        bases = {segment.base for segment in segments}
        indexes = {index.base for ending in beside for index in _segments(directory, names, ending)}
        for base in sorted(base for base in indexes - bases if base >= min(bases, default=0)):
            self.report(directory, None, f"the segment that begins with offset {base} is missing")
        return segments

    def headers(self, pairs: Sequence[tuple[bytes, bytes]], path: Path, position: int) -> dict[str, bytes]:
        """The headers of the record there, by name."""
        try:
            return {name.decode(): content for name, content in pairs}
        except UnicodeDecodeError:
            problem = "a name of a header is not UTF-8; what is not is written as \\x…"
            self.report_once(path, position, problem)
            return {name.decode(errors="backslashreplace"): content for name, content in pairs}


def _segments(directory: Path, names: Sequence[str], suffix: str) -> list[SegmentFile]:
    bases = {name: name.removesuffix(suffix) for name in names if name.endswith(suffix)}
    found = [SegmentFile(directory / n, int(base)) for n, base in bases.items() if _BASE.fullmatch(base)]
    return sorted(found, key=lambda segment: segment.base)


def parse_json(data: bytes) -> Any:
    """What JSON in UTF-8 means. Raises ValueError, whatever is wrong with it."""
    try:
        return _decode(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Made once: there are many lines.
_decode = json.JSONDecoder(parse_constant=_refuse).decode


def items_in(given: Any) -> Iterable[tuple[str, Any]]:
    """The names and values of a JSON object; none of anything else."""
    return given.items() if isinstance(given, dict) else ()


def field_of(given: Any, name: str) -> Any:
    """A value of a JSON object; None of anything else."""
    return given.get(name) if isinstance(given, dict) else None


def as_object(given: Any, what: str | None = None) -> dict[str, Any]:
    """A JSON object. Raises Unreadable."""
    if not isinstance(given, dict):
        raise Unreadable(f"{what or repr(given)[:80]} is no JSON object")
    return given


def as_number(given: Any, highest: int, what: str) -> int:
    """A whole number from 0 on. Raises Unreadable."""
    if type(given) is not int or not 0 <= given <= highest:
        raise Unreadable(f"{given!r:.80} is no {what}")
    return given


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def rfc3339_us(text: object) -> int:
    """A moment such as `2026-11-15T19:48:28.546300169Z`; what is finer than a microsecond is cut off.

    Raises ValueError.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a moment")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return (moment - _EPOCH) // _MICROSECOND


def moment_or_none(given: object) -> int | None:
    """The same of a text, or of its bytes; None for anything else."""
    try:
        return rfc3339_us(given.decode() if isinstance(given, bytes) else given)
    except ValueError:
        return None
