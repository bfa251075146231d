"""Checking a whole store in parallel: every byte, every offset, and that nothing is there twice."""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quivermq.errors import InvalidRequest
from quivermq.model.lanes import Lane
from quivermq.reading.reader import AnyPath, MessageReader, ProgressCallback, QueueReader
from quivermq.reading.rows import Range
from quivermq.spark.execution import cores_of, results_of, spread, translated, watched
from quivermq.spark.jobs.audit_examine import (
    SHARES,
    ArchiveTask,
    Examined,
    Repeat,
    Sequences,
    archived,
    dead_letter_marks,
    dealt,
    examine_archived,
    examine_lane,
    examine_segment,
    id_marks,
    repeated,
    repeats,
)
from quivermq.spark.jobs.audit_tasks import (
    SEVERITIES,
    AuditFinding,
    LaneTask,
    SegmentTask,
    bundled,
    lane_tasks,
    segment_tasks,
    topics_of,
)
from quivermq.spark.jobs.state import job_reader
from quivermq.spark.session import session
from quivermq.spark.subscription import check_named, topic_filter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Clocks are read once when an id is looked up and once when its message is appended.
_WINDOW_SLACK_US = 1_000_000
# What has this many repetitions has more, and a list of all of them helps nobody.
_REPEATS_MAX = 1000
_MARKS = "share long, marks binary"
_REPEATS = "about long, repeat binary"

Task = SegmentTask | LaneTask | ArchiveTask
Examine = Callable[[QueueReader, Any, bool], Examined]


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """What an audit saw."""

    where: str
    is_dry_run: bool
    logs: int = 0
    segments: int = 0
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    late_frames: int = 0
    """Frames that hold a timestamp older than one of an earlier frame: allowed, and worth knowing."""
    seconds: float = 0.0
    findings: tuple[AuditFinding, ...] = field(default=())

    @property
    def is_sound(self) -> bool:
        """Whether there is no finding but warnings."""
        return all(finding.severity != "error" for finding in self.findings)


class _Store(NamedTuple):
    """What there is to look at: each task with what examines it."""

    tasks: list[tuple[Examine, Task]]
    segments: int
    windows_us: dict[str, int]
    findings: list[AuditFinding]
    origins: Mapping[str, str | None]

    @property
    def logs(self) -> int:
        return len({task.log for _, task in self.tasks})


