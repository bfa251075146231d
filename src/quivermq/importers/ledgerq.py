"""LedgerQ: a directory is one queue. Its dead letters are a queue of their own, in one beside it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

from quivermq.disk import Disk, read_file
from quivermq.errors import InvalidRequest, StorageFailed
from quivermq.importers.files import (
    file_bytes,
    is_directory,
    json_object,
    names_in,
    rfc3339_us,
    subdirectories,
)
from quivermq.importers.ledger import RangeSet
from quivermq.importers.ledgerq_segments import (
    COMPRESSED,
    DATA,
    PRIORITY,
    Entry,
    UnreadableEntry,
    entries,
    gunzip,
    has_flag,
    is_blank,
    is_index,
    is_segment,
    looks_compressed,
    marks_of,
    value_of,
)
from quivermq.importers.model import Death, Findings, Item, Level, SeenId, SourceGroup, witness

METADATA = "metadata.dat"
RETRIES = ".retry_state.json"
DEDUP = ".dedup_state.json"

_METADATA = Struct("<IQQI")
_VERSION = 1
_ATTEMPTS_MAX = 2**31 - 1
_HASH = re.compile(r"[0-9a-f]{64}")


class Metadata(NamedTuple):
    """Ids before `read_id` are consumed; the next message gets `next_id`. None where nobody knows."""

    read_id: int = 1
    next_id: int | None = None


class Failure(NamedTuple):
    """How often a message was given back, and why the last time."""

    attempts: int
    reason: str | None


def load_metadata(disk: Disk, directory: Path, findings: Findings) -> Metadata:
    """How far the queue was read. What cannot be read is told, and then nothing counts as consumed."""
    path = directory / METADATA
    try:
        data = read_file(disk, path, bytes_max=_METADATA.size)
        problem = _metadata_problem(data)
    except FileNotFoundError:
        problem = "it is not there"
    except StorageFailed as error:
        problem = str(error)
    if problem is not None:
        findings.add(
            path, None, f"{problem}: nobody knows what was consumed, so nothing counts as consumed"
        )
        return Metadata()
    _, next_id, read_id, _ = _METADATA.unpack(data)
    return Metadata(read_id, next_id)


def _metadata_problem(data: bytes) -> str | None:
    if len(data) != _METADATA.size:
        return f"it has {len(data)} bytes instead of {_METADATA.size}"
    version, next_id, read_id, _ = _METADATA.unpack(data)
    if version != _VERSION:
        return f"its version {version} is not known"
    if not 1 <= read_id <= next_id:
        return f"the read position {read_id} does not go with the next id {next_id}"
    return None


def load_failures(disk: Disk, directory: Path, findings: Findings) -> dict[int, Failure]:
    """By the id of a message, how often it failed."""
    path = directory / RETRIES
    failures: dict[int, Failure] = {}
    for entry in _entries(disk, path, findings, "retry counts are"):
        number, count, reason = entry.get("msg_id"), entry.get("retry_count"), entry.get("failure_reason")
        if not _is_number(number) or not _is_number(count) or not isinstance(reason, str | None):
            findings.add(path, None, f"an entry of it makes no sense: {_shown(entry)}")
            continue
        failures[number] = Failure(min(count, _ATTEMPTS_MAX), reason or None)
    return failures


def load_seen_ids(disk: Disk, directory: Path, findings: Findings) -> list[SeenId]:
    """The deduplication ids, of which LedgerQ keeps only the hash."""
    path = directory / DEDUP
    seen: list[SeenId] = []
    for entry in _entries(disk, path, findings, "deduplication ids are"):
        hashed, number, expires_at_ns = (
            entry.get("dedup_id"),
            entry.get("message_id"),
            entry.get("expires_at"),
        )
        is_hash = isinstance(hashed, str) and _HASH.fullmatch(hashed)
        if not is_hash or not _is_number(number) or not _is_number(expires_at_ns):
            findings.add(path, None, f"an entry of it makes no sense: {_shown(entry)}")
            continue
        seen.append(SeenId(f"sha256:{hashed}", expires_at_ns // 1000, number))
    return seen


def _entries(disk: Disk, path: Path, findings: Findings, lost: str) -> Iterator[dict[str, Any]]:
    told = json_object(disk, path, findings, lost)
    if told is None:
        return
    entries = told.get("entries")
    if told.get("version") != _VERSION or not isinstance(entries, list | None):
        findings.add(path, 0, f"it is not of version {_VERSION}, so {lost} not known")
        return
    for entry in entries or ():
        yield entry if isinstance(entry, dict) else {"": entry}


def _is_number(told: object) -> TypeGuard[int]:
    return isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 2**64


def _shown(entry: dict[str, Any]) -> str:
    text = repr(entry)
    return text if len(text) <= 200 else text[:200] + "…"


_SEGMENT = re.compile(r"[0-9]{20}\.log")
_GRAVE = re.compile(r"dlq|dead", re.IGNORECASE)
INDEX = re.compile(r"[0-9]{20}\.idx")
_LEVELS: dict[int, Level] = {0: "low", 1: "normal", 2: "high"}
_ORIGINAL_ID = "dlq.original_msg_id"
_STORY = frozenset((_ORIGINAL_ID, "dlq.retry_count", "dlq.failure_reason", "dlq.last_failure"))
_NUMBER = re.compile(rb"[0-9]{1,19}")


class Original(NamedTuple):
    """What the queue still has of a message that was given up."""

    timestamp_us: int
    level: Level
    expires_at_us: int | None
    is_compressed: bool


class _PassedOver:
    """Counts what LedgerQ may have passed over: it takes the highest priority first, and what lies before
    the one it took counts as consumed, whether it was delivered or not."""

    def __init__(self) -> None:
        self.count = 0
        self._low = self._normal = 0

    def note(self, level: Level) -> None:
        """The next message before the read position."""
        if level == "low":
            self._low += 1
            return
        self.count += self._low
        self._low = 0
        if level == "normal":
            self._normal += 1
        else:
            self.count += self._normal
            self._normal = 0


class LedgerTopic:
    """A queue directory, and those with its dead letters. One that holds nothing else is its own."""

    partitions = 1
    groups: Sequence[SourceGroup] = ()
    settings: Mapping[str, object] = MappingProxyType({})

    def __init__(self, disk: Disk, path: Path, graves: list[Path], findings: Findings) -> None:
        self.name = path.name
        self._disk = disk
        self._path = path
        self._graves = graves
        self._findings = findings
        self.passed_over = 0

    @property
    def witnesses(self) -> list[str]:
        return [witness(*mark) for path in self._segments for mark in marks_of(self._disk, path)]

    @property
    def size_bytes(self) -> int:
        return sum(file_bytes(self._disk, path) for path in self._segments)

    @property
    def seen_ids(self) -> list[SeenId]:
        return load_seen_ids(self._disk, self._path, self._findings)

    @property
    def _segments(self) -> list[Path]:
        directories = {self._path, *self._graves}
        return [path for queue in sorted(directories) for _, path in segment_paths(self._disk, queue)]

    def items(self) -> Iterator[Item]:
        """The messages by segment; a queue that never used priorities has only normal ones."""
        if self._path in self._graves:
            return
        failures = load_failures(self._disk, self._path, self._findings)
        has_levels = self._has_levels()
        given_back = 0
        passed = _PassedOver()
        for item, entry in self._stored(self._path):
            item.level = _level(entry, has_levels)
            if item.is_consumed:
                passed.note(item.level)
            if failure := failures.get(entry.id):
                item.attempts, item.reason = failure
                given_back += item.is_consumed
            yield item
        self.passed_over = passed.count
        if passed.count:
            problem = (
                "messages before the read position, behind which one of a higher priority was taken:"
                f" {passed.count}. LedgerQ moves on when it takes that one, so they may never have been"
                " delivered; they count as consumed"
            )
            self._findings.add(self._path / METADATA, None, problem, is_damage=False)
        if given_back:
            problem = (
                f"messages that were given back and lie before the read position: {given_back}."
                " LedgerQ hands them out no more, so they count as consumed"
            )
            self._findings.add(self._path / METADATA, None, problem, is_damage=False)

    def dead_letters(self) -> Iterator[Item]:
        for path in self._graves:
            # They carry their own ids, which begin with 1 in each directory.
            base = 0 if len(self._graves) == 1 else (int(witness(path.name), 16) % 2**63) << 64
            originals = {} if path == self._path else self._originals(path)
            for item, entry in self._stored(path):
                item.identity += base
                yield self._dead_letter(item, entry, originals, path)

    def _stored(self, directory: Path) -> Iterator[tuple[Item, Entry]]:
        """Every message of a directory, with the entry it was."""
        metadata = load_metadata(self._disk, directory, self._findings)
        known = RangeSet()
        last_id = 0
        told = self._findings.told
        self._tell_orphans(directory)
        for base, path in segment_paths(self._disk, directory):
            for entry in entries(self._disk, path, self._findings):
                if 0 < last_id < entry.id - 1 and told == self._findings.told:
                    # Nothing damaged was in between, of which they may have been.
                    problem = f"{_ids(last_id + 1, entry.id - 1)} missing in front of this place"
                    self._findings.add(path, entry.position, problem, is_damage=False)
                last_id, told = max(last_id, entry.id), self._findings.told
                if entry.type != DATA:
                    continue
                try:
                    value = value_of(entry)
                except UnreadableEntry as error:
                    self._findings.add(path, entry.position, str(error), length=entry.end - entry.position)
                    continue
                identity = entry.id
                if identity in known:
                    problem = f"entry {entry.id} is there a second time: it is taken as another message"
                    self._findings.add(path, entry.position, problem, is_damage=False)
                    identity = ((base + 1) % 2**63) << 64 | entry.position
                known.add(entry.id)
                item = Item(
                    identity=identity,
                    id=str(entry.id),
                    value=value,
                    headers=entry.headers or None,
                    timestamp_us=entry.timestamp_ns // 1000,
                    expires_at_us=_expiry_us(entry),
                    is_consumed=entry.id < metadata.read_id,
                    size_bytes=entry.end - entry.position,
                )
                yield item, entry
        # Where nothing is left, the queue itself may have removed what was consumed.
        first = last_id + 1 if last_id else metadata.read_id
        if metadata.next_id is not None and metadata.next_id > first:
            missing = _ids(first, metadata.next_id - 1)
            problem = f"{missing} not in the log, though given out"
            self._findings.add(directory / METADATA, None, problem, is_damage=False)

    def _tell_orphans(self, directory: Path) -> None:
        """Tell of segments of which only the index is left, but for those that the queue itself removed:
        they are the oldest, and their index went last."""
        segments = {base for base, _ in segment_paths(self._disk, directory)}
        indexes = [int(n[:-4]) for n in names_in(self._disk, directory) if INDEX.fullmatch(n)]
        for base in sorted(base for base in indexes if base not in segments):
            if segments and base > min(segments):
                self._findings.add(directory, None, f"the segment {base:020}.log is missing")

    def _has_levels(self) -> bool:
        """Whether the queue uses priorities. Low is what an entry has that says nothing."""
        paths = [path for _, path in segment_paths(self._disk, self._path)]
        return any(has_flag(self._disk, path, PRIORITY) for path in paths)

    def _originals(self, grave: Path) -> dict[int, Original]:
        """What the queue itself has of its dead letters, by id."""
        wanted = {
            number
            for _, path in segment_paths(self._disk, grave)
            for entry in entries(self._disk, path, Findings(0))
            if (number := _number(entry.headers.get(_ORIGINAL_ID))) is not None
        }
        has_levels = self._has_levels()
        return {
            entry.id: Original(
                entry.timestamp_ns // 1000,
                _level(entry, has_levels),
                _expiry_us(entry),
                bool(entry.flags & COMPRESSED),
            )
            for _, path in (segment_paths(self._disk, self._path) if wanted else ())
            for entry in entries(self._disk, path, Findings(0))
            if entry.type == DATA and entry.id in wanted
        }

    def _dead_letter(self, item: Item, entry: Entry, originals: dict[int, Original], path: Path) -> Item:
        told = entry.headers
        number = _number(told.get(_ORIGINAL_ID))
        original = None if number is None else originals.get(number)
        count = _number(told.get("dlq.retry_count"))
        item.dead = Death(
            original_id=None if number is None else str(number),
            offset=number,
            attempts=None if count is None else min(count, _ATTEMPTS_MAX),
            reason=told.get("dlq.failure_reason", b"").decode(errors="replace") or None,
            time_us=_moment_us(told.get("dlq.last_failure")) or item.timestamp_us,
        )
        item.headers = {name: value for name, value in told.items() if name not in _STORY} or None
        if original is not None:
            item.timestamp_us, item.level = original.timestamp_us, original.level
            item.expires_at_us = original.expires_at_us
        if (original is None or original.is_compressed) and looks_compressed(item.value):
            self._decompress(item, entry, path, is_certain=original is not None)
        return item

    def _decompress(self, item: Item, entry: Entry, path: Path, *, is_certain: bool) -> None:
        """Undo what the move to the dead letters forgot to mention."""
        try:
            item.value = gunzip(item.value)
        except UnreadableEntry as error:
            if is_certain:
                problem = f"dead letter {entry.id} was compressed and stays so: {error}"
                self._findings.add(path, entry.position, problem)
            return
        if not is_certain:
            problem = (
                f"dead letter {entry.id} is gzip, as those are that were compressed: it was decompressed"
            )
            self._findings.add(path, entry.position, problem, is_damage=False)


def segment_paths(disk: Disk, directory: Path) -> list[tuple[int, Path]]:
    """The segments of a queue in order, each with the number in its name."""
    names = [name for name in names_in(disk, directory) if _SEGMENT.fullmatch(name)]
    return [(int(name.removesuffix(".log")), directory / name) for name in sorted(names)]


def holds_dead_letters(disk: Disk, directory: Path) -> bool:
    """Whether the first message there tells of its end. Where there is none, the name has to tell."""
    for _, path in segment_paths(disk, directory):
        for entry in entries(disk, path, Findings(0)):
            if entry.type == DATA:
                return _ORIGINAL_ID in entry.headers
    return sounds_dead(directory)


def sounds_dead(directory: Path) -> bool:
    """Whether a directory is called as if it were for dead letters."""
    return bool(_GRAVE.search(directory.name))


def _ids(first: int, last: int) -> str:
    """Ids for a sentence."""
    return f"the id {first} is" if first == last else f"the ids {first} to {last} are"


def _level(entry: Entry, has_levels: bool) -> Level:
    return _LEVELS.get(entry.priority, "high") if has_levels else "normal"


def _expiry_us(entry: Entry) -> int | None:
    return None if entry.expires_at_ns is None else entry.expires_at_ns // 1000


def _number(told: bytes | None) -> int | None:
    return int(told) if told is not None and _NUMBER.fullmatch(told) else None


def _moment_us(told: bytes | None) -> int | None:
    try:
        return None if told is None else rfc3339_us(told.decode())
    except ValueError:
        return None


KIND = "ledgerq"

# No other queue has files of these names.
_STATE = {METADATA, RETRIES, DEDUP}
_OTHER_INDEX = (".index", ".timeindex")


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory is a LedgerQ queue, or holds some."""
    return _is_queue(disk, path) or any(_is_queue(disk, below) for below in subdirectories(disk, path))


