"""Waiting at several shards: whoever is first wakes who waits, and nobody waits there for nobody."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from support.threads import PATIENCE_S, wait_until

from quivermq.cluster.awaiting import Awaiting
from quivermq.errors import Unreachable


class Shards:
    """Shards at which a test says what becomes of a wait."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[int] = SimpleQueue()
        self.outcomes: dict[int, SimpleQueue[Callable[[], bool]]] = {n: SimpleQueue() for n in range(3)}

    def wait_at(self, shard: int, _: float) -> bool:
        self.asked.put(shard)
        return self.outcomes[shard].get(timeout=PATIENCE_S)()


def until_ready(awaiting: Awaiting) -> set[int]:
    found: set[int] = set()
    while not found:
        found = awaiting.wait([0, 1, 2], PATIENCE_S)
    return found


def failing() -> bool:
    raise Unreachable("nobody is there")


def test_the_first_that_has_something_is_told() -> None:
    shards = Shards()
    awaiting = Awaiting(shards.wait_at)
    shards.outcomes[1].put(lambda: True)
    assert until_ready(awaiting) == {1}
    # The others wait on, and are not asked twice.
    assert awaiting.quiet() == {0, 2}
    shards.outcomes[1].put(lambda: True)
    assert until_ready(awaiting) == {1}
    asked = [shards.asked.get(timeout=PATIENCE_S) for _ in range(4)]
    assert sorted(asked) == [0, 1, 1, 2]
    assert shards.asked.empty()
    for shard in (0, 2):
        shards.outcomes[shard].put(lambda: True)
    wait_until(lambda: awaiting.take_ready() or not awaiting._watched)


def test_one_that_fails_is_told_so_that_somebody_looks() -> None:
    shards = Shards()
    awaiting = Awaiting(shards.wait_at)
    shards.outcomes[2].put(failing)
    assert until_ready(awaiting) == {2}
    for shard in (0, 1):
        shards.outcomes[shard].put(lambda: False)
    wait_until(lambda: not awaiting._watched)


def test_a_wait_at_a_shard_ends_when_nobody_wants_to_know() -> None:
    shards = Shards()
    awaiting = Awaiting(shards.wait_at)
    assert awaiting.wait([0], 0.001) == set()
    shards.outcomes[0].put(lambda: False)
    wait_until(lambda: not awaiting._watched)
    assert shards.asked.get(timeout=PATIENCE_S) == 0
    assert shards.asked.empty()


def test_closing_lets_everybody_go() -> None:
    shards = Shards()
    awaiting, ended = Awaiting(shards.wait_at), threading.Event()

    def wait() -> None:
        awaiting.wait([0], PATIENCE_S)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert shards.asked.get(timeout=PATIENCE_S) == 0
    awaiting.close()
    assert ended.wait(PATIENCE_S)
    assert awaiting.wait([0], PATIENCE_S) == set()
    shards.outcomes[0].put(lambda: False)
    wait_until(lambda: not awaiting._watched)
