"""How many faults there were so far in this process, for those who tell how much was tried."""


class Tally:
    """Counts from where it was made on."""

    total = 0

    def __init__(self) -> None:
        self._start = Tally.total

    @property
    def count(self) -> int:
        return Tally.total - self._start


def tried(times: int = 1) -> None:
    """Note that something was broken once more."""
    Tally.total += times
