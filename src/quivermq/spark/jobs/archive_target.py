"""Which directory is the archive of a queue, and telling the queue that it is."""

import logging
from pathlib import Path
from typing import Any

from quivermq.archive import Archive, load_pointer, store_pointer
from quivermq.archive.pointer import DEFAULT_NAME
from quivermq.client.core.wire import decoded
from quivermq.disk import SystemDisk
from quivermq.errors import Conflict, Denied, DirectoryLocked, InvalidRequest, NotFound, StorageFailed
from quivermq.spark.broker_place import BrokerPlace
from quivermq.spark.directory_place import DirectoryPlace, local_path
from quivermq.spark.jobs.where import Where
from quivermq.spark.place import Place

logger = logging.getLogger(__name__)


def archive_of(place: Place) -> Path | None:
    """What a queue calls its archive; None when it has none. Raises Denied, StorageFailed."""
    if isinstance(place, DirectoryPlace):
        return load_pointer(SystemDisk(), place.path)
    assert isinstance(place, BrokerPlace)
    connection = place.connection
    answer = connection.shell.run(connection.calls.ask("GET", "/v1/archive"))
    told: Any = decoded(answer.body)["directory"]
    return None if told is None else Path(told)


def may_be_archived(place: Place, topic: str) -> bool:
    """Whether an archive has something of a topic; True as well when nobody can tell."""
    try:
        directory = archive_of(place)
        if directory is None:
            return False
        archive = Archive(directory)
        archive.check()
        return archive.topic(topic, place.created_us(topic)) is not None
    except (NotFound, Denied, StorageFailed):
        return True


class ArchiveTarget:
    """The archive of a queue: the one it has, or the one that it gets."""

    def __init__(self, where: Where, place: Place, to: str | None) -> None:
        self._where = where
        self._place = place
        self._known = self._look()
        self.directory = self._chosen(to)

    def _look(self) -> Path | None:
        """What the queue calls its archive."""
        try:
            return archive_of(self._place)
        except Denied:
            return None  # The key may read messages, and that is all this needs.

    def _chosen(self, to: str | None) -> Path:
        chosen = None if to is None else local_path(to)
        if chosen is not None:
            if self._known is not None and self._known.absolute() != chosen:
                # Two archives of one queue would each have a part, and nobody would look into both.
                raise Conflict(
                    f"the archive of this queue is {self._known}, not {chosen}: go on with that one,"
                    " or let the queue forget it with use_archive(None)"
                )
            return chosen
        if self._known is not None:
            return self._known
        if isinstance(self._place, DirectoryPlace):
            return self._place.path / DEFAULT_NAME
        raise InvalidRequest("the broker has no archive yet: say where to put it, with to= (--to)")

    def tell(self) -> bool:
        """Tell the queue where its archive is. False when it cannot read it, or may not be told."""
        if self._known is not None:
            return True
        if isinstance(self._place, DirectoryPlace):
            store_pointer(SystemDisk(), self._place.path, self.directory)
            return True
        assert isinstance(self._place, BrokerPlace)
        try:
            self._place.connection.use_archive(self.directory)
        except (NotFound, Denied) as error:
            logger.warning("%s does not serve what is archived: %s", self._place, error)
            return False
        return True

    def free(self) -> Any:
        """Let the queue remove what is archived and finished with. Raises DirectoryLocked."""
        try:
            queue = self._where.queue()
        except DirectoryLocked as error:
            raise DirectoryLocked.__new__(
                DirectoryLocked,
                f"{error}: everything is archived, but only whoever has the directory open can free it;"
                " if that is a broker, archive with server= (--server)",
            ) from None
        with queue:
            return queue.compact(archived=True)
