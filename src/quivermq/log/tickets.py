"""Which ticket of its disk stands for what is in a log, where the disk has its truth elsewhere."""

from bisect import bisect_left

from quivermq.disk import Commits, Ticket

# So many are noted before those that nobody needs any more are looked for.
_KEPT_MIN = 256


class Tickets:
    """The tickets of everything that was appended lately.

    Whoever writes to the log notes, one at a time; anybody may wait.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        # The offsets behind what was appended, and their tickets. Replaced together, and only made longer.
        self._noted: tuple[list[int], list[Ticket]] = [], []
        self._kept_max = _KEPT_MIN

    def note(self, end: int) -> None:
        """Everything before an offset was appended by now."""
        ends, tickets = self._noted
        # In this order: whoever finds the offset finds its ticket.
        tickets.append(self._commits.ticket())
        ends.append(end)
        if len(ends) >= self._kept_max:
            self._forget_committed(ends, tickets)

    def begin(self, end: int) -> None:
        """The log ends at an offset, and what was behind it never comes again."""
        self._noted = [end], [self._commits.ticket()]

    def durable_end(self) -> int:
        """Everything before this offset is durable; 0 where nobody knows of any."""
        ends, tickets = self._noted
        place = self._first_uncommitted(tickets)
        return ends[min(place, len(ends)) - 1] if place else 0

    def wait(self, end: int) -> None:
        """Return once everything before an offset is durable: see `Commits.commit`."""
        self._commits.commit(self._covering(end))

    def show(self, end: int) -> None:
        """Somebody is shown everything before an offset: see `Commits.note`."""
        self._commits.note(self._covering(end))

    def _covering(self, end: int) -> Ticket:
        ends, tickets = self._noted
        place = bisect_left(ends, end)
        return tickets[place] if place < len(ends) else self._commits.ticket()

    def _forget_committed(self, ends: list[int], tickets: list[Ticket]) -> None:
        # The last of those stays, and stands for all before it.
        last = max(0, self._first_uncommitted(tickets) - 1)
        self._noted = ends[last:], tickets[last:]
        self._kept_max = max(_KEPT_MIN, 2 * len(self._noted[0]))

    def _first_uncommitted(self, tickets: list[Ticket]) -> int:
        return bisect_left(tickets, True, key=lambda ticket: not self._commits.is_committed(ticket))
