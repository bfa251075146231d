"""LedgerQ: a directory is one queue. Its dead letters are a queue of their own, in one beside it."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest
from quivermq.importers.files import SegmentFile, SourceFiles, Unreadable, moment_or_none
from quivermq.importers.ledger import RangeSet
from quivermq.importers.ledgerq_segments import (
    COMPRESSED,
    DATA,
    PRIORITY,
    Entry,
    entries,
    gunzip,
    has_flag,
    is_blank,
    is_index,
    is_segment,
    looks_compressed,
    value_of,
    witnesses_of,
)
from quivermq.importers.ledgerq_state import (
    ATTEMPTS_MAX,
    METADATA,
    STATE_FILES,
    read_failures,
    read_ids,
    read_seen_ids,
)
from quivermq.importers.model import Death, ImportSource, Item, SeenId, SourceTopic, witness
from quivermq.model.lanes import Priority

_OTHER_INDEX = (".index", ".timeindex")

_DIGITS = 20
_NUMBER = re.compile(rb"[0-9]{1,19}")
_DEAD_NAME = re.compile(r"dlq|dead", re.IGNORECASE)
_LEVELS: dict[int, Priority] = {0: "low", 1: "normal", 2: "high"}
_ORIGINAL_ID = "dlq.original_msg_id"
_RETRY_COUNT = "dlq.retry_count"
_FAILURE_REASON = "dlq.failure_reason"
_LAST_FAILURE = "dlq.last_failure"
_DEAD_HEADERS = frozenset((_ORIGINAL_ID, _RETRY_COUNT, _FAILURE_REASON, _LAST_FAILURE))


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory is a LedgerQ queue, or holds some."""
    files = SourceFiles(disk).quiet()
    return any(_is_queue(files, each) for each in (path, *files.subdirectories(path)))


def open_source(path: Path, disk: Disk) -> ImportSource:
    """A queue by its own directory, or all queues of a directory. Raises InvalidRequest."""
    files = SourceFiles(disk)
    quiet = files.quiet()
    has_names = not _is_queue(quiet, path)
    if not has_names:
        beside = [each for each in quiet.subdirectories(path.parent) if each.name != path.name]
        found = _topics(quiet, [path, *(each for each in beside if _is_queue(quiet, each))])
        # By itself, a queue of dead letters is its own.
        topics = {path: found.get(path, [path])}
        for below in filter(_sounds_dead, beside):
            # Nobody can tell what is in it; beside a queue only dead letters are of interest.
            files.names(below)
    else:
        queues = [below for below in quiet.subdirectories(path) if _is_queue(quiet, below)]
        if not queues:
            raise InvalidRequest(
                f"{path} is not a LedgerQ directory: neither it nor one inside of it has segments such as"
                f" 00000000000000000001.log, or a {METADATA}"
            )
        topics = _topics(quiet, queues)
        _report_others(files, path, {each for queue, dead in topics.items() for each in (queue, *dead)})
    made = [LedgerTopic(files, queue, dead) for queue, dead in topics.items()]
    return ImportSource("ledgerq", path, made, files.findings, has_names)


def _report_others(files: SourceFiles, directory: Path, queues: set[Path]) -> None:
    """Report what lies among the queues and is none, so that nothing is passed over in silence."""
    for path in (directory / name for name in files.quiet().names(directory)):
        if path in queues:
            continue
        if not files.is_directory(path):
            files.report(path, None, "it is not imported", is_damage=False)
        elif _segments(files.quiet(), path):
            problem = "it is not imported: none of its segments is one of LedgerQ, or what is left of one"
            files.report(path, None, problem)
        elif files.names(path):
            files.report(path, None, "it is not imported: it is no queue of LedgerQ", is_damage=False)


def _is_queue(files: SourceFiles, path: Path) -> bool:
    """Whether anything there is of LedgerQ: any part of a queue may be damaged, or gone after a crash."""
    names = files.names(path)
    segments = [segment.path for segment in _segments(files, path)]
    if not STATE_FILES.isdisjoint(names) or any(is_segment(files, segment) for segment in segments):
        return True
    if any(is_index(files, index.path) for index in _segments(files, path, ".idx")):
        return True
    # Those of GoQueue have the same names, and an index beside them.
    is_other = any(name.endswith(_OTHER_INDEX) for name in names)
    return bool(segments) and not is_other and all(is_blank(files, segment) for segment in segments)


