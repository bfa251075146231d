"""One partition of a topic: a log for each priority lane, opened when it is first used."""

import threading

from quivermq.errors import InvalidRequest
from quivermq.log import DataDirectory, Log
from quivermq.settings import StorageSettings
from quivermq.topic.removals import Removals

LANES = ("high", "normal", "low")
LANE_NUMBERS = {lane: number for number, lane in enumerate(LANES)}


class Partition:
    """The lanes of one partition. Thread-safe."""

    def __init__(
        self, directory: DataDirectory, topic: str, number: int, settings: StorageSettings
    ) -> None:
        self.topic = topic
        self.number = number
        self.name = f"topics/{topic}/p{number}"
        self._directory = directory
        self._settings = settings
        self._opening = threading.Lock()
        found = directory.disk.names(directory.path / self.name)
        # By number; None where nobody has used the lane yet. An opened one never changes.
        self.logs: list[Log | None] = [self._open(lane) if lane in found else None for lane in LANES]
        self.removals = Removals(directory, f"{self.name}/removed")
        self.removals.cut([log.end if log else 0 for log in self.logs])

    def log(self, lane: int) -> Log:
        """The log of a lane, created when it is new."""
        log = self.logs[lane]
        if log is None:
            with self._opening:
                log = self.logs[lane] = self.logs[lane] or self._open(LANES[lane])
        return log

    def configure(self, settings: StorageSettings) -> None:
        """Go on with other settings."""
        with self._opening:
            self._settings = settings
            for log in self.logs:
                if log is not None:
                    log.configure(settings)

    def close(self) -> None:
        """Let go of the files; `Topic` may open the partition again."""
        for lane, log in zip(LANES, self.logs, strict=True):
            if log is not None:
                self._directory.release(f"{self.name}/{lane}")

    def _open(self, lane: str) -> Log:
        return self._directory.log(f"{self.name}/{lane}", self._settings)


def lane_number(priority: object) -> int:
    """The number of a priority's lane. Raises InvalidRequest."""
    try:
        return LANE_NUMBERS[priority]  # type: ignore[index]  # Any other type is refused right here.
    except (KeyError, TypeError):
        raise InvalidRequest(f"priority is one of {', '.join(LANES)}, not {priority!r}") from None
