"""Waking those who wait."""

from support.threads import PATIENCE_S, start

from quivermq.group.waiters import Waiter, Waiters, leave, wake_all


class Guest:
    """Somebody who waits, and counts how often it was woken."""

    def __init__(self, *bells: Waiters) -> None:
        self.woken = 0
        self.waiter = Waiter(self.wake)
        self.bells = bells
        for bell in bells:
            bell.wait(self.waiter)

    def wake(self) -> None:
        self.woken += 1


def test_as_many_are_woken_as_there_are_messages() -> None:
    bell = Waiters()
    guests = [Guest(bell) for _ in range(4)]
    bell.ring()
    bell.ring(2)
    assert [guest.woken for guest in guests] == [1, 1, 1, 0]
    bell.ring(5)
    assert [guest.woken for guest in guests] == [1, 1, 1, 1]
    assert not bell.waiting


def test_a_bell_that_nobody_waits_at_does_no_harm() -> None:
    bell = Waiters()
    bell.ring(10)
    guest = Guest(bell)
    bell.ring(0)
    assert guest.woken == 0


def test_who_waits_at_many_bells_is_woken_once_and_the_next_instead() -> None:
    one, two = Waiters(), Waiters()
    both, other = Guest(one, two), Guest(two)
    one.ring()
    two.ring()
    assert (both.woken, other.woken) == (1, 1)


def test_who_has_gone_is_not_woken_and_takes_no_wake_up_along() -> None:
    bell = Waiters()
    gone, there = Guest(bell), Guest(bell)
    leave(gone.waiter, gone.bells)
    bell.ring()
    assert (gone.woken, there.woken) == (0, 1)


def test_a_wake_up_that_is_not_needed_is_passed_on() -> None:
    bell = Waiters()
    first, second, third = Guest(bell), Guest(bell), Guest(bell)
    bell.ring()
    leave(first.waiter, first.bells, pass_on=True)
    assert (second.woken, third.woken) == (1, 0)
    bell.ring()
    leave(third.waiter, third.bells)
    assert third.woken == 1


def test_a_wake_up_that_was_needed_is_not_passed_on() -> None:
    bell = Waiters()
    first, second = Guest(bell), Guest(bell)
    bell.ring()
    leave(first.waiter, first.bells)
    assert second.woken == 0


def test_who_was_not_woken_passes_nothing_on() -> None:
    bell = Waiters()
    first, second = Guest(bell), Guest(bell)
    leave(first.waiter, first.bells, pass_on=True)
    assert second.woken == 0
    assert list(bell.waiting) == [second.waiter]


def test_who_left_first_passes_nothing_on_that_it_did_not_get() -> None:
    """Somebody rang, took it from the bell, and found it gone: that ring goes to the next by itself."""
    bell = Waiters()
    first, second = Guest(bell), Guest(bell)
    bell.waiting.popleft()
    leave(first.waiter, first.bells, pass_on=True)
    assert (first.woken, second.woken) == (0, 0)
    assert not first.waiter.wake()


def test_only_one_of_many_threads_wakes() -> None:
    for _ in range(50):
        bells = [Waiters() for _ in range(4)]
        guest = Guest(*bells)
        ringing = [start(bell.ring) for bell in bells]
        for ring in ringing:
            ring.result(PATIENCE_S)
        assert guest.woken == 1


def test_no_wake_up_is_lost_between_ringing_and_leaving() -> None:
    """Each ring reaches somebody who stays, as long as there is one."""
    for _ in range(50):
        bell = Waiters()
        leaver, stayer = Guest(bell), Guest(bell)
        ringing = start(bell.ring)
        leaving = start(lambda leaver=leaver: leave(leaver.waiter, leaver.bells, pass_on=True))  # type: ignore[misc]
        ringing.result(PATIENCE_S)
        leaving.result(PATIENCE_S)
        assert stayer.woken == 1


def test_only_the_bells_are_rung_at_which_somebody_waits() -> None:
    waited: set[Waiters] = set()
    bells = [Waiters(waited) for _ in range(3)]
    assert not waited
    guests = [Guest(bells[0]), Guest(bells[0]), Guest(bells[2])]
    assert waited == {bells[0], bells[2]}
    wake_all(waited, 1)
    assert [guest.woken for guest in guests] == [1, 0, 1]
    # Somebody still waits at the first one.
    assert waited == {bells[0]}
    wake_all(waited, 1)
    assert [guest.woken for guest in guests] == [1, 1, 1]
    assert not waited


def test_who_comes_while_the_last_one_is_woken_is_not_forgotten() -> None:
    waited: set[Waiters] = set()
    bell = Waiters(waited)
    late: list[Guest] = []

    class Late(set[Waiters]):
        """Somebody begins to wait just when the bell is taken out."""

        def discard(self, rung: object) -> None:
            if not late:
                late.append(Guest(bell))
            super().discard(bell)

    waited = Late()
    bell = Waiters(waited)
    Guest(bell)
    wake_all(waited, 1)
    assert waited == {bell}
    wake_all(waited, 1)
    assert late[0].woken == 1
