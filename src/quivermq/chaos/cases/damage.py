"""A bit is flipped, or a file is cut, in every kind of file, at every class of byte.

A sample queue has every kind of file. Its facts are held against those of before the damage, and after a
repair.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path, PurePath
from random import Random
from typing import NamedTuple

from quivermq.chaos import expect
from quivermq.chaos.cases.facts import Fact, Facts, Gaps, compare, facts_of
from quivermq.chaos.cases.simulated_disk import DATA, Simulation
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.chaos.load import TOPIC, is_deduplicated
from quivermq.chaos.trial import TickingClock, Trial
from quivermq.engine import engine_of
from quivermq.errors import (
    InvalidFrame,
    QuiverError,
)
from quivermq.frame import parse_header
from quivermq.log import repair, verify
from quivermq.model.messages import Message
from quivermq.queue.connection import Connection
from quivermq.server.keys import create_key

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
            engine_of(engine).maintain()
            engine.queue(TOPIC).put_many([Message(b"later", delay=60 * 3600 * n) for n in range(1, 4)])
            engine.queue(TOPIC).cancel(engine.queue(TOPIC).scheduled(1)[0].id)
            engine.create_topic(_OTHER, partitions=2, durability="os")
            engine.queue(_OTHER).put_many([b"%d" % number for number in range(20)])
            engine.queue(_OTHER).get_many(5)
        create_key(DATA, "admin", disk=sim.disk, clock=sim.clock)
        self.disk = sim.disk
        self._clock = TickingClock(sim.clock.now_us())
        self._sim = sim
        self._dedup_ids = [f"message {n}" for n in sim.history.tried if is_deduplicated(n)]
        with self.opened(self.disk) as opened:
            self.before = self.facts(opened, self.disk)

    def opened(self, disk: FaultyDisk) -> Connection:
        """The queue, while time stands still."""
        return self._sim.opened(disk, self._clock)

    def facts(self, engine: Connection, disk: FaultyDisk) -> Facts:
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
