"""Every attempt of a part of a write is known by the same number, and no other part is."""

from itertools import product

from quivermq.model.messages import PRODUCER_ID_MAX
from quivermq.spark.sink.options import TaskPart


def test_an_id_is_always_the_same() -> None:
    # Also in the next release: a query that is upgraded in the middle of a batch goes on with it.
    assert TaskPart("query", 3, 1).producer_id("out") == TaskPart("query", 3, 1).producer_id("out")
    assert TaskPart("query", 3, 1).producer_id("out") == 7127392808988786869


def test_no_two_parts_share_one() -> None:
    parts = product(("a", "b", "a\0001"), (0, 1, 11), (0, 1, 11), ("x", "1\0x"), (0, 1))
    ids = [
        TaskPart(write, batch, task).producer_id(topic, number)
        for write, batch, task, topic, number in parts
    ]
    assert all(1 <= id_ <= PRODUCER_ID_MAX for id_ in ids)
    assert len(set(ids)) == len(ids)
