"""A bit is flipped, or a file is cut, in every kind of file, at every class of byte."""

from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path, PurePath
from random import Random
from typing import NamedTuple

from quivermq.chaos.damage import Place, kind_of, places
from quivermq.chaos.expectation import expect
from quivermq.chaos.facts import Fact, Facts, Gaps, compare, facts_of
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.chaos.memory import DATA, World
from quivermq.chaos.numbered import is_deduplicated
from quivermq.chaos.trial import StandingClock, Trial
from quivermq.chaos.worker import TOPIC
from quivermq.engine import Engine
from quivermq.errors import QuiverError
from quivermq.log import repair, verify
from quivermq.model.messages import Message
from quivermq.server.keys import create_key

_STEPS = 300
_BYSTANDER = "bystander"
_TOPICS = [TOPIC, f"{TOPIC}.dlq", _BYSTANDER]


class Blow(NamedTuple):
    """One damage: of which file, where, and how."""

    path: Path
    place: Place
    mask: int
    """The bits that are flipped; 0 when the file ends there instead."""

    def __str__(self) -> str:
        how = f"bits {self.mask:#04x} flipped in" if self.mask else "cut off at"
        return f"{self.path.relative_to(DATA)}: {how} byte {self.place.position}, {self.place.name}"

    def fall(self, disk: FaultyDisk) -> FaultyDisk:
        """The disk as it is then."""
        struck = disk.after_kill()
        if self.mask:
            struck.flip(self.path, self.place.position, self.mask)
        else:
            struck.chop(self.path, self.place.position)
        return struck


class Store:
    """A queue in which every kind of file is, closed in good order, and all that it knows."""

    def __init__(self, seed: str) -> None:
        world = World(seed)
        world.live(_STEPS)
        world.clock.advance(1)
        with world.opened() as engine:
            engine.maintain()
            engine.queue(TOPIC).put_many([Message(b"later", delay=60 * 3600 * n) for n in range(1, 4)])
            engine.queue(TOPIC).cancel(engine.queue(TOPIC).scheduled(1)[0].id)
            engine.create_topic(_BYSTANDER, partitions=2, durability="os")
            engine.queue(_BYSTANDER).put_many([b"%d" % number for number in range(20)])
            engine.queue(_BYSTANDER).get_many(5)
        create_key(DATA, "admin", disk=world.disk, clock=world.clock)
        self.disk = world.disk
        self._clock = StandingClock(world.clock.now_us())
        self._world = world
        self._dedup_ids = [f"message {n}" for n in world.promises.tried if is_deduplicated(n)]
        with self.opened(self.disk) as opened:
            self.before = self.facts(opened, self.disk)

    def opened(self, disk: FaultyDisk) -> Engine:
        """The queue, while time stands still."""
        return self._world.opened(disk, self._clock)

    def facts(self, engine: Engine, disk: FaultyDisk) -> Facts:
        return facts_of(engine, _TOPICS, self._dedup_ids, disk)

    def blows(self, rng: Random) -> Iterator[Blow]:
        """One flip for every class of byte of every file, and a cut at every class of place."""
        for path, data in self.disk.files().items():
            kind = kind_of(path.relative_to(DATA))
            if kind == "lock":
                continue
            for place in _thinned(path, places(PurePath(path), data), rng):
                spot = place._replace(position=place.position + rng.randrange(place.length))
                yield Blow(path, spot, 1 << rng.randrange(8))
                if rng.random() < 0.3:
                    yield Blow(path, spot, 0)
                if data[spot.position : spot.position + 1].isdigit() and path.suffix == ".json":
                    # Another digit, which is as good JSON as the first.
                    yield Blow(path, spot, 1)


def _thinned(path: Path, found: list[Place], rng: Random) -> list[Place]:
    """Of a text, where every byte is a class of its own, some."""
    return rng.sample(found, min(len(found), 24)) if path.suffix == ".json" else found


def engine(trial: Trial) -> None:
    """Everything is reported or the same as before; the rest serves; a repair loses the damage alone."""
    store = Store(trial.seed)
    for blow in islice(_by_turns(store.blows(trial.rng), trial.rng), trial.cycles):
        strike(store, blow)
        trial.tried += 1


def _by_turns(blows: Iterable[Blow], rng: Random) -> Iterator[Blow]:
    """Of every kind of file one, then another one of each, and so on."""
    kinds: dict[str, list[Blow]] = {}
    for blow in blows:
        kinds.setdefault(kind_of(blow.path.relative_to(DATA)), []).append(blow)
    for of_kind in kinds.values():
        rng.shuffle(of_kind)
    for turn in zip_longest(*kinds.values()):
        yield from (blow for blow in turn if blow is not None)


def strike(store: Store, blow: Blow) -> None:
    """Do one damage, look at everything, repair, and look again."""
    struck = blow.fall(store.disk)
    before = struck.files()
    found = verify(DATA, disk=struck).findings
    if blow.path.suffix == ".log" and before[blow.path] != store.disk.files()[blow.path]:
        expect(any(f.path == blow.path for f in found), f"{blow}: verify does not see it")
    try:
        opened = store.opened(struck)
    except QuiverError as error:
        expect(blow.path.name in str(error), f"{blow}: it does not open, and does not say why: {error}")
        return
    with opened:
        facts = store.facts(opened, struck)
        lost = compare(store.before, facts, str(blow), _gaps(struck))
    allowed = _may_lose(kind_of(blow.path.relative_to(DATA)), blow.path, store.before)
    expect(set(lost) <= allowed, f"{blow}: it costs more than itself: {sorted(set(lost) - allowed)[:5]}")
    _repair(store, blow)


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


def _repair(store: Store, blow: Blow) -> None:
    if blow.path.suffix == ".json":
        return
    mended = blow.fall(store.disk)
    repair(DATA, disk=mended)
    expect(verify(DATA, disk=mended).is_sound, f"{blow}: a repair leaves damage")
    with store.opened(mended) as opened:
        topics = opened.topics()
        expect(set(_TOPICS) <= set(topics), f"{blow}: after a repair there is only {topics}")
        for topic in _TOPICS:
            opened.queue(topic, group="new").get_many(1)
