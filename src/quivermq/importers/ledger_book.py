"""The records of all imports, as they lie in a topic of the target; each is read once in a run."""

from collections.abc import Iterable

from quivermq.importers.target import ImportTarget, LaneId
from quivermq.topic.names import IMPORTS_TOPIC

LEDGER_LANE = LaneId(0, "normal")


class LedgerBook:
    """Reads on from where it was. It keeps what is about the topics that a run imports into."""

    def __init__(self, target: ImportTarget, topics: Iterable[str]) -> None:
        self._target = target
        self._unread: dict[bytes, list[bytes]] = {topic.encode(): [] for topic in topics}
        self._created_us: int | None = None
        self._next = 0

    def read_on(self, topic: str) -> list[bytes]:
        """The records about a topic that it was not given yet, in order."""
        self._catch_up()
        records, self._unread[topic.encode()] = self._unread[topic.encode()], []
        return records

    def _catch_up(self) -> None:
        view = self._target.look(IMPORTS_TOPIC)
        offsets = None if view is None else view.lanes.get(LEDGER_LANE)
        if view is None or offsets is None:
            return
        if view.created_us != self._created_us:
            # The first look, or somebody has deleted it meanwhile.
            self._created_us, self._next = view.created_us, 0
        start = max(self._next, offsets.start)
        for frame in self._target.frames(IMPORTS_TOPIC, LEDGER_LANE, start, offsets.stop):
            for key, value in zip(frame.keys(), frame.values(), strict=True):
                if key in self._unread:
                    self._unread[key].append(value)
        self._next = max(start, offsets.stop)
