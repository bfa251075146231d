"""What was seen before is known when its message is gone: retention must not be faster than the note of it.

As long as a message is in its lane, the next opening finds its id and its producer there. Once retention
has taken it, the note is all there is.
"""

from collections.abc import Callable

import pytest
from support.fault_count import count_faults
from support.queues import MODELS, Life, Model

import quivermq
from quivermq.frame import Producer, encode

pytestmark = pytest.mark.fault("producer", "engine")

FRAME = bytes(encode([b"a"], timestamp=1, producer=Producer(9, 0, 0)))

PutOnce = Callable[[quivermq.Queue], quivermq.Put]


def put_with_id(queue: quivermq.Queue) -> quivermq.Put:
    return queue.put(b"a", dedup_id="x")


def put_as_producer(queue: quivermq.Queue) -> quivermq.Put:
    return queue.put_frame(FRAME, partition=0)


def crashed(life: Life, model: Model) -> Life:
    return life.killed() if model == "kill" else life.without_power()


def handle_all(queue: quivermq.Queue) -> None:
    while (message := queue.get()) is not None:
        message.ack()


def check_known(life: Life, put: PutOnce, first: quivermq.Put) -> None:
    assert put(life.queue()) == first._replace(duplicate=True)
    assert life.queue().get() is None
    count_faults()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("put", [put_with_id, put_as_producer])
def test_a_repetition_of_what_is_finished_and_gone(put: PutOnce, model: Model) -> None:
    life = Life()
    queue = life.create(delete_finished=True, dedup_window_ms=3_600_000)
    first = put(queue)
    handle_all(queue)
    life.engine.compact()
    assert queue.read(0) == []
    check_known(crashed(life, model), put, first)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("put", [put_with_id, put_as_producer])
def test_also_when_there_was_no_room_for_the_note(put: PutOnce, model: Model) -> None:
    life = Life()
    queue = life.create(delete_finished=True, dedup_window_ms=3_600_000)
    queue.put(b"before", dedup_id="before")
    # The first step is the message itself, the second one the note of it.
    life.disk.refuse("append", at=range(life.disk.steps + 2, life.disk.steps + 3))
    first = put(queue)
    life.disk.refuse()
    assert first.offset == 1
    handle_all(queue)
    life.engine.compact()
    assert queue.read(0) == []
    check_known(crashed(life, model), put, first)