def open_source(path: Path, disk: Disk) -> "LedgerSource":
    """A queue by its own directory, or all queues of a directory. Raises InvalidRequest."""
    if _is_queue(disk, path):
        return LedgerSource(path, disk, _topics_of_one(path, disk), has_names=False)
    queues = [below for below in subdirectories(disk, path) if _is_queue(disk, below)]
    if not queues:
        raise InvalidRequest(
            f"{path} is not a LedgerQ directory: neither it nor one inside of it has segments such as"
            f" 00000000000000000001.log, or a {METADATA}"
        )
    return LedgerSource(path, disk, _topics_of_all(queues, disk), has_names=True)


class LedgerSource:
    """One or more queues, each with its dead letters."""

    kind = KIND

    def __init__(self, path: Path, disk: Disk, queues: dict[Path, list[Path]], *, has_names: bool) -> None:
        self.path = path
        self.has_names = has_names
        self.findings = Findings()
        self._disk = disk
        if has_names:
            self._tell_others({path for queue, graves in queues.items() for path in (queue, *graves)})
        else:
            for below in filter(sounds_dead, subdirectories(disk, path.parent)):
                # Nobody can tell what is in it; beside a queue only dead letters are of interest.
                names_in(disk, below, self.findings)
        self.topics = [LedgerTopic(disk, queue, graves, self.findings) for queue, graves in queues.items()]

    def _tell_others(self, queues: set[Path]) -> None:
        """Tell what lies among the queues and is none, so that nothing is passed over in silence."""
        for name in names_in(self._disk, self.path):
            path = self.path / name
            if path in queues:
                continue
            if not is_directory(self._disk, path):
                self.findings.add(path, None, "it is not imported", is_damage=False)
            elif segment_paths(self._disk, path):
                problem = (
                    "it is not imported: none of its segments is one of LedgerQ, or what is left of one"
                )
                self.findings.add(path, None, problem)
            elif names_in(self._disk, path, self.findings):
                problem = "it is not imported: it is no queue of LedgerQ"
                self.findings.add(path, None, problem, is_damage=False)

    def close(self) -> None:
        """Nothing is held open."""


