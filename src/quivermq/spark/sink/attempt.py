"""Which part of which write a task is: the same for every attempt of it, also in the next driver."""

import json
from hashlib import blake2b
from typing import NamedTuple

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class TaskPart(NamedTuple):
    """The rows of one task, in one batch of one query, or in the only batch of a plain write."""

    write: str
    batch: int
    task: int

    def producer_id(self, topic: str, number: int = 0) -> int:
        """What the frames of this part are known by in a topic."""
        told = json.dumps([*self, topic, number])
        return int.from_bytes(blake2b(told.encode(), digest_size=8).digest(), "little") or 1


def is_repeated() -> bool:
    """Whether Spark has begun the task that runs here before, in this run."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return task is not None and task.attemptNumber() > 0


def current_part(write: str | None) -> TaskPart:
    """The part of the task that runs here; `write` is None for a stream, whose query has an id itself."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "only a task of Spark writes"
    if write is not None:
        return TaskPart(write, 0, task.partitionId())
    query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
    assert query is not None, "a stream has an id"
    assert batch is not None, "a stream numbers its batches"
    return TaskPart(query, int(batch), task.partitionId())
