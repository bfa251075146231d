"""Deliveries that go to another process."""

import pickle
from pathlib import Path

import pytest

import quivermq


@pytest.mark.parametrize("attempts_max", [1, 2])
def test_a_pickled_delivery_knows_whether_it_is_the_last_attempt(tmp_path: Path, attempts_max: int) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", attempts_max=attempts_max)
        mq.queue("orders").put(b"x")
        [message] = mq.queue("orders").get_many(1)
        assert pickle.loads(pickle.dumps(message)).is_last_attempt is (attempts_max == 1)