def audit(
    path: AnyPath | None = None,
    server: str | None = None,
    key: str | None = None,
    *,
    topics: Iterable[str] | str | None = None,
    deep: bool = False,
    ignore: Iterable[str] = (),
    spark: "SparkSession | None" = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> AuditSummary:
    """Check every frame of a store, in executors, beside whoever writes to it. Changes nothing.

    Looked at are both checksums of each frame, offsets inside of and between segments, indexes, journals,
    the order of frames, batches of producers, deduplication ids, dead letters that are there twice, and the
    archive. With `deep` the inside of each frame is checked as well, as by `quiver verify`. `topics` are
    names and patterns. What is damaged becomes a finding with its file and offsets, and the rest is looked
    at all the same; kinds of findings in `ignore` are left out. From a broker come frames alone, without
    files. `dry_run` only counts what there is. Raises InvalidRequest, TopicNotFound.
    """
    started = time.monotonic()
    unknown = set(ignore) - set(SEVERITIES)
    if unknown:
        raise InvalidRequest(
            f"{', '.join(sorted(unknown))} is no kind of finding: ignore some of {', '.join(SEVERITIES)}"
        )
    with closing(job_reader(path, server, key)) as reader, translated():
        root = reader.files_root()
        store = _served(reader, topics) if root is None else _files(reader, root, topics)
        check_named(topics, store.origins)
        if dry_run:
            size = sum(task.size_bytes for _, task in store.tasks)
            return AuditSummary(str(reader), True, store.logs, store.segments, bytes=size)
        spark = spark or session()
        bundles = bundled(store.tasks, lambda work: work[1].size_bytes, cores_of(spark))
        with watched(spark, progress, "checking every frame"):
            examined = results_of(spark, bundles, partial(_examine, reader, deep))
        repeated_messages = _find_repeats(spark, reader, store, examined, progress)
    findings = [*store.findings, *(finding for each in examined for finding in each.findings)]
    findings += [*_between(examined), *repeated_messages]
    return AuditSummary(
        where=str(reader),
        is_dry_run=False,
        logs=store.logs,
        segments=sum(each.segments for each in examined),
        frames=sum(each.frames for each in examined),
        messages=sum(each.messages for each in examined),
        bytes=sum(each.bytes for each in examined),
        late_frames=sum(each.late_frames for each in examined),
        seconds=time.monotonic() - started,
        findings=tuple(_sorted(finding for finding in findings if finding.kind not in set(ignore))),
    )


def _files(reader: QueueReader, root: Path, topics: Iterable[str] | str | None) -> _Store:
    """The files of a queue and of its archive, also of topics that nobody can open any more."""
    origins = {name: reader.origin(name) for name in reader.disk.names(root / "topics")}
    is_wanted = topic_filter(topics, origins)
    windows, of_topics = topics_of(reader.disk, root)
    windows = {name: window for name, window in windows.items() if is_wanted(name)}
    files, of_archive = archived(reader, windows)
    segments: list[tuple[Examine, Task]] = [
        (examine_segment, task) for task in segment_tasks(reader.disk, root, is_wanted)
    ]
    tasks = segments + [(examine_archived, task) for task in files]
    return _Store(tasks, len(segments), windows, [*of_topics, *of_archive], origins)


def _served(reader: QueueReader, topics: Iterable[str] | str | None) -> _Store:
    """The lanes of a queue that hands out frames alone."""
    origins = reader.origins()
    wanted = list(filter(topic_filter(topics, origins), origins))
    windows = {topic: reader.settings(topic).dedup_window_ms * 1000 for topic in wanted}
    tasks: list[tuple[Examine, Task]] = [(examine_lane, task) for task in lane_tasks(reader, wanted)]
    return _Store(tasks, 0, windows, [], origins)


def _examine(reader: QueueReader, deep: bool, tasks: list[tuple[Examine, Task]]) -> Iterator[Examined]:
    """In an executor: what each task has seen."""
    with closing(reader):
        for examine, task in tasks:
            yield examine(reader, task, deep)


def _find_repeats(
    spark: "SparkSession",
    reader: MessageReader,
    store: _Store,
    examined: list[Examined],
    progress: ProgressCallback | None,
) -> list[AuditFinding]:
    """What is there twice: a second look, only at what has deduplication ids and at dead letters.

    Marks of one topic and share come together in one task, so that no process has to hold them all.
    """
    parts = _marked_parts(store.windows_us, store.origins, examined)
    if not parts:
        return []
    topics = sorted({part.lane.topic for _, part in parts})
    abouts = [(kind, topic) for topic in topics for kind in ("dedup_id", "dead_letter")]
    windows = [
        max(0, store.windows_us.get(topic, 0) - _WINDOW_SLACK_US) if kind == "dedup_id" else None
        for kind, topic in abouts
    ]
    numbers = {about: number for number, about in enumerate(abouts)}
    bundles = bundled(parts, lambda marked: marked[1].size_bytes, cores_of(spark))
    with watched(spark, progress, "looking for repetitions"):
        marks = spread(spark, bundles, partial(_mark, reader, numbers), _MARKS)
        assert marks is not None, "there are parts"
        shares = marks.repartition("share").sortWithinPartitions("share")
        found = shares.mapInArrow(partial(_compare, windows), _REPEATS).collect()
    return [_finding(abouts[row.about], pickle.loads(row.repeat)) for row in found]


def _marked_parts(
    windows_us: dict[str, int], origins: Mapping[str, str | None], examined: list[Examined]
) -> list[tuple[str, Range]]:
    """The parts of lanes of which something must not be there twice, and what that is."""
    parts = []
    for each in examined:
        if each.lane is None or not each.frames:
            continue
        part = Range(each.lane, each.base_offset, each.end_offset, each.bytes)
        if each.messages_with_ids and windows_us.get(each.lane.topic, 0):
            parts.append(("dedup_id", part))
        if origins.get(each.lane.topic) is not None:
            parts.append(("dead_letter", part))
    return parts


def _mark(
    reader: MessageReader, numbers: dict[tuple[str, str], int], _: int, parts: list[tuple[str, Range]]
) -> "Iterator[pa.RecordBatch]":
    """In an executor: marks, by the number of what they are about and their share."""
    import pyarrow as pa

    with closing(reader):
        for kind, part in parts:
            make = id_marks if kind == "dedup_id" else dead_letter_marks
            first = numbers[kind, part.lane.topic] * SHARES
            for share, blob in dealt(make(reader, part.lane, part.start, part.end)):
                yield pa.record_batch({"share": [first + share], "marks": [blob]})


def _compare(
    windows_us: list[int | None], batches: "Iterable[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """In an executor: which marks of a share, whose rows follow each other, are there twice."""
    import pyarrow as pa

    rows = (row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))
    for share, of_share in groupby(rows, key=itemgetter(0)):
        about = share // SHARES
        found = repeats(map(itemgetter(1), of_share), windows_us[about])[:_REPEATS_MAX]
        if found:
            yield pa.record_batch({"about": [about] * len(found), "repeat": [*map(pickle.dumps, found)]})


def _finding(about: tuple[str, str], repeat: Repeat) -> AuditFinding:
    kind, topic = about
    partition, priority, offset = repeat.first
    second = Lane(topic, repeat.second[0], repeat.second[1])
    if kind == "dedup_id":
        reason = (
            f"has the deduplication id of offset {offset} of partition {partition}, {priority}: too soon,"
            " unless dedup_window_ms, or a window of its own, was shorter then"
        )
    else:
        reason = (
            f"is the same message, given up by the same group, as offset {offset} of partition {partition}:"
            " unless the group was sent back in between, it died twice"
        )
    return AuditFinding(kind, str(second), (repeat.second[2], repeat.second[2] + 1), reason)


def _between(examined: list[Examined]) -> Iterator[AuditFinding]:
    """What can be told only of the parts of a lane together: the order, and batches that come again."""
    parts = [each for each in examined if each.lane is not None and each.frames]
    parts.sort(key=lambda each: (each.lane, each.base_offset))
    for lane, group in groupby(parts, key=lambda each: each.lane):
        run_of_parts, sequences = list(group), Sequences()
        for before, after in pairwise(run_of_parts):
            if after.first_append_us is not None and after.first_append_us < before.last_append_us:
                seconds = (before.last_append_us - after.first_append_us) / 1e6
                reason = f"came in {seconds:.3f} s before the frame in front of it"
                yield AuditFinding(
                    "append_time", str(lane), (after.base_offset, after.base_offset + 1), reason
                )
        for run in (run for part in run_of_parts for run in part.runs):
            if not sequences.add(run):
                offsets = (run.base_offset, run.base_offset + run.messages)
                yield AuditFinding("sequence", str(lane), offsets, repeated(run))


def _sorted(findings: Iterable[AuditFinding]) -> list[AuditFinding]:
    """Errors first, then by place; each once."""
    once = dict.fromkeys(findings)
    return sorted(
        once, key=lambda found: (found.severity != "error", found.where, found.offsets[0], found.kind)
    )
