"""Waiting until everything is on stable storage."""

from typing import Any

import pytest

import quivermq


def test_everything_that_was_put_is_synced(mq: Any, orders: Any) -> None:
    mq.create_topic("orders", durability="buffered", partitions=2)
    orders.put(b"x", priority="high")
    orders.put_many([b"y", b"z"])
    orders.put(b"later", delay=600)
    orders.sync()
    mq.sync()
    assert orders.stats().pending == 3


def test_what_is_not_there_cannot_be_synced(mq: Any, orders: Any) -> None:
    mq.sync()
    with pytest.raises(quivermq.TopicNotFound):
        orders.sync()
    with pytest.raises(quivermq.InvalidName):
        mq.queue("a.*").sync()