def _is_queue(disk: Disk, path: Path) -> bool:
    """Whether anything there is of LedgerQ: any part of a queue may be damaged, or gone after a crash."""
    names = names_in(disk, path)
    if not _STATE.isdisjoint(names):
        return True
    segments = [segment for _, segment in segment_paths(disk, path)]
    if any(is_segment(disk, segment) for segment in segments):
        return True
    if any(INDEX.fullmatch(name) and is_index(disk, path / name) for name in names):
        return True
    # Those of GoQueue have the same names, and an index beside them.
    is_other = any(name.endswith(_OTHER_INDEX) for name in names)
    return bool(segments) and not is_other and all(is_blank(disk, segment) for segment in segments)


def _topics_of_one(queue: Path, disk: Disk) -> dict[Path, list[Path]]:
    """The queue, with where its dead letters lie; itself, when it holds nothing else."""
    if holds_dead_letters(disk, queue):
        return {queue: [queue]}
    beside = [path for path in subdirectories(disk, queue.parent) if path.name != queue.name]
    queues = [path for path in beside if _is_queue(disk, path)]
    graves = [path for path in queues if holds_dead_letters(disk, path)]
    live = [queue, *(path for path in queues if path not in graves)]
    return {queue: [grave for grave in graves if _owner(grave, live) == queue]}


def _topics_of_all(queues: list[Path], disk: Disk) -> dict[Path, list[Path]]:
    graves = [queue for queue in queues if holds_dead_letters(disk, queue)]
    live = [queue for queue in queues if queue not in graves]
    # Dead letters of which nobody knows the queue make a topic that has nothing else.
    topics: dict[Path, list[Path]] = {queue: [] for queue in live}
    for grave in graves:
        topics.setdefault(_owner(grave, live) or grave, []).append(grave)
    return dict(sorted(topics.items()))


def _owner(grave: Path, live: Iterable[Path]) -> Path | None:
    """The queue whose dead letters these are: the only one there is, or the one that their name tells."""
    candidates = list(live)
    if len(candidates) > 1:
        # The longest: where there is orders-eu, the letters in orders-eu-dlq are not those of orders.
        candidates = sorted((q for q in candidates if q.name in grave.name), key=lambda q: len(q.name))
    return candidates[-1] if candidates else None
