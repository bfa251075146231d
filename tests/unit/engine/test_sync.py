"""Everything on stable storage, when somebody asks for it."""

from pathlib import Path

import quivermq
from quivermq.engine import engine_of


def test_what_was_buffered_is_synced(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.create_topic("orders", durability="buffered")
        orders = mq.queue("orders")
        orders.put_many([b"x", b"y"])
        [log] = engine_of(mq).catalog.get("orders").topic.lanes().values()
        assert log.synced_end < 2
        orders.sync()
        assert log.synced_end == 2
        orders.put(b"z")
        mq.sync()
        assert log.synced_end == 3


def test_a_level_and_a_size_reach_the_log(tmp_path: Path) -> None:
    values = [b"a" * 1000] * 100
    sizes = []
    with quivermq.open(tmp_path / "data") as mq:
        for name, least in (("small", 0), ("large", 1024**2)):
            mq.create_topic(name, codec="zstd", compression_level=3, compression_bytes_min=least)
            mq.queue(name).put_many(values)
            [log] = engine_of(mq).catalog.get(name).topic.lanes().values()
            sizes.append(log.size_bytes)
    assert sizes[0] * 10 < sizes[1]
