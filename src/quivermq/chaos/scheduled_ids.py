"""The ids under which delayed messages waited: each has its own wherever it is found."""

from quivermq.chaos.expectation import expect
from quivermq.chaos.numbered import is_delayed


class ScheduledIds:
    """What puts were told, by the number of the message."""

    def __init__(self) -> None:
        self._told: dict[int, str] = {}

    def note(self, number: int, scheduled_id: str | None) -> None:
        """Remember what a put was told; nothing for a message that does not wait, or no longer."""
        if scheduled_id is not None:
            # Put again after it was cancelled, it is another one.
            self._told[number] = scheduled_id

    def check(self, number: int, found: str | None) -> None:
        """Raise Unkept when a message has another id, or one although it was never delayed."""
        if not is_delayed(number):
            expect(found is None, f"message {number} was not delayed, and says that it was {found}")
        elif number in self._told:
            told = self._told[number]
            expect(found == told, f"message {number} was delayed as {told}, and says {found}")
