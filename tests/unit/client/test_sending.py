"""What a producer takes."""

import threading

import pytest
from unit.client.flows import Script, answer

from quivermq.client.producing.options import ProducerOptions
from quivermq.client.producing.sending import Sending
from quivermq.errors import MessageTooLarge

MIB = 2**20


def sending(message_bytes_max: int) -> Sending:
    found = Sending("orders", ProducerOptions(), threading.Lock())
    settings = {"partitions": 1, "message_bytes_max": message_bytes_max}
    Script(answer({"name": "orders", "groups": {}, "dead_letters_of": None, "settings": settings})).run(
        found.begin()
    )
    return found


def test_a_key_counts_for_the_limit_of_the_topic() -> None:
    found = sending(1000)
    assert found.checked_rich(bytes(900), bytes(100), None, "normal").size >= 1000
    with pytest.raises(MessageTooLarge) as caught:
        found.checked_rich(bytes(900), bytes(101), None, "normal")
    assert caught.value.limit_bytes == 1000


@pytest.mark.parametrize("size", [3 * MIB, 100 * MIB])
def test_a_topic_may_take_larger_messages_than_most(size: int) -> None:
    found = sending(size)
    assert len(found.checked_rich(bytes(size - 1), b"k", None, "normal").value) == size - 1
    with pytest.raises(MessageTooLarge):
        found.checked_rich(bytes(size), b"k", None, "normal")
