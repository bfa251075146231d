"""Ages are looked up in the logs only where something has changed."""

import pytest
from unit.engine.store import Store

from quivermq.engine import ages
from quivermq.log import Log


def test_a_log_is_read_once_as_long_as_a_group_stays_where_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    found = ages._append_time

    def counted(log: Log, offset: int, now_us: int) -> int:
        asked.append(offset)
        return found(log, offset, now_us)

    monkeypatch.setattr(ages, "_append_time", counted)
    queue = store.queue()
    queue.put_many([b"1", b"2"])
    [first, _] = queue.get_many(2)
    for _ in range(3):
        store.pass_time(1)
        store.engine.activity()
    assert asked == [0]
    first.ack()
    store.engine.activity()
    assert asked == [0, 1]


def test_a_topic_that_is_gone_is_forgotten(store: Store) -> None:
    look = ages.Ages(store.clock)
    store.queue().put(b"x")
    store.queue().get()
    came_us = store.clock.now_us()
    store.pass_time(1)
    hosted = {"orders": store.engine.hosted("orders")}
    assert look.look(hosted) == {("orders", "default"): came_us}
    assert look.oldest_us(hosted["orders"], hosted["orders"].groups["default"]) == came_us
    assert look.look({}) == {}
    assert look._appended == {}