def _segments(files: SourceFiles, directory: Path, suffix: str = ".log") -> list[SegmentFile]:
    """The segments of a queue in order, or their indexes."""
    return [each for each in files.segments(directory, suffix) if len(each.path.stem) == _DIGITS]


def _topics(files: SourceFiles, queues: list[Path]) -> dict[Path, list[Path]]:
    """The queues, each with where its dead letters lie."""
    dead = [queue for queue in queues if _holds_dead_letters(files, queue)]
    live = [queue for queue in queues if queue not in dead]
    # Dead letters of which nobody knows the queue make a topic that has nothing else.
    topics: dict[Path, list[Path]] = {queue: [] for queue in live}
    for each in dead:
        topics.setdefault(_owner(each, live) or each, []).append(each)
    return dict(sorted(topics.items()))


def _owner(dead: Path, live: Iterable[Path]) -> Path | None:
    """The queue whose dead letters these are: the only one there is, or the one that their name says."""
    candidates = list(live)
    if len(candidates) > 1:
        # The longest: where there is orders-eu, the letters in orders-eu-dlq are not those of orders.
        candidates = sorted((q for q in candidates if q.name in dead.name), key=lambda q: len(q.name))
    return candidates[-1] if candidates else None


def _holds_dead_letters(files: SourceFiles, directory: Path) -> bool:
    """Whether the first message there says why it was given up. Where there is none, the name has to."""
    for segment in _segments(files, directory):
        for entry in entries(files, segment.path):
            if entry.type == DATA:
                return _ORIGINAL_ID in entry.headers
    return _sounds_dead(directory)


def _sounds_dead(directory: Path) -> bool:
    return bool(_DEAD_NAME.search(directory.name))


class _PassedOver:
    """Counts what LedgerQ may have passed over: it takes the highest priority first, and what lies before
    the one it took counts as consumed, whether it was delivered or not."""

    def __init__(self) -> None:
        self.count = 0
        self._low = self._normal = 0

    def note(self, level: Priority) -> None:
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


