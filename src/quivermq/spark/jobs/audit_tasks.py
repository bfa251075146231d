"""What there is to audit, as tasks: the files of a queue, or parts of its lanes where it shows no files."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from quivermq.disk import Disk, file_size
from quivermq.errors import InvalidSettings, NotFound, StorageFailed
from quivermq.log.directory import check_exists, find_logs
from quivermq.log.opening import base_offsets
from quivermq.model.lanes import PRIORITIES, Lane
from quivermq.reading.reader import MessageReader
from quivermq.reading.rows import Range
from quivermq.segment import log_path
from quivermq.spark.source.plan import cut_range
from quivermq.topic.stored import load_topic

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


# A Spark task for less than this costs more than it does.
_BYTES_MIN = 64 * 1024 * 1024
_TASKS_MAX = 256
_BUNDLES_PER_CORE = 4

T = TypeVar("T")


class SegmentTask(NamedTuple):
    """One file of a log. Without a lane it belongs to the state of the queue: a journal, for example."""

    directory: str
    base_offset: int
    next_base: int | None
    size_bytes: int
    lane: Lane | None
    ends_journal: bool
    """Whether it is the last one of a delivery journal, which is then replayed as a whole, too."""

    @property
    def log(self) -> str:
        return self.directory


class LaneTask(NamedTuple):
    """A part of a lane, as frames."""

    lane: Lane
    start: int
    end: int
    size_bytes: int
    may_have_holes: bool
    """Whether messages may have been taken out, so that offsets are missing and nothing is wrong."""

    @property
    def log(self) -> str:
        return str(self.lane)


def topics_of(disk: Disk, path: Path) -> tuple[dict[str, int], list[AuditFinding]]:
    """The topics of a directory, and how long each remembers deduplication ids, in microseconds.

    One that cannot be understood is a finding.
    """
    windows, findings = dict[str, int](), list[AuditFinding]()
    check_exists(disk, path)
    for name in disk.names(path / "topics"):
        directory = path / "topics" / name
        try:
            stored = load_topic(disk, directory)
        except (StorageFailed, InvalidSettings) as error:
            findings.append(AuditFinding("state", str(directory / "topic.json"), (0, None), str(error)))
            continue
        if stored is None or stored.deleted:
            continue
        windows[name] = stored.settings.dedup_window_ms * 1000
        for found in disk.names(directory):
            number = found.removeprefix("p")
            if (
                found != number
                and number.isascii()
                and number.isdecimal()
                and int(number) >= stored.settings.partitions
            ):
                reason = f"the topic has {stored.settings.partitions} partitions, so nobody reads this one"
                findings.append(AuditFinding("partition", str(directory / found), (0, None), reason))
    return windows, findings


def segment_tasks(disk: Disk, path: Path, is_wanted: Callable[[str], bool]) -> Iterator[SegmentTask]:
    """Every file of every log of a directory, but for those of topics that are not wanted."""
    for directory in find_logs(disk, path):
        relative = directory.relative_to(path)
        topic, lane = place_of_log(relative)
        if topic is not None and not is_wanted(topic):
            continue
        bases = base_offsets(disk, directory)
        for base, next_base in zip(bases, [*bases[1:], None], strict=True):
            try:
                size = file_size(disk, log_path(directory, base))
            except FileNotFoundError:
                continue  # Retention was faster.
            except StorageFailed:
                size = 0  # The task will tell.
            ends_journal = relative.parts[0] == "groups" and next_base is None
            yield SegmentTask(str(directory), base, next_base, size, lane, ends_journal)


def place_of_log(relative: Path) -> tuple[str | None, Lane | None]:
    """Which topic a log is about, and which of its lanes it is, if it is one."""
    match relative.parts:
        case ("topics", topic, partition, priority) if priority in PRIORITIES:
            return topic, Lane(topic, int(partition.removeprefix("p")), priority)
        case ("topics", topic, *_):
            return topic, None
        case ("groups", _, topic, *_):
            return topic, None
    return None, None


def lane_tasks(reader: MessageReader, topics: Iterable[str]) -> Iterator[LaneTask]:
    """Parts of lanes, each of about the same size."""
    for topic in topics:
        try:
            settings, lanes = reader.settings(topic), reader.lanes(topic)
        except NotFound:
            continue  # Somebody has just deleted it.
        may_have_holes = settings.backlog_policy == "drop_oldest" or reader.origin(topic) is not None
        for lane, bounds in lanes.items():
            whole = Range(lane, bounds.start, bounds.end, bounds.bytes)
            if whole.start < whole.end:
                for part in cut_range(whole, whole.size_bytes // _BYTES_MIN):
                    yield LaneTask(lane, part.start, part.end, part.size_bytes, may_have_holes)


def bundled(tasks: Iterable[T], size_of: Callable[[T], int], cores: int = 1) -> list[list[T]]:
    """Tasks together until they are worth a task of Spark's, the largest first; some for each core."""
    ordered = sorted(tasks, key=size_of, reverse=True)
    # Each core gets several, so that one that is slow does not keep the others waiting.
    enough_bytes = max(_BYTES_MIN, sum(map(size_of, ordered)) // (_BUNDLES_PER_CORE * cores))
    bundles: list[list[T]] = []
    open_bytes = enough_bytes
    for task in ordered:
        if open_bytes >= enough_bytes or len(bundles[-1]) >= _TASKS_MAX:
            bundles.append([])
            open_bytes = 0
        bundles[-1].append(task)
        open_bytes += size_of(task)
    return bundles
