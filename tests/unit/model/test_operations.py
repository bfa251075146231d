"""Operations: every backend carries out each of them."""

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from quivermq.client.core import queue as queue_flows
from quivermq.client.core import topics as topic_flows
from quivermq.cluster import backend as cluster_backend
from quivermq.cluster import looking as cluster_queue
from quivermq.engine import engine, queue
from quivermq.model import operations
from quivermq.model.operations import Operation, Peek, QueueOperation, Redrive, arguments_of


def kinds(base: type[Any]) -> set[type[Any]]:
    found = (each for each in vars(operations).values() if isinstance(each, type))
    return {each for each in found if issubclass(each, base) and each is not base}


WHOLE, OF_QUEUE = kinds(Operation), kinds(QueueOperation)


def test_there_are_operations_of_both_kinds() -> None:
    assert operations.CreateTopic in WHOLE
    assert operations.Redrive in OF_QUEUE
    assert not WHOLE & OF_QUEUE


@pytest.mark.parametrize(
    ("carried_out", "asked"),
    [
        (engine._METHODS, WHOLE),
        (topic_flows._FLOWS, WHOLE),
        (queue._METHODS, OF_QUEUE),
        (queue_flows._FLOWS, OF_QUEUE),
    ],
    ids=["engine", "client", "queue of an engine", "queue of a client"],
)
def test_every_backend_carries_out_every_operation(
    carried_out: dict[type[Any], Any], asked: set[type[Any]]
) -> None:
    assert set(carried_out) == asked
    # Two operations that do the same would be one too many, and most likely a slip.
    assert len(set(carried_out.values())) == len(asked)


def test_a_cluster_has_something_to_do_for_every_operation() -> None:
    # Several may be done alike: on all shards, or on the one that has the partition.
    assert set(cluster_backend._METHODS) == WHOLE
    assert set(cluster_queue._METHODS) == OF_QUEUE


@pytest.mark.parametrize("kind", sorted(WHOLE | OF_QUEUE, key=str))
def test_an_operation_is_a_value_and_says_what_it_promises(kind: type[Any]) -> None:
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")
    arguments = range(len(kind.__annotations__))
    assert len({kind(*arguments), kind(*arguments)}) == 1, "equal, and hashable: it cannot be changed"


def test_its_fields_are_what_a_method_takes() -> None:
    assert arguments_of(Redrive(None, 3, ["a"], {})) == (None, 3, ["a"], {})
    assert arguments_of(operations.Verify()) == ()


def test_two_that_ask_for_something_else_are_not_equal() -> None:
    assert Peek(1) == Peek(limit=1)
    assert Peek(1) != Peek(2)
    assert operations.Verify() != operations.Sync()
    assert operations.DeleteTopic("a") != operations.GetExtent("a")


def test_it_says_what_it_asks_for() -> None:
    assert repr(operations.DeleteGroup("orders", "all")) == "DeleteGroup(topic='orders', group='all')"
    assert repr(operations.Sync()) == "Sync()"


def test_its_fields_can_be_named_in_any_order() -> None:
    named = operations.DeleteGroup(group="all", topic="orders")
    assert arguments_of(named) == ("orders", "all")
    assert arguments_of(operations.DeleteGroup("orders", group="all")) == ("orders", "all")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((), {}), ((1, 2), {}), ((1,), {"limit": 1}), ((), {"most": 1}), ((1,), {"most": 1})],
)
def test_it_takes_each_field_once(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^Peek takes limit, each once$"):
        Peek(*arguments, **named)


def test_it_cannot_be_changed() -> None:
    peek = Peek(1)
    with pytest.raises(FrozenInstanceError, match="limit"):
        setattr(peek, "limit", 2)  # noqa: B010 - The type checker would refuse it.
    with pytest.raises(FrozenInstanceError, match="limit"):
        delattr(peek, "limit")
    assert peek.limit == 1


def test_it_survives_a_pickle() -> None:
    redrive = Redrive(None, 3, ["a"], {})
    assert pickle.loads(pickle.dumps(redrive)) == redrive
