"""Rows go where the topic itself would have put their messages."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.errors import InvalidRequest
from quivermq.spark.sink.rows import ANY_PARTITION, lanes_of, murmur3_of, partitions_of
from quivermq.topic.routing import Router, murmur3

keys = st.lists(st.binary(max_size=70) | st.binary(min_size=250, max_size=300), max_size=12)


def batch(**columns: list[Any]) -> pa.RecordBatch:
    types = {"key": pa.binary(), "partition": pa.int64(), "priority": pa.string()}
    return pa.RecordBatch.from_pydict({name: pa.array(c, types[name]) for name, c in columns.items()})


@given(keys, st.data())
def test_every_key_has_the_hash_of_the_topic(given_keys: list[bytes], data: st.DataObject) -> None:
    column = pa.array(given_keys, pa.binary())
    assert murmur3_of(column).tolist() == [murmur3(key) for key in given_keys]
    start = data.draw(st.integers(0, len(given_keys)))
    assert murmur3_of(column.slice(start)).tolist() == [murmur3(key) for key in given_keys[start:]]


@pytest.mark.parametrize("partitions", [2, 3, 1000])
def test_a_key_decides_on_the_partition(partitions: int) -> None:
    router = Router(partitions)
    given_keys: list[bytes | None] = [b"", b"a", None, b"key", b"\xff" * 300]
    found = partitions_of(batch(key=given_keys), partitions).tolist()
    assert found == [ANY_PARTITION if key is None else router.partition_of(key) for key in given_keys]


@pytest.mark.parametrize("given_keys", [[b"a", None, b"b", None], [None, None]])
def test_the_only_partition_takes_all(given_keys: list[bytes | None]) -> None:
    assert partitions_of(batch(key=given_keys), 1).tolist() == [0] * len(given_keys)
    assert partitions_of(batch(priority=["low", "high"]), 1).tolist() == [0, 0]


def test_a_partition_that_is_given_comes_before_the_key() -> None:
    found = partitions_of(batch(key=[b"a", b"a", None, None], partition=[2, None, 1, None]), 3)
    assert found.tolist() == [2, Router(3).partition_of(b"a"), 1, ANY_PARTITION]


@pytest.mark.parametrize("number", [-1, 3, 2**40])
def test_a_partition_that_there_is_not_is_refused(number: int) -> None:
    with pytest.raises(InvalidRequest, match=f"no partition {number}: the topic has 3"):
        partitions_of(batch(partition=[0, None, number]), 3)


def test_a_row_without_a_priority_is_normal() -> None:
    assert lanes_of(batch(priority=["low", None, "high", "normal", "low"])).tolist() == [2, 1, 0, 1, 2]
    assert lanes_of(batch(key=[b"a", b"b"])).tolist() == [1, 1]
    with pytest.raises(InvalidRequest, match="urgent"):
        lanes_of(batch(priority=["low", "urgent"]))
