"""What is awaited takes what is called: every method of the same name, with the same parameters."""

import inspect
from typing import Any

import pytest

import quivermq
from quivermq import aio

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (quivermq.Connection, aio.AsyncConnection),
    (quivermq.Queue, aio.AsyncQueue),
    (quivermq.Delivery, aio.AsyncDelivery),
]


def public(owner: type[Any]) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


METHODS = [
    (own, other, name)
    for own, other in PAIRS
    for name in sorted(public(own))
    if inspect.isfunction(getattr(own, name))
]


def parameters(owner: type[Any], name: str) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(getattr(owner, name))
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(
    ("own", "other", "name"), METHODS, ids=[f"{own.__name__}.{name}" for own, _, name in METHODS]
)
def test_an_asynchronous_method_takes_what_the_other_takes(
    own: type[Any], other: type[Any], name: str
) -> None:
    assert parameters(other, name) == parameters(own, name)
    assert getattr(own, name).__doc__
    assert getattr(other, name).__doc__


@pytest.mark.parametrize(("own", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_an_asynchronous_object_has_what_the_other_has(own: type[Any], other: type[Any]) -> None:
    assert public(own) <= public(other)
    # The only thing beyond: a delivery that can be pickled.
    assert public(other) - public(own) == ({"held"} if own is quivermq.Delivery else set())


# What answers at once, and what is for `async for` and `async with`.
NOT_AWAITED = {"AsyncConnection": {"queue", "consumer"}, "AsyncQueue": {"stream", "process"}}


@pytest.mark.parametrize(("own", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_everything_else_is_awaited(own: type[Any], other: type[Any]) -> None:
    methods = {name for name in public(own) if inspect.isfunction(getattr(own, name))}
    plain = {name for name in methods if not inspect.iscoroutinefunction(getattr(other, name))}
    assert plain == NOT_AWAITED.get(other.__name__, set())
