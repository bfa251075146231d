"""The messages of a LedgerQ queue, and those that were given up."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from quivermq.disk import Disk
from quivermq.importers.files import file_bytes, names_in
from quivermq.importers.ledgerq_entries import (
    COMPRESSED,
    DATA,
    PRIORITY,
    Entry,
    UnreadableEntry,
    gunzip,
    looks_compressed,
    value_of,
)
from quivermq.importers.ledgerq_segments import entries, has_flag, marks_of
from quivermq.importers.ledgerq_state import METADATA, load_failures, load_metadata, load_seen_ids
from quivermq.importers.model import Death, Findings, Item, Level, SeenId, SourceGroup, witness
from quivermq.importers.ranges import RangeSet
from quivermq.importers.times import rfc3339_us

_SEGMENT = re.compile(r"[0-9]{20}\.log")
_GRAVE = re.compile(r"dlq|dead", re.IGNORECASE)
INDEX = re.compile(r"[0-9]{20}\.idx")
_LEVELS: dict[int, Level] = {0: "low", 1: "normal", 2: "high"}
_ORIGINAL_ID = "dlq.original_msg_id"
_STORY = frozenset((_ORIGINAL_ID, "dlq.retry_count", "dlq.failure_reason", "dlq.last_failure"))
_NUMBER = re.compile(rb"[0-9]{1,19}")
_ATTEMPTS_MAX = 2**31 - 1


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
