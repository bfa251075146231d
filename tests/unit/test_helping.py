"""Waiting and threads that no exception of a signal handler leaves locked."""

import threading
from _thread import LockType

import pytest
from support.threads import PATIENCE_S, wait_until

from quivermq.helping import Condition, Helper, Latch


def test_a_condition_is_entered_by_its_lock() -> None:
    condition, news = Condition(), list[str]()
    with pytest.raises(TypeError, match="lock"), condition:
        pass

    def wait() -> None:
        with condition.lock:
            condition.wait_for(lambda: news, PATIENCE_S)
            news.append("heard")

    thread = threading.Thread(target=wait)
    thread.start()
    with condition.lock:
        news.append("told")
        condition.notify_all()
    thread.join()
    assert news == ["told", "heard"]


@pytest.mark.parametrize("lock", [None, threading.Lock()])
def test_who_is_struck_while_letting_go_of_the_lock_has_it_again(lock: LockType | None) -> None:
    condition = Condition(lock)
    release = condition._release_save  # type: ignore[attr-defined]

    def strike() -> None:
        release()
        raise KeyboardInterrupt

    condition._release_save = strike  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt), condition.lock:
        condition.wait(PATIENCE_S)
    with condition.lock:
        condition.notify_all()


def test_who_was_woken_when_an_exception_struck_is_woken_again() -> None:
    condition, turns = Condition(), list[int]()

    def wait() -> None:
        with condition.lock:
            while len(turns) < 2:
                condition.wait(PATIENCE_S)

    thread = threading.Thread(target=wait)
    thread.start()
    while not condition._waiters:  # type: ignore[attr-defined]
        continue
    with condition.lock:
        # As `notify` leaves it when an exception strikes behind the waking.
        condition._waiters[0].release()  # type: ignore[attr-defined]
        turns.append(1)
    while len(condition._waiters) < 2:  # type: ignore[attr-defined]
        continue
    with condition.lock:
        turns.append(2)
        condition.notify_all()
    thread.join(PATIENCE_S / 10)
    assert not thread.is_alive()


def test_a_flag_is_set_once_and_for_all() -> None:
    flag = Latch()
    assert not flag.wait(0)
    flag.set()
    flag.set()
    assert flag.is_set()
    assert all(flag.wait(PATIENCE_S) for _ in range(2))


def test_a_flag_wakes_all_who_wait() -> None:
    flag, woken = Latch(), list[bool]()
    threads = [threading.Thread(target=lambda: woken.append(flag.wait(PATIENCE_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join()
    assert woken == [True] * 3


def test_a_helper_works_once_however_often_it_is_started() -> None:
    worked: list[str] = []
    helper = Helper(lambda: worked.append(threading.current_thread().name), "quiver-test")
    helper.join()
    helper.start()
    # As if an exception had struck behind the first start.
    helper._is_started = False
    helper.start()
    helper.join()
    assert worked == ["quiver-test"]
    assert helper.is_over()


def test_a_helper_does_not_wait_for_itself() -> None:
    ended: list[bool] = []

    def work() -> None:
        helper.join()
        ended.append(True)

    helper = Helper(work, "quiver-test")
    helper.start()
    helper.join()
    assert ended == [True]


def test_a_helper_for_which_there_is_no_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[bool] = []
    helper = Helper(lambda: worked.append(True), "quiver-test")

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(helper._thread, "start", refuse)
        helper.start()
        helper.join()
    helper.start()
    wait_until(lambda: worked == [True])
