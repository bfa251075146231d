"""A bit is flipped, or a file is cut, in every kind of file, at every class of byte.

A sample queue has every kind of file. Its facts are everything that it knows: a fact that cannot be had any
more is the error that says why. They are held against those of before the damage, and after a repair.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path, PurePath
from random import Random
from typing import Any, NamedTuple

from quivermq.chaos import Violation, expect
from quivermq.chaos.cases.simulated_disk import DATA, Simulation
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.chaos.load import TOPIC, is_deduplicated
from quivermq.chaos.trial import FrozenClock, Trial
from quivermq.disk import Disk
from quivermq.engine import Engine
from quivermq.errors import (
    Corruption,
    DiskRefused,
    InvalidFrame,
    InvalidSettings,
    NotFound,
    QuiverError,
    StorageFailed,
)
from quivermq.frame import parse_header
from quivermq.log import repair, verify
from quivermq.model.messages import Message
from quivermq.server.keys import create_key, list_keys

_KINDS = {
    "lane": r"topics/[^/]+/p\d+/(high|normal|low)/\d+\.log",
    "lane index": r"topics/[^/]+/p\d+/(high|normal|low)/\d+\.idx",
    "removals": r"topics/[^/]+/p\d+/removed/\d+\.log",
    "delayed messages": r"topics/[^/]+/delayed/\d+-[^/]+/\d+\.log",
    "delay journal": r"topics/[^/]+/delayed/journal/\d+\.log",
    "seen before": r"topics/[^/]+/seen/\d+\.log",
    "index of state": r"(topics|groups)/.*/\d+\.idx",
    "delivery journal": r"groups/[^/]+/[^/]+/p\d+/\d+\.log",
    "topic.json": r"topics/[^/]+/topic\.json",
    "keys.json": r"keys\.json",
    "archive.json": r"archive\.json",
    "archive manifest": r".*/_quiver/[^/]+\.json",
    "archived messages": r".*\.parquet",
    "lock": r"LOCK|.*\.lock",
}
# The fields of a frame's header, by how many bytes each of them has, in their order.
_HEADER_FIELDS = [
    *((name, 4) for name in ("magic", "header CRC", "body CRC", "stored bytes", "raw bytes", "count")),
    *(
        (name, 8)
        for name in ("base offset", "append time", "timestamp min", "timestamp max", "producer id")
    ),
    *(("base sequence", 4), ("leader epoch", 4), ("producer epoch", 2), ("columns", 2), ("flags", 2)),
    *(("codec", 1), ("version", 1)),
]
_INDEX_BYTES = 32
_INDEX_HEADER = (("magic", 4), ("version", 4), ("base offset", 8), ("zeros", 12), ("CRC", 4))
_INDEX_ENTRY = (("offset", 8), ("timestamp", 8), ("position", 8), ("zeros", 4), ("CRC", 4))


class ByteRange(NamedTuple):
    """A run of bytes of one class."""

    name: str
    position: int
    length: int


def kind_of(path: PurePath) -> str:
    """What kind of file that is, by its path below the data directory. Raises Violation for others."""
    found = next((kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, str(path))), "")
    expect(found, f"a file that nobody knows: {path}")
    return found


def byte_ranges(path: PurePath, data: bytes) -> list[ByteRange]:
    """Every class of byte in a file, each with one range or a few."""
    match path.suffix:
        case ".log":
            return list(_ranges_of_frames(data))
        case ".idx":
            return list(_ranges_of_index(data))
        case ".json":
            return [ByteRange(_name_in_json(data, position), position, 1) for position in range(len(data))]
    third = max(1, len(data) // 3)
    return [ByteRange(f"byte {position}", position, 1) for position in range(0, len(data), third)]


def _ranges_of_frames(data: bytes) -> Iterator[ByteRange]:
    """The fields and the body of the first, the middle and the last frame."""
    starts = list(_frame_starts(data))
    for where, index in (("first", 0), ("middle", len(starts) // 2), ("last", len(starts) - 1)):
        if not starts or (where != "first" and index == 0):
            continue
        start, end = starts[index]
        position = start
        for field, length in _HEADER_FIELDS:
            yield ByteRange(f"{field} of the {where} frame", position, length)
            position += length
        for part, at in (("begin", position), ("middle", (position + end) // 2), ("end", end - 1)):
            yield ByteRange(f"{part} of the body of the {where} frame", at, 1)


def _frame_starts(data: bytes) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(data):
        try:
            end = position + parse_header(data, position).frame_bytes
        except InvalidFrame:
            return
        yield position, end
        position = end


def _ranges_of_index(data: bytes) -> Iterator[ByteRange]:
    for start in {0, _INDEX_BYTES, len(data) - _INDEX_BYTES}:
        position = start
        for field, length in _INDEX_HEADER if start == 0 else _INDEX_ENTRY:
            if 0 <= position < len(data):
                yield ByteRange(f"{field} of the {'header' if start == 0 else 'entry'}", position, length)
            position += length


def _name_in_json(data: bytes, position: int) -> str:
    """The last name that was opened before a byte: good enough to say where it was."""
    names = re.findall(rb'"(\w+)":', data[: position + 1])
    return names[-1].decode() if names else "the beginning"


_LANES = ("high", "normal", "low")

Fact = tuple[str, ...]
Facts = dict[Fact, Any]
Gaps = dict[Fact, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Lost:
    """What stands in place of a fact that is lost, and everything of it that could still be read."""

    error: QuiverError
    rest: tuple[Any, ...] = ()
    is_partial: bool = False


def facts_of(engine: Engine, topics: list[str], dedup_ids: list[str], disk: Disk | None = None) -> Facts:
    """Every fact about topics. Nothing is changed by asking."""
    found: Facts = {("keys",): _fact(list_keys, engine.path, disk=disk)}
    for topic in topics:
        found[topic, "settings"] = _fact(engine.topic, topic)
        found[topic, "scheduled"] = _fact(_scheduled, engine, topic)
        found[topic, "dedup"] = _fact(_known, engine, topic, dedup_ids)
        found |= _lanes(engine, topic)
        found |= _groups(engine, topic)
    return found


def _fact(ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return ask(*arguments, **options)
    except (StorageFailed, DiskRefused, NotFound, InvalidSettings) as error:
        return Lost(error)


def _scheduled(engine: Engine, topic: str) -> tuple[tuple[int, bytes], ...]:
    return tuple((waiting.deliver_at, waiting.value) for waiting in engine.queue(topic).scheduled())


def _known(engine: Engine, topic: str, dedup_ids: list[str]) -> tuple[str, ...]:
    found = engine.hosted(topic).topic
    return tuple(name for name in dedup_ids if found.is_known(name))


def _lanes(engine: Engine, topic: str) -> Facts:
    try:
        partitions = engine.topic(topic).partitions
    except QuiverError as error:
        return {(topic, "lanes"): Lost(error)}
    return {
        (topic, "lane", str(partition), priority): _lane(engine, topic, partition, priority)
        for partition in range(partitions)
        for priority in _LANES
    }


def _lane(engine: Engine, topic: str, partition: int, priority: str) -> Any:
    """The messages of a lane; where some cannot be read, the error, and those that can."""
    queue = engine.queue(topic)
    start: int | None = None
    rest: list[Any] = []
    first: QuiverError | None = None
    while True:
        try:
            records = queue.read(partition, start, 100_000, priority=priority)
        except Corruption as error:
            first = first or error
            behind = error.offsets[1]
            rest += _before(queue, partition, priority, start, error.offsets[0])
            if behind is None or behind <= (start or 0):
                break
            start = behind
            continue
        except QuiverError as error:
            return Lost(error)
        if not records:
            break
        rest += [_message(record) for record in records]
        start = records[-1].offset + 1
    return tuple(rest) if first is None else Lost(first, tuple(rest), is_partial=True)


def _before(queue: Any, partition: int, priority: str, start: int | None, end: int) -> list[Any]:
    """What can be read up to a damage."""
    limit = end - (start or 0)
    if limit <= 0:
        return []
    try:
        return [_message(r) for r in queue.read(partition, start, limit, priority=priority)]
    except QuiverError:
        return []


def _message(record: Any) -> tuple[Any, ...]:
    return record.offset, record.value, record.key, tuple(sorted(record.headers.items())), record.timestamp


def _groups(engine: Engine, topic: str) -> Facts:
    """How far each group has come, and what it has in hand."""
    try:
        hosted = engine.hosted(topic)
    except QuiverError as error:
        return {(topic, "groups"): Lost(error)}
    found: Facts = {(topic, "groups"): tuple(sorted({*hosted.groups, *hosted.broken_groups}))}
    for name, group in list(hosted.groups.items()):
        for cursor in group.cursors:
            found[topic, "group", name, str(cursor.partition)] = (
                tuple(cursor.floors()),
                tuple(tuple(cursor.unfinished(lane, 0, -1, 100_000)) for lane in range(len(_LANES))),
            )
    for name, failure in hosted.broken_groups.items():
        for partition in range(hosted.settings.partitions):
            found[topic, "group", name, str(partition)] = Lost(failure)
    return found


def compare(before: Facts, after: Facts, where: str, gaps: Gaps | None = None) -> list[Fact]:
    """Hold facts against those of before: what is not the same must say so. Returns what was lost.

    `gaps` are ranges of lanes that are known to be lost, and reported as such.
    """
    lost: list[Fact] = []
    for name, value in before.items():
        now = after.get(name)
        if now is None:
            # A topic that was set aside as a whole.
            now = after[name[0], "lanes"]
        if isinstance(now, Lost):
            lost.append(name)
            _check_rest(name, value, now, where)
        elif now != value:
            _check_gaps(name, value, now, where, (gaps or {}).get(name, ()))
            lost.append(name)
    return lost


def _check_rest(name: Fact, value: Any, now: Lost, where: str) -> None:
    """Of a damaged lane, all before the damage can be read; what lies behind it waits for a repair."""
    expect(str(now.error), f"{where}: {name} is lost without a word")
    if isinstance(now.error, Corruption) and now.is_partial:
        start = now.error.offsets[0]
        kept = tuple(message for message in value if message[0] < start)
        expect(now.rest[: len(kept)] == kept, f"{where}: {name} does not show what lies before the damage")
        expect(set(now.rest) <= set(value), f"{where}: {name} has what was never put")


def _check_gaps(name: Fact, value: Any, now: Any, where: str, gaps: Sequence[tuple[int, int]]) -> None:
    """A lane may lack what is reported as a gap. What was on its way to it may have come once more."""
    if name[1] == "scheduled" and gaps:
        expect(set(now) <= set(value), f"{where}: {name} has what was never put")
        return
    if name[1] != "lane":
        raise Violation(f"{where}: {name} was {value!r:.300} and is {now!r:.300}")
    lost = [message for message in value if any(start <= message[0] < end for start, end in gaps)]
    kept = [message for message in value if message not in lost]
    again = now[len(kept) :]
    expect(
        list(now[: len(kept)]) == kept and {message[1] for message in again} <= {m[1] for m in lost},
        f"{where}: {name} has {len(now)} of {len(value)} messages, and the gaps {gaps}",
    )


_STEPS = 300
_OTHER = "bystander"
_TOPICS = [TOPIC, f"{TOPIC}.dlq", _OTHER]


class FileDamage(NamedTuple):
    """One damage: of which file, where, and how."""

    path: Path
    where: ByteRange
    mask: int
    """The bits that are flipped; 0 when the file ends there instead."""

    def __str__(self) -> str:
        how = f"bits {self.mask:#04x} flipped in" if self.mask else "cut off at"
        return f"{self.path.relative_to(DATA)}: {how} byte {self.where.position}, {self.where.name}"

    def applied_to(self, disk: FaultyDisk) -> FaultyDisk:
        """The disk as it is then."""
        damaged = disk.after_kill()
        if self.mask:
            damaged.flip(self.path, self.where.position, self.mask)
        else:
            damaged.chop(self.path, self.where.position)
        return damaged


class SampleQueue:
    """A queue in which every kind of file is, closed in good order, and all that it knows."""

    def __init__(self, seed: str) -> None:
        sim = Simulation(seed)
        sim.run(_STEPS)
        sim.clock.advance(1)
        with sim.opened() as engine:
            engine.maintain()
            engine.queue(TOPIC).put_many([Message(b"later", delay=60 * 3600 * n) for n in range(1, 4)])
            engine.queue(TOPIC).cancel(engine.queue(TOPIC).scheduled(1)[0].id)
            engine.create_topic(_OTHER, partitions=2, durability="os")
            engine.queue(_OTHER).put_many([b"%d" % number for number in range(20)])
            engine.queue(_OTHER).get_many(5)
        create_key(DATA, "admin", disk=sim.disk, clock=sim.clock)
        self.disk = sim.disk
        self._clock = FrozenClock(sim.clock.now_us())
        self._sim = sim
        self._dedup_ids = [f"message {n}" for n in sim.history.tried if is_deduplicated(n)]
        with self.opened(self.disk) as opened:
            self.before = self.facts(opened, self.disk)

    def opened(self, disk: FaultyDisk) -> Engine:
        """The queue, while time stands still."""
        return self._sim.opened(disk, self._clock)

    def facts(self, engine: Engine, disk: FaultyDisk) -> Facts:
        return facts_of(engine, _TOPICS, self._dedup_ids, disk)

    def damages(self, rng: Random) -> Iterator[FileDamage]:
        """One flip for every class of byte of every file, and a cut at every class of place."""
        for path, data in self.disk.files().items():
            kind = kind_of(path.relative_to(DATA))
            if kind == "lock":
                continue
            for place in _thinned(path, byte_ranges(PurePath(path), data), rng):
                spot = place._replace(position=place.position + rng.randrange(place.length))
                yield FileDamage(path, spot, 1 << rng.randrange(8))
                if rng.random() < 0.3:
                    yield FileDamage(path, spot, 0)
                if data[spot.position : spot.position + 1].isdigit() and path.suffix == ".json":
                    # Another digit, which is as good JSON as the first.
                    yield FileDamage(path, spot, 1)


def _thinned(path: Path, found: list[ByteRange], rng: Random) -> list[ByteRange]:
    """Of a text, where every byte is a class of its own, some."""
    return rng.sample(found, min(len(found), 24)) if path.suffix == ".json" else found


def damage_engine(trial: Trial) -> None:
    """Everything is reported or the same as before; the rest serves; a repair loses the damage alone."""
    sample = SampleQueue(trial.seed)
    for damage in islice(_by_turns(sample.damages(trial.rng), trial.rng), trial.cycles):
        check_damage(sample, damage)
        trial.tried += 1


def _by_turns(damages: Iterable[FileDamage], rng: Random) -> Iterator[FileDamage]:
    """Of every kind of file one, then another one of each, and so on."""
    kinds: dict[str, list[FileDamage]] = {}
    for damage in damages:
        kinds.setdefault(kind_of(damage.path.relative_to(DATA)), []).append(damage)
    for of_kind in kinds.values():
        rng.shuffle(of_kind)
    for turn in zip_longest(*kinds.values()):
        yield from (damage for damage in turn if damage is not None)


def check_damage(sample: SampleQueue, damage: FileDamage) -> None:
    """Do one damage, look at everything, repair, and look again."""
    damaged = damage.applied_to(sample.disk)
    before = damaged.files()
    found = verify(DATA, disk=damaged).findings
    if damage.path.suffix == ".log" and before[damage.path] != sample.disk.files()[damage.path]:
        expect(any(f.path == damage.path for f in found), f"{damage}: verify does not see it")
    try:
        opened = sample.opened(damaged)
    except QuiverError as error:
        expect(damage.path.name in str(error), f"{damage}: it does not open, and does not say why: {error}")
        return
    with opened:
        facts = sample.facts(opened, damaged)
        lost = compare(sample.before, facts, str(damage), _gaps(damaged))
    allowed = _may_lose(kind_of(damage.path.relative_to(DATA)), damage.path, sample.before)
    expect(set(lost) <= allowed, f"{damage}: it costs more than itself: {sorted(set(lost) - allowed)[:5]}")
    _repair(sample, damage)


def _may_lose(kind: str, path: Path, before: Facts) -> set[Fact]:
    """The facts that are in a file, and that its damage may therefore cost, with a word."""
    parts = path.relative_to(DATA).parts
    match kind, parts:
        case "lane", (_, topic, partition, lane, _):
            return {(topic, "lane", partition[1:], lane)}
        case "delivery journal", (_, group, topic, _, _):
            return {name for name in before if name[:3] == (topic, "group", group)}
        case "delayed messages" | "delay journal", (_, topic, *_):
            return {(topic, "scheduled")}
        case "topic.json" | "seen before" | "removals", (_, topic, *_):
            return {name for name in before if name[0] == topic}
        case "keys.json", _:
            return {("keys",)}
    return set()


def _gaps(disk: FaultyDisk) -> Gaps:
    """What is reported as lost for good, by lane."""
    found: Gaps = {}
    for finding in verify(DATA, disk=disk).findings:
        start, end = finding.offsets
        if finding.kind == "gap" and end is not None:
            _, topic, partition, lane, *_ = finding.path.relative_to(DATA).parts
            fact = (topic, "scheduled") if partition == "delayed" else (topic, "lane", partition[1:], lane)
            found.setdefault(fact, []).append((start, end))
    return found


def _repair(sample: SampleQueue, damage: FileDamage) -> None:
    if damage.path.suffix == ".json":
        return
    mended = damage.applied_to(sample.disk)
    repair(DATA, disk=mended)
    expect(verify(DATA, disk=mended).is_sound, f"{damage}: a repair leaves damage")
    with sample.opened(mended) as opened:
        topics = opened.topics()
        expect(set(_TOPICS) <= set(topics), f"{damage}: after a repair there is only {topics}")
        for topic in _TOPICS:
            opened.queue(topic, group="new").get_many(1)
