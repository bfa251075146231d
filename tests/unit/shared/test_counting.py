"""Requests to a store are counted by kind, with their bytes and those that failed."""

from dataclasses import replace

import pytest

from quivermq.errors import StoreUnreachable
from quivermq.shared.counting import KINDS, CountingStore, Requests
from quivermq.shared.memory import MemoryStore, StoreFault
from quivermq.shared.objects import ObjectStore


def test_each_request_is_passed_on_and_counted() -> None:
    below = MemoryStore()
    counting = CountingStore(below)
    store: ObjectStore = counting
    assert counting.requests == dict.fromkeys(KINDS, Requests())
    store.put("a/1", b"12345")
    assert store.put_if_absent("a/2", b"123")
    assert not store.put_if_absent("a/2", b"1234")
    assert store.get("a/1", 5) == b"12345"
    assert store.get("a/3", 5) is None
    assert store.get_range("a/1", 1, 3) == b"234"
    assert store.get_range("a/3", 1, 3) is None
    assert store.names("a/") == ["a/1", "a/2"]
    store.remove(["a/1", "a/2"])
    # Nothing is asked for nothing.
    store.remove([])
    store.close()
    assert counting.requests == {
        "put": Requests(3, 0, 12),
        "get": Requests(2, 0, 5),
        "range": Requests(2, 0, 3),
        "list": Requests(1),
        "delete": Requests(1),
    }
    assert below.objects == {}


def test_many_names_are_several_requests() -> None:
    store = CountingStore(MemoryStore({f"{n}": b"" for n in range(2500)}))
    store.remove(store.names(""))
    assert (store.requests["list"].count, store.requests["delete"].count) == (3, 3)


def test_what_fails_is_counted_as_well() -> None:
    store = CountingStore(MemoryStore(fault=lambda _: StoreFault.LOSE_ANSWER))
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            store.put("a", b"123")
    assert store.requests["put"] == replace(Requests(), count=2, failed=2)
