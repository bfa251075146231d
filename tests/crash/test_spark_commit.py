"""A stream into a directory that nobody serves: the driver may die at any step, and each row comes once."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from support.crash import every, seeds
from support.crash.blows import blows
from support.faulty_disk import FaultyDisk, every_crash
from support.queues import DATA, MODELS, Life, Model, life_to_judge

import quivermq
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.sink.commit import commit_batch, discard_batch
from quivermq.spark.sink.options import SinkOptions, TaskPart
from quivermq.spark.sink.staging import STAGING, StagedFile, stage

pytestmark = pytest.mark.fault("power", "engine")

QUERY = "7f3a-query"
BATCHES, TASKS, ROWS = 2, 2, 4
OPTIONS = SinkOptions(DirectoryReader(str(DATA)), topic="orders", batch_messages=2)
# Some rows are the same as others, also of the same task.
EVERYTHING = sorted(
    b"%d %d %d" % (batch, task, row // 2)
    for batch in range(BATCHES)
    for task in range(TASKS)
    for row in range(ROWS)
)


def rows_of(batch: int, task: int, seed: int) -> pa.RecordBatch:
    """The rows of a task, in an order that another execution need not have."""
    values = [b"%d %d %d" % (batch, task, row // 2) for row in range(ROWS)]
    random.Random(seed).shuffle(values)
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def staged(disk: FaultyDisk, batch: int, seed: int = 0) -> list[StagedFile]:
    parts = [TaskPart(QUERY, batch, task) for task in range(TASKS)]
    return [stage(DATA, iter([rows_of(*part[1:], seed)]), part, OPTIONS, disk) for part in parts]


def commit(disk: FaultyDisk, batch: int, files: list[StagedFile]) -> None:
    @contextmanager
    def opened() -> Iterator[quivermq.Connection]:
        # As the driver's own process has it, which closes what it opens.
        life = Life(disk)
        with life.engine:
            yield life.engine

    commit_batch(DATA, QUERY, batch, files, disk=disk, open_queue=opened)


def run(disk: FaultyDisk, told: list[int]) -> None:
    for batch in range(BATCHES):
        commit(disk, batch, staged(disk, batch))
        told.append(batch)


def stored(life: Life) -> list[bytes]:
    return sorted(record.value for record in life.queue().read())


@pytest.mark.parametrize("model", MODELS)
def test_a_crash_at_every_step(model: Model) -> None:
    judged = 0
    for disk, told in every_crash(run, model=model, seeds=seeds(1)):
        judged += 1
        if judged % every(2):
            continue
        # Spark may repeat the last batch that it was told of, and surely repeats the one after it.
        for batch in range(max(0, len(told) - 1), BATCHES):
            commit(disk, batch, staged(disk, batch, seed=judged))
        with life_to_judge(disk) as life:
            assert stored(life) == EVERYTHING
        assert disk.names(DATA / STAGING / QUERY) == ["applied"]
    assert judged > 50


@pytest.mark.parametrize("model", MODELS)
def test_a_crash_at_every_step_of_the_commit_after_a_crash(model: Model) -> None:
    def half(disk: FaultyDisk, told: list[int]) -> None:
        commit(disk, 0, staged(disk, 0))
        told.append(0)

    judged = 0
    crashed = [disk for disk, told in every_crash(half, model=model, seeds=seeds(1)) if not told]
    for first in crashed[:: every(12)]:

        def again(disk: FaultyDisk, _: list[None]) -> None:
            commit(disk, 0, staged(disk, 0, seed=5))

        for disk, _ in every_crash(again, model=model, seeds=[judged], start=first):
            judged += 1
            if judged % every(11) == 0:
                for batch in range(BATCHES):
                    commit(disk, batch, staged(disk, batch, seed=judged))
                with life_to_judge(disk) as life:
                    assert stored(life) == EVERYTHING
    assert judged > 100


def test_the_first_manifest_counts() -> None:
    """A query that gives other rows each time is not committed twice, in part from here and there."""
    disk = FaultyDisk()
    commit(disk, 0, staged(disk, 0))
    first = staged(disk, 1)
    with pytest.raises(RuntimeError, match="died"):
        commit_batch(DATA, QUERY, 1, first, disk=disk, open_queue=_dying)
    other = pa.RecordBatch.from_pydict({"value": pa.array([b"other"], pa.binary())})
    commit(disk, 1, [stage(DATA, iter([other]), TaskPart(QUERY, 1, 0), OPTIONS, disk)])
    with life_to_judge(disk) as life:
        assert stored(life) == EVERYTHING


@contextmanager
def _dying() -> Iterator[Any]:
    class Dying:
        def queue(self, _: str) -> None:
            raise RuntimeError("died")

    yield Dying()


def test_what_failed_leaves_nothing_and_what_is_committed_stays() -> None:
    disk = FaultyDisk()
    staged(disk, 0)
    discard_batch(DATA, QUERY, 0, disk=disk)
    assert disk.names(DATA / STAGING / QUERY) == []
    files = staged(disk, 0)
    with pytest.raises(RuntimeError, match="died"):
        commit_batch(DATA, QUERY, 0, files, disk=disk, open_queue=_dying)
    discard_batch(DATA, QUERY, 0, disk=disk)
    assert disk.names(DATA / STAGING / QUERY) == ["0", "0.json"]
    discard_batch(DATA, QUERY, 0, disk=disk, is_repeatable=False)
    assert disk.names(DATA / STAGING) == []
    with Life(disk):
        pass


def test_more_frames_than_a_topic_remembers_may_be_applied_again() -> None:
    disk = FaultyDisk()
    values = [b"%d" % n for n in range(200)]
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    options = SinkOptions(DirectoryReader(str(DATA)), topic="orders", batch_messages=1)
    for _ in range(2):
        commit_twice = [stage(DATA, iter([rows]), TaskPart(QUERY, 0, 0), options, disk)]
        commit(disk, 0, commit_twice)
        disk.remove(DATA / STAGING / QUERY / "applied")
    with life_to_judge(disk) as life:
        assert [record.value for record in life.queue().read(limit=1000)] == values


@pytest.mark.parametrize("model", MODELS)
def test_a_crash_at_every_step_of_a_batch_with_more_producers_than_a_topic_remembers(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quivermq.topic.producers.PLACES_MAX", 8)
    monkeypatch.setattr("quivermq.spark.sink.commit.FRAMES_PER_NOTE", 2)
    parts = [TaskPart(QUERY, 0, task) for task in range(6)]

    def many(disk: FaultyDisk) -> list[StagedFile]:
        return [stage(DATA, iter([rows_of(0, part.task, 0)[:2]]), part, OPTIONS, disk) for part in parts]

    def once(disk: FaultyDisk, _: list[None]) -> None:
        commit(disk, 0, many(disk))

    judged = 0
    for disk, _ in every_crash(once, model=model, seeds=seeds(1)):
        judged += 1
        if judged % every(3) == 0:
            commit(disk, 0, many(disk))
            with life_to_judge(disk) as life:
                assert stored(life) == sorted(v for part in parts for v in values_of(part))
            assert disk.names(DATA / STAGING / QUERY) == ["applied"]
    assert judged > 50


def values_of(part: TaskPart) -> list[bytes]:
    return [value.as_py() for value in rows_of(0, part.task, 0)[:2].column("value")]


@pytest.mark.fault("damage", "engine")
def test_what_was_staged_is_checked_before_it_counts() -> None:
    """Frames, the manifest that counts them, and the note of what was applied: a bit flipped, or cut."""
    disk = FaultyDisk()
    commit(disk, 0, staged(disk, 0))
    files = staged(disk, 1)
    with pytest.raises(RuntimeError):
        commit_batch(DATA, QUERY, 1, files, disk=disk, open_queue=_dying)
    directory = DATA / STAGING / QUERY
    frames = [directory / "1" / file.name for file in files]
    for path in (directory / "applied", directory / "1.json", *frames):
        told = 0
        for struck, blow in blows(disk, path, 60):
            try:
                commit(struck, 1, files)
            except quivermq.QuiverError:
                told += 1
                assert set(stored(Life(struck.after_kill()))) <= set(EVERYTHING), blow
            else:
                assert stored(Life(struck.after_kill())) == EVERYTHING, blow
        assert told > 20, path
