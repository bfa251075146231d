"""A put that is refused for want of room has left nothing behind, wherever its messages would have gone."""

import asyncio
from typing import Any

import pytest
from support.faulty_disk import FaultyDisk
from support.site import Site
from unit.engine.store import Store

import quivermq
from quivermq import Message
from quivermq.server.routes import publish

PARTITIONS = 3


def stored(queue: quivermq.Queue, partitions: int = PARTITIONS) -> list[bytes]:
    found: list[bytes] = []
    for number in range(partitions):
        for priority in ("high", "normal", "low"):
            found += [each.value for each in queue.read(number, priority=priority, limit=1000)]
    return sorted(found) + sorted(each.value for each in queue.scheduled())


def batches() -> list[list[bytes | Message]]:
    return [
        [b"%d" % n * 50 for n in range(9)],
        [Message(b"%d" % n * 50, key=b"k%d" % n) for n in range(9)],
        [Message(b"%d" % n * 50, partition=n % 3, priority=("high", "low")[n % 2]) for n in range(9)],
        [Message(b"%d" % n * 50, partition=n % 3, dedup_id=str(n)) for n in range(9)],
    ]


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("batch", batches())
def test_many_messages_are_all_there_or_none(store: Store, batch: list[Any], durability: Any) -> None:
    queue = store.queue(partitions=PARTITIONS, durability=durability)
    queue.put_many(batch[:3])
    before, refused = stored(queue), 0
    fresh = [m if isinstance(m, bytes) else Message(m.value + b"!", partition=m.partition) for m in batch]
    for room_bytes in range(0, 2600, 130):
        store.disk.fill_after(room_bytes)
        try:
            queue.put_many(fresh)
        except quivermq.DiskFull:
            assert stored(queue) == before, room_bytes
            refused += 1
        else:
            before = stored(queue)
    assert 0 < refused < 20
    store.disk.fill_after(None)
    assert len(queue.put_many(fresh)) == len(fresh)
    now = stored(queue)
    store.kill()
    assert stored(store.queue()) == now


def test_what_waits_does_not_stay_without_what_it_came_with(store: Store) -> None:
    queue = store.queue()
    queue.put_many([Message(b"a", delay=60), b"b"])
    before, outcomes = stored(queue, 1), set()
    for room_bytes in range(0, 1500, 50):
        store.disk.fill_after(room_bytes + 5000)
        large = bytes(room_bytes + 4800)
        try:
            queue.put_many([Message(b"late", delay=60), large])
        except quivermq.DiskFull:
            outcomes.add("refused")
            assert stored(queue, 1) == before
        else:
            outcomes.add("stored")
            before = stored(queue, 1)
        store.disk.fill_after(None)
    assert "refused" in outcomes


def test_those_who_put_at_the_same_time_are_each_told_what_became_of_theirs() -> None:
    with Site(publish.ROUTES) as site:
        site.engine.create_topic("orders", partitions=PARTITIONS)
        disk: FaultyDisk = site.disk
        queue, statuses = site.engine.queue("orders"), set[int]()
        expected: list[bytes] = []
        number = 0

        async def put_at_once(count: int) -> list[tuple[bytes, int]]:
            nonlocal number
            values = [b"%04d" % n for n in range(number, number + count)]
            number += count
            queries = ("", "?priority=high", "?key=a", "?delay_ms=60000", "?partition=2")
            paths = [f"/v1/topics/orders/messages{queries[n % 5]}" for n in range(count)]
            answers = [site.answer("POST", path, v) for path, v in zip(paths, values, strict=True)]
            return [
                (value, answer.status)
                for value, answer in zip(values, await asyncio.gather(*answers), strict=True)
            ]

        expected += [value for value, _ in site.run(put_at_once(10))]
        for room_bytes in range(0, 4000, 200):
            disk.fill_after(room_bytes)
            answers = site.run(put_at_once(10))
            statuses |= {status for _, status in answers}
            expected += [value for value, status in answers if status == 200]
            assert sorted(stored(queue)) == sorted(expected), room_bytes
        disk.fill_after(None)
        assert statuses == {200, 507}
