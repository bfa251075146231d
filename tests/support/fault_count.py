"""How many faults the tests of the fault suite have caused."""


class FaultCount:
    """How many faults there were in this process since this was made."""

    total = 0

    def __init__(self) -> None:
        self._start = FaultCount.total

    @property
    def count(self) -> int:
        return FaultCount.total - self._start


def count_faults(times: int = 1) -> None:
    """Note that something was broken once more."""
    FaultCount.total += times