class LedgerTopic(SourceTopic):
    """A queue directory, and those with its dead letters. One that holds nothing else is its own."""

    passed_over = 0

    def __init__(self, files: SourceFiles, path: Path, dead: list[Path]) -> None:
        self.name = path.name
        self._files = files
        self._path = path
        self._dead = dead

    @property
    def witnesses(self) -> list[str]:
        return [found for path in self._paths for found in witnesses_of(self._files, path)]

    @property
    def size_bytes(self) -> int:
        return sum(map(self._files.size, self._paths))

    @property
    def _paths(self) -> list[Path]:
        directories = sorted({self._path, *self._dead})
        return [each.path for queue in directories for each in _segments(self._files.quiet(), queue)]

    @property
    def seen_ids(self) -> list[SeenId]:
        return read_seen_ids(self._files, self._path)

    def items(self) -> Iterator[Item]:
        """The messages by segment; a queue that never used priorities has only normal ones."""
        if self._path in self._dead:
            return
        failures = read_failures(self._files, self._path)
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
            self._files.report(self._path / METADATA, None, problem, is_damage=False)
        if given_back:
            problem = (
                f"messages that were given back and lie before the read position: {given_back}."
                " LedgerQ hands them out no more, so they count as consumed"
            )
            self._files.report(self._path / METADATA, None, problem, is_damage=False)

    def dead_letters(self) -> Iterator[Item]:
        for path in self._dead:
            # They carry their own ids, which begin with 1 in each directory.
            base = 0 if len(self._dead) == 1 else (int(witness(path.name), 16) % 2**63) << 64
            originals = {} if path == self._path else self._originals(path)
            has_levels = bool(originals) and self._has_levels()
            for item, entry in self._stored(path):
                item.identity += base
                number = _number(entry.headers.get(_ORIGINAL_ID))
                item.dead = _death(entry, number)
                item.headers = {n: v for n, v in entry.headers.items() if n not in _DEAD_HEADERS} or None
                original = originals.get(number)
                if original is not None:
                    item.timestamp_us = original.timestamp_ns // 1000
                    item.level = _level(original, has_levels)
                    item.expires_at_us = original.expires_at_us
                if (original is None or original.flags & COMPRESSED) and looks_compressed(item.value):
                    self._decompress(item, entry, path, is_certain=original is not None)
                yield item

    def _stored(self, directory: Path) -> Iterator[tuple[Item, Entry]]:
        """Every message of a directory, with the entry it was."""
        files = self._files
        read_id, next_id = read_ids(files, directory)
        known = RangeSet()
        last_id, reports = 0, files.findings.reports
        self._report_orphans(directory)
        for path, base in _segments(files.quiet(), directory):
            for entry in entries(files, path):
                if 0 < last_id < entry.id - 1 and reports == files.findings.reports:
                    # Nothing damaged was in between, of which they may have been.
                    problem = f"{_ids(last_id + 1, entry.id - 1)} missing in front of this place"
                    files.report(path, entry.position, problem, is_damage=False)
                last_id, reports = max(last_id, entry.id), files.findings.reports
                if entry.type != DATA:
                    continue
                try:
                    value = value_of(entry)
                except Unreadable as error:
                    files.report(path, entry.position, str(error), length=entry.end - entry.position)
                    continue
                identity = entry.id
                if identity in known:
                    problem = f"entry {entry.id} is there a second time: it is taken as another message"
                    files.report(path, entry.position, problem, is_damage=False)
                    identity = ((base + 1) % 2**63) << 64 | entry.position
                known.add(entry.id)
                item = Item(
                    identity=identity,
                    id=str(entry.id),
                    value=value,
                    headers=entry.headers or None,
                    timestamp_us=entry.timestamp_ns // 1000,
                    expires_at_us=entry.expires_at_us,
                    is_consumed=entry.id < read_id,
                    size_bytes=entry.end - entry.position,
                )
                yield item, entry
        # Where nothing is left, the queue itself may have removed what was consumed.
        first = last_id + 1 if last_id else read_id
        if next_id is not None and next_id > first:
            problem = f"{_ids(first, next_id - 1)} not in the log, though given out"
            files.report(directory / METADATA, None, problem, is_damage=False)

    def _report_orphans(self, directory: Path) -> None:
        """Report segments of which only the index is left, but for those that the queue itself removed:
        they are the oldest, and their index went last."""
        quiet = self._files.quiet()
        segments = {each.base for each in _segments(quiet, directory)}
        for base in sorted({each.base for each in _segments(quiet, directory, ".idx")} - segments):
            if segments and base > min(segments):
                self._files.report(directory, None, f"the segment {base:020}.log is missing")

    def _has_levels(self) -> bool:
        """Whether the queue uses priorities. Low is what an entry has that says nothing."""
        files = self._files.quiet()
        return any(has_flag(files, each.path, PRIORITY) for each in _segments(files, self._path))

    def _originals(self, dead: Path) -> dict[int | None, Entry]:
        """What the queue itself has of its dead letters, by id, without their payloads."""
        wanted = {_number(entry.headers.get(_ORIGINAL_ID)) for entry in self._quiet_entries(dead)} - {None}
        return {
            entry.id: entry._replace(payload=b"", headers={})
            for entry in (self._quiet_entries(self._path) if wanted else ())
            if entry.type == DATA and entry.id in wanted
        }

    def _quiet_entries(self, directory: Path) -> Iterator[Entry]:
        files = self._files.quiet()
        for segment in _segments(files, directory):
            yield from entries(files, segment.path)

    def _decompress(self, item: Item, entry: Entry, path: Path, *, is_certain: bool) -> None:
        """Undo what the move to the dead letters forgot to mention."""
        try:
            item.value = gunzip(item.value)
        except Unreadable as error:
            if is_certain:
                problem = f"dead letter {entry.id} was compressed and stays so: {error}"
                self._files.report(path, entry.position, problem)
            return
        if not is_certain:
            problem = (
                f"dead letter {entry.id} is gzip, as those are that were compressed: it was decompressed"
            )
            self._files.report(path, entry.position, problem, is_damage=False)


def _death(entry: Entry, number: int | None) -> Death:
    """What the headers of a dead letter say; `number` is the id that it had."""
    count = _number(entry.headers.get(_RETRY_COUNT))
    return Death(
        original_id=None if number is None else str(number),
        offset=number,
        attempts=None if count is None else min(count, ATTEMPTS_MAX),
        reason=entry.headers.get(_FAILURE_REASON, b"").decode(errors="replace") or None,
        time_us=moment_or_none(entry.headers.get(_LAST_FAILURE)) or entry.timestamp_ns // 1000,
    )


def _ids(first: int, last: int) -> str:
    """Ids for a sentence."""
    return f"the id {first} is" if first == last else f"the ids {first} to {last} are"


def _level(entry: Entry, has_levels: bool) -> Priority:
    return _LEVELS.get(entry.priority, "high") if has_levels else "normal"


def _number(digits: bytes | None) -> int | None:
    return int(digits) if digits is not None and _NUMBER.fullmatch(digits) else None
