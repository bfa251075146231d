"""Stores that only pretend to have conditional puts are found out."""

import threading

import pytest

from quivermq.errors import StoreUnreachable, UnsafeStore
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep
from quivermq.shared.race import check_conditional_puts


def test_a_safe_store_is_accepted_and_left_clean() -> None:
    store = MemoryStore()
    check_conditional_puts(store)
    assert store.objects == {}


def test_a_store_that_ignores_the_condition_is_refused_and_left_clean() -> None:
    store = MemoryStore(is_safe=False)
    with pytest.raises(UnsafeStore, match="let 4 of 4 writers create the same object"):
        check_conditional_puts(store)
    assert store.objects == {}


class LookingStore(MemoryStore):
    """Looks whether the object is there, and then writes it, as some gateways do."""

    def __init__(self) -> None:
        super().__init__(is_safe=False)
        self._looked = threading.Barrier(4, timeout=5)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.get(name, 1024) is not None:
            return False
        self._looked.wait()
        return super().put_if_absent(name, data)


def test_a_store_that_looks_first_is_refused() -> None:
    with pytest.raises(UnsafeStore, match="its conditional puts are not real"):
        check_conditional_puts(LookingStore())


class ForgetfulStore(MemoryStore):
    """Has a race right, and a moment later knows nothing of it."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if data == b"late":
            self.is_safe = False
        return super().put_if_absent(name, data)


def test_a_store_without_a_memory_is_refused() -> None:
    with pytest.raises(UnsafeStore, match="it has no conditional puts"):
        check_conditional_puts(ForgetfulStore())


def test_a_put_that_met_itself_is_no_reason_to_refuse() -> None:
    def double(step: StoreStep) -> StoreFault | None:
        return StoreFault.DOUBLE if step.operation == "put_if_absent" else None

    check_conditional_puts(MemoryStore(fault=double))


def test_a_store_that_does_not_answer_is_neither() -> None:
    with pytest.raises(StoreUnreachable):
        check_conditional_puts(MemoryStore(fault=lambda _: StoreFault.FAIL))


def test_what_is_left_behind_does_not_hide_what_was_found() -> None:
    def keep(step: StoreStep) -> StoreFault | None:
        return StoreFault.FAIL if step.operation == "remove" else None

    with pytest.raises(UnsafeStore):
        check_conditional_puts(MemoryStore(fault=keep, is_safe=False))
