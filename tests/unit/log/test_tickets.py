from collections.abc import Callable

from quivermq.disk import Answer
from quivermq.log.tickets import Tickets


class Counting:
    """A disk on which every appended message is one ticket."""

    failure = None

    def __init__(self) -> None:
        self.last = 0
        self.committed = 0
        self.waited: list[int] = []
        self.shown: list[int] = []

    def ticket(self) -> int:
        return self.last

    def is_committed(self, ticket: int) -> bool:
        return ticket <= self.committed

    def commit(self, ticket: int) -> None:
        self.waited.append(ticket)

    def note(self, ticket: int) -> None:
        self.shown.append(ticket)

    def together(self, act: Callable[[], Answer]) -> Answer:
        return act()

    ordered = together

    def admit(self) -> None:
        """There is room."""


def grow(tickets: Tickets, commits: Counting, ends: range) -> None:
    for end in ends:
        commits.last += 10
        tickets.note(end)


def test_each_offset_has_the_first_ticket_that_covers_it() -> None:
    commits = Counting()
    tickets = Tickets(commits)
    tickets.begin(5)
    grow(tickets, commits, range(8, 20, 3))
    for end in (1, 5, 6, 8, 9, 17):
        tickets.wait(end)
    assert commits.waited == [0, 0, 10, 10, 20, 40]
    tickets.show(11)
    assert commits.shown == [20]


def test_what_nobody_has_noted_is_covered_by_all() -> None:
    commits = Counting()
    tickets = Tickets(commits)
    commits.last = 7
    tickets.wait(1)
    assert commits.waited == [7]


def test_it_ends_where_it_begins_anew() -> None:
    commits = Counting()
    tickets = Tickets(commits)
    grow(tickets, commits, range(1, 10))
    tickets.begin(4)
    grow(tickets, commits, range(5, 6))
    tickets.wait(5)
    assert commits.waited == [100]


def test_what_is_committed_is_forgotten_and_what_is_not_stays() -> None:
    commits = Counting()
    tickets = Tickets(commits)
    grow(tickets, commits, range(1, 1001))
    assert len(tickets._noted[0]) == 1000
    commits.committed = 9_955
    grow(tickets, commits, range(1001, 1025))
    assert len(tickets._noted[0]) < 100
    tickets.wait(3)
    tickets.wait(996)
    assert commits.waited == [9_950, 9_960]
    assert tickets.durable_end() == 995


def test_nothing_is_durable_before_a_commit() -> None:
    commits = Counting()
    tickets = Tickets(commits)
    grow(tickets, commits, range(1, 3))
    assert tickets.durable_end() == 0
    commits.committed = 10
    assert tickets.durable_end() == 1
