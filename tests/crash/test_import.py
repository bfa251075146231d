"""An import that is interrupted anywhere is finished by the next one, with each message once."""

from functools import partial
from typing import Any

import pytest
from support.crash import every, seeds
from support.fake_source import FakeTopic, Shelf, item, letter
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import ALL_MODELS, START_US, Life, Model

from quivermq.importers import import_queue
from quivermq.importers.model import Position, SeenId, SourceGroup

LATER_US = START_US + 3_600_000_000
# Some of everything, in two chunks.
TOPIC = FakeTopic(
    live=[
        item(0, attempts=2),
        item(1, level="high", key=b"k"),
        item(2, deliver_at_us=LATER_US),
        item(3),
        item(4, expires_at_us=LATER_US),
    ],
    dead=[letter(1, attempts=3, reason="boom")],
    groups=[SourceGroup("g", {0: Position(1, {0: 2})})],
    seen_ids=[SeenId("a", LATER_US, 3)],
)


def bring(disk: FaultyDisk, promised: list[str]) -> None:
    """One process that imports, and dies when its disk does."""
    life = Life(disk)
    import_queue("fake", "/fake", life.engine, all=True, clock=life.clock)
    promised.append("imported")
    life.engine.close()


def look(life: Life) -> dict[str, Any]:
    """All that an import brings about."""
    queue = life.queue("orders", "g")
    return {
        "lanes": [
            (m.value, m.key, m.expires_at) for p in ("high", "normal") for m in queue.read(priority=p)
        ],
        "scheduled": [(s.value, s.deliver_at) for s in queue.scheduled()],
        "dead": [(d.value, d.attempts, d.reason) for d in queue.dead_letters()],
        "duplicate": queue.put(b"x", dedup_id="a").duplicate,
        "taken": sorted((m.value, m.attempt) for m in queue.get_many(10)),
    }


@pytest.mark.parametrize("model", ALL_MODELS)
def test_an_import_is_finished_by_the_next_one(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    monkeypatch.setattr("quivermq.importers.stream._CHUNK_MESSAGES", 3)
    shelf.topics = [TOPIC]
    life = Life()
    finish = partial(import_queue, "fake", "/fake", all=True)
    finish(queue=life.engine, clock=life.clock)
    expected = look(life)
    assert (len(expected["lanes"]), len(expected["scheduled"]), expected["duplicate"]) == (4, 1, True)
    life.close()
    crashes = every_crash(bring, model=model, seeds=seeds(1))
    for number, (disk, promised) in enumerate(crashes):
        if number % every(3):
            continue
        life = Life(disk)
        [told] = finish(queue=life.engine, clock=life.clock).topics
        if promised:
            assert (told.imported, told.dead_letters, told.already_there) == (0, 0, 6), disk.description
        assert look(life) == expected, disk.description
        life.close()


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch)
