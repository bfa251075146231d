"""A forked child has nothing of its parent's queue, and is told so by whatever it calls."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import quivermq

CALLS: dict[str, Callable[[quivermq.Connection, quivermq.Queue, quivermq.Delivery], object]] = {
    "put": lambda _, queue, __: queue.put(b"y"),
    "get": lambda _, queue, __: queue.get(),
    "get, waiting": lambda _, queue, __: queue.get(timeout=5),
    "get_many": lambda _, queue, __: queue.get_many(5),
    "pop": lambda _, queue, __: queue.pop(),
    "another queue": lambda mq, _, __: mq.queue("orders", "other").get(),
    "ack": lambda _, __, message: message.ack(),
    "release": lambda _, queue, message: queue.release([message]),
    "stats": lambda _, queue, __: queue.stats(),
    "all stats": lambda mq, _, __: mq.stats(),
    "topics": lambda mq, _, __: mq.topics(),
    "peek": lambda _, queue, __: queue.peek(),
    "read": lambda _, queue, __: queue.read(),
    "scheduled": lambda _, queue, __: queue.scheduled(),
    "cancel": lambda _, queue, __: queue.cancel("1-1-1"),
    "seek": lambda _, queue, __: queue.seek("earliest"),
    "dead letters": lambda _, queue, __: queue.dead_letters(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_open_the_queue_itself(tmp_path: Path, name: str) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", durability="os")
        queue = mq.queue("orders")
        queue.put_many([b"1", b"2"])
        message = queue.get()
        assert message is not None
        pid = os.fork()
        if not pid:
            try:
                CALLS[name](mq, queue, message)
            except quivermq.Closing as error:
                os._exit(0 if "before the fork" in str(error) else 1)
            except BaseException:
                os._exit(2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        # And the parent goes on as if nothing had been.
        message.ack()
        assert [each.value for each in queue.get_many(5)] == [b"2"]
