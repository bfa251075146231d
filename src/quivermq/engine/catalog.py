"""The topics that are not open, as the queue was closed with them: a log of its own, kept short.

An entry holds as long as nobody uses its topic. Before a topic is opened, the catalog says, durably, that
its entry holds no longer; with the queue's closing it gets a new one. So whatever dies in between, no entry
tells of a topic as it was before.
"""

import json
import logging
from collections.abc import Mapping

from quivermq.engine.resting import Resting
from quivermq.errors import DiskRefused, QuiverError, StorageFailed
from quivermq.log import DataDirectory
from quivermq.log.directory import CATALOG_NAME as NAME
from quivermq.topic.state_log import StateLog

logger = logging.getLogger(__name__)

_TOPICS_A_RECORD = 100


class Catalog:
    """Comes to be with the first closing of a queue that has many topics. The caller's lock guards it."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._log: StateLog | None = None
        self._entries: dict[str, Resting] = {}

    def load(self) -> dict[str, Resting]:
        """The entries that hold. One that cannot be read is as good as none: every topic is opened then."""
        if not self._directory.disk.is_directory(self._directory.path / NAME):
            return {}
        try:
            self._log = StateLog(self._directory, NAME)
            self._log.apply(self._apply)
        except StorageFailed as error:
            logger.warning("the catalog of topics is not used: %s", error)
            self.forget()
        return dict(self._entries)

    def _apply(self, record: bytes) -> None:
        try:
            used, topics = json.loads(record)
            for name in used:
                self._entries.pop(name, None)
            self._entries.update((name, Resting.from_json(each)) for name, each in topics.items())
        except TypeError as error:
            raise ValueError(str(error)) from error

    def use(self, name: str) -> None:
        """A topic is about to be opened: what is known of it holds no longer, whatever happens."""
        if self._log is None or self._entries.pop(name, None) is None:
            return
        try:
            self._log.sync(self._log.append(_record([name], {})))
        except DiskRefused:
            # To take it away needs no room, and is as true.
            self.forget()

    def store(self, entries: Mapping[str, Resting]) -> None:
        """Put these in place of what there is. All that they tell of is durable."""
        names = sorted(entries)
        try:
            if self._log is None or self._log.log.is_closed:
                self._log = StateLog(self._directory, NAME)
            self._log.snapshot(
                _record([], {name: entries[name] for name in names[start : start + _TOPICS_A_RECORD]})
                for start in range(0, len(names), _TOPICS_A_RECORD)
            )
        except QuiverError as error:
            # Then the next opening opens them all.
            logger.warning("there is no catalog of topics: %s", error)
            self.forget()

    def forget(self) -> None:
        """Take it away: nothing is known of topics that are not open. Raises StorageFailed."""
        self._entries.clear()
        self._log = None
        self._directory.remove(NAME)


def _record(used: list[str], topics: Mapping[str, Resting]) -> bytes:
    document = [used, {name: entry.to_json() for name, entry in topics.items()}]
    return json.dumps(document, separators=(",", ":")).encode()
