"""The store in memory does what the tests rely on."""

import pytest

from quivermq.errors import StoreUnreachable
from quivermq.shared.memory import MemoryStore, Stopped, StoreFault


def test_a_conditional_put_wins_once() -> None:
    store = MemoryStore()
    assert store.put_if_absent("a", b"1")
    assert not store.beside().put_if_absent("a", b"2")
    assert store.get("a", 1) == b"1"
    assert (store.get("b", 1), store.names("")) == (None, ["a"])


def test_a_range_of_an_object() -> None:
    store = MemoryStore({"a": b"0123456789"})
    assert store.get_range("a", 2, 3) == b"234"
    assert store.get_range("a", 8, 3) == b"89"
    assert store.get_range("a", 10, 3) == b""
    assert store.get_range("b", 0, 3) is None


def test_an_unsafe_one_lets_everybody_win() -> None:
    store = MemoryStore(is_safe=False)
    assert store.put_if_absent("a", b"1")
    assert store.beside().put_if_absent("a", b"2")
    assert store.get("a", 1) == b"2"


@pytest.mark.parametrize(
    ("fault", "error", "now", "later"),
    [
        (StoreFault.FAIL, StoreUnreachable, None, None),
        (StoreFault.LOSE_ANSWER, StoreUnreachable, b"1", b"1"),
        (StoreFault.LATE, StoreUnreachable, None, b"1"),
        (StoreFault.STOP_BEFORE, Stopped, None, None),
        (StoreFault.STOP_AFTER, Stopped, b"1", b"1"),
    ],
)
def test_faults(fault: StoreFault, error: type[Exception], now: bytes | None, later: bytes | None) -> None:
    store = MemoryStore(fault=lambda _: fault)
    with pytest.raises(error):
        store.put_if_absent("a", b"1")
    assert store.objects.get("a") == now
    store.deliver_late()
    assert store.objects.get("a") == later
    store.fault = lambda _: None
    if error is Stopped:
        with pytest.raises(Stopped):
            store.names("")


def test_a_doubled_put_meets_itself() -> None:
    store = MemoryStore(fault=lambda _: StoreFault.DOUBLE)
    assert not store.put_if_absent("a", b"1")
    assert store.objects == {"a": b"1"}
