"""Waking those who wait."""

from support.threads import PATIENCE_S, start

from quivermq.group.waiters import Waiter, Waiters, leave, wake_waited


class Guest:
    """Somebody who waits, and counts how often it was woken."""

    def __init__(self, *places: Waiters) -> None:
        self.woken = 0
        self.waiter = Waiter(self.wake)
        self.places = places
        for waiters in places:
            waiters.wait(self.waiter)

    def wake(self) -> None:
        self.woken += 1


def test_as_many_are_woken_as_there_are_messages() -> None:
    waiters = Waiters()
    those = [Guest(waiters) for _ in range(4)]
    waiters.wake()
    waiters.wake(2)
    assert [guest.woken for guest in those] == [1, 1, 1, 0]
    waiters.wake(5)
    assert [guest.woken for guest in those] == [1, 1, 1, 1]
    assert not waiters.waiting


def test_waking_where_nobody_waits_does_no_harm() -> None:
    waiters = Waiters()
    waiters.wake(10)
    guest = Guest(waiters)
    waiters.wake(0)
    assert guest.woken == 0


def test_who_waits_in_many_places_is_woken_once_and_the_next_instead() -> None:
    one, two = Waiters(), Waiters()
    both, other = Guest(one, two), Guest(two)
    one.wake()
    two.wake()
    assert (both.woken, other.woken) == (1, 1)


def test_who_has_gone_is_not_woken_and_takes_no_wake_up_along() -> None:
    waiters = Waiters()
    gone, there = Guest(waiters), Guest(waiters)
    leave(gone.waiter, gone.places)
    waiters.wake()
    assert (gone.woken, there.woken) == (0, 1)


def test_a_wake_up_that_is_not_needed_is_passed_on() -> None:
    waiters = Waiters()
    first, second, third = Guest(waiters), Guest(waiters), Guest(waiters)
    waiters.wake()
    leave(first.waiter, first.places, pass_on=True)
    assert (second.woken, third.woken) == (1, 0)
    waiters.wake()
    leave(third.waiter, third.places)
    assert third.woken == 1


def test_a_wake_up_that_was_needed_is_not_passed_on() -> None:
    waiters = Waiters()
    first, second = Guest(waiters), Guest(waiters)
    waiters.wake()
    leave(first.waiter, first.places)
    assert second.woken == 0


def test_who_was_not_woken_passes_nothing_on() -> None:
    waiters = Waiters()
    first, second = Guest(waiters), Guest(waiters)
    leave(first.waiter, first.places, pass_on=True)
    assert second.woken == 0
    assert list(waiters.waiting) == [second.waiter]


def test_who_left_first_passes_nothing_on_that_it_did_not_get() -> None:
    """Somebody woke it, took it from the waiters, and found it gone: that goes to the next by itself."""
    waiters = Waiters()
    first, second = Guest(waiters), Guest(waiters)
    waiters.waiting.popleft()
    leave(first.waiter, first.places, pass_on=True)
    assert (first.woken, second.woken) == (0, 0)
    assert not first.waiter.wake()


def test_only_one_of_many_threads_wakes() -> None:
    for _ in range(50):
        places = [Waiters() for _ in range(4)]
        guest = Guest(*places)
        waking = [start(waiters.wake) for waiters in places]
        for ring in waking:
            ring.result(PATIENCE_S)
        assert guest.woken == 1


def test_no_wake_up_is_lost_between_ringing_and_leaving() -> None:
    """Each ring reaches somebody who stays, as long as there is one."""
    for _ in range(50):
        waiters = Waiters()
        leaver, stayer = Guest(waiters), Guest(waiters)
        waking = start(waiters.wake)
        leaving = start(lambda leaver=leaver: leave(leaver.waiter, leaver.places, pass_on=True))  # type: ignore[misc]
        waking.result(PATIENCE_S)
        leaving.result(PATIENCE_S)
        assert stayer.woken == 1


def test_only_those_places_are_looked_at_where_somebody_waits() -> None:
    waited: set[Waiters] = set()
    places = [Waiters(waited) for _ in range(3)]
    assert not waited
    those = [Guest(places[0]), Guest(places[0]), Guest(places[2])]
    assert waited == {places[0], places[2]}
    wake_waited(waited, 1)
    assert [guest.woken for guest in those] == [1, 0, 1]
    # Somebody still waits at the first one.
    assert waited == {places[0]}
    wake_waited(waited, 1)
    assert [guest.woken for guest in those] == [1, 1, 1]
    assert not waited


def test_who_comes_while_the_last_one_is_woken_is_not_forgotten() -> None:
    waited: set[Waiters] = set()
    waiters = Waiters(waited)
    late: list[Guest] = []

    class Late(set[Waiters]):
        """Somebody begins to wait just when the waiters is taken out."""

        def discard(self, rung: object) -> None:
            if not late:
                late.append(Guest(waiters))
            super().discard(waiters)

    waited = Late()
    waiters = Waiters(waited)
    Guest(waiters)
    wake_waited(waited, 1)
    assert waited == {waiters}
    wake_waited(waited, 1)
    assert late[0].woken == 1
