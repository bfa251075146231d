"""An export from beginning to end."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from quivermq.disk import OutputDisk
from quivermq.exporting.formats import Format, Writer, format_of, writer_of
from quivermq.exporting.output import FileOutput, Output, StreamOutput
from quivermq.exporting.ranges import Bound, Part, Wish
from quivermq.spark.archived_place import with_archive
from quivermq.spark.execution import Progress, no_progress
from quivermq.spark.place import Place, place_of

_NO_ARCHIVE = "false"


@dataclass(frozen=True, slots=True)
class ExportedLane:
    """What was exported of one priority of a partition: messages with offsets in [start, end)."""

    partition: int
    priority: str
    start: int
    end: int
    messages: int


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export did."""

    topic: str
    format: Format
    output: str | None
    """The file; None for a stream."""
    messages: int
    bytes: int
    seconds: float
    lanes: tuple[ExportedLane, ...]


def export(
    topic: str,
    output: "str | os.PathLike[str] | BinaryIO",
    *,
    path: "str | os.PathLike[str] | None" = None,
    server: str | None = None,
    key: str | None = None,
    start: Bound = None,
    end: Bound = None,
    partition: int | None = None,
    priority: str | None = None,
    format: "Format | str | None" = None,  # noqa: A002 - It is what it is called everywhere.
    archive: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> ExportSummary:
    """Write a range of a topic to a file, which is there once all of it is, or to a binary stream.

    `path` is a data directory, which may be in use, `server` a broker, and `key` the key for it. `start`
    and `end` are offsets, or moments with a time zone; the end is left out. Without `format`, the name of
    the file decides. Archived messages are exported as well unless `archive` is false. Messages come by
    partition, priority and offset.

    Raises TopicNotFound, InvalidRequest, Conflict for a file that is there unless `overwrite`, and whatever
    reading raises; then there is no file.
    """
    wish = Wish(start, end, partition, priority)
    begun = time.monotonic()
    place = with_archive(
        place_of(None if path is None else os.fspath(path), server, key), None if archive else _NO_ARCHIVE
    )
    try:
        parts = wish.parts(place, topic)
        name = os.fspath(output) if isinstance(output, str | os.PathLike) else None
        chosen = format_of(format, name)
        with _opened(output, overwrite=overwrite) as target:
            lanes = _write(place, parts, wish, writer_of(chosen, target), progress)
    finally:
        place.close()
    return ExportSummary(
        topic=topic,
        format=chosen,
        output=name,
        messages=sum(lane.messages for lane in lanes),
        bytes=target.written,
        seconds=time.monotonic() - begun,
        lanes=tuple(lanes),
    )


@contextmanager
def _opened(output: "str | os.PathLike[str] | BinaryIO", *, overwrite: bool) -> Iterator[Output]:
    """Where to write to: finished at the end or, after an error, gone."""
    if isinstance(output, str | os.PathLike):
        target: Output = FileOutput(OutputDisk(), Path(output).absolute(), overwrite=overwrite)
    else:
        target = StreamOutput(output)
    try:
        yield target
        target.finish()
    except BaseException:
        target.abandon()
        raise


def _write(
    place: Place, parts: list[Part], wish: Wish, writer: Writer, progress: Progress | None
) -> list[ExportedLane]:
    tally = _Tally(sum(part.end - part.start for part in parts), progress)
    lanes = []
    for part in parts:
        writer.write(place, part, wish.times, tally.add)
        lanes.append(
            ExportedLane(
                part.lane.partition, part.lane.priority, part.start, part.end, tally.next_part(part)
            )
        )
    writer.close()
    return lanes


class _Tally:
    """Counts messages, and tells of all offsets how many are behind."""

    def __init__(self, offsets: int, progress: Progress | None) -> None:
        self._offsets = offsets
        self._progress = progress or no_progress
        self._behind = 0
        self._messages = 0

    def add(self, messages: int) -> None:
        self._messages += messages
        self._progress("messages", self._behind + self._messages, self._offsets)

    def next_part(self, part: Part) -> int:
        """How many messages the part had that is done; not every offset has one."""
        messages, self._messages = self._messages, 0
        self._behind += part.end - part.start
        return messages
