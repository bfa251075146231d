"""Change one line from `open` to `connect`: every method takes the same."""

import inspect
from typing import Any

import pytest

import quivermq
from quivermq import aio

CONNECTION = [
    "create_topic", "alter_topic", "delete_topic", "topics", "topic", "groups", "delete_group", "queue",
    "begin_producer", "adopt", "adopt_ids", "replace_segment", "stats", "compact", "use_archive", "verify",
    "close",
]  # fmt: skip
QUEUE = [
    "put", "put_many", "put_frame", "get", "get_many", "pop", "process", "stream", "ack", "nack", "reject",
    "extend", "seek", "read", "peek", "stats", "dead_letters", "redrive", "discard", "scheduled", "cancel",
]  # fmt: skip
DELIVERY = ["ack", "nack", "reject", "extend"]
# What only one of the two has: how many to take ahead over the wire, and the broker's own way to pop many.
BEYOND = {"prefetch", "pop"}


def parameters(owner: type[Any], name: str) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(getattr(owner, name))
    return [(p.name, p.kind, p.default) for p in signature.parameters.values() if p.name not in BEYOND]


@pytest.mark.parametrize("other", [quivermq.Connection, aio.AsyncConnection])
@pytest.mark.parametrize("name", CONNECTION)
def test_a_connection_takes_what_an_engine_takes(other: type[Any], name: str) -> None:
    assert parameters(other, name) == parameters(quivermq.Engine, name)


@pytest.mark.parametrize("other", [quivermq.RemoteQueue, aio.AsyncQueue])
@pytest.mark.parametrize("name", QUEUE)
def test_a_remote_queue_takes_what_a_queue_takes(other: type[Any], name: str) -> None:
    assert parameters(other, name) == parameters(quivermq.Queue, name)
    assert getattr(other, name).__doc__


@pytest.mark.parametrize("name", DELIVERY)
def test_an_asynchronous_delivery_takes_what_a_delivery_takes(name: str) -> None:
    assert parameters(aio.AsyncDelivery, name) == parameters(quivermq.Delivery, name)


def test_an_asynchronous_delivery_has_what_a_delivery_has() -> None:
    public = {name for name in dir(quivermq.Delivery) if not name.startswith("_")}
    assert public <= set(dir(aio.AsyncDelivery))
