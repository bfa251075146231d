"""LedgerQ: a directory is one queue. Its dead letters are a queue of their own, in one beside it."""

from collections.abc import Iterable
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest
from quivermq.importers.files import names_in, subdirectories
from quivermq.importers.ledgerq_queue import LedgerTopic, holds_dead_letters, segment_paths, sounds_dead
from quivermq.importers.ledgerq_segments import is_segment
from quivermq.importers.ledgerq_state import METADATA
from quivermq.importers.model import Findings

KIND = "ledgerq"


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory is a LedgerQ queue, or holds some."""
    return _is_queue(disk, path) or any(_is_queue(disk, below) for below in subdirectories(disk, path))


def open_source(path: Path, disk: Disk) -> "LedgerSource":
    """A queue by its own directory, or all queues of a directory. Raises InvalidRequest."""
    if _is_queue(disk, path):
        return LedgerSource(path, disk, _topics_of_one(path, disk), has_names=False)
    queues = [below for below in subdirectories(disk, path) if _is_queue(disk, below)]
    if not queues:
        raise InvalidRequest(
            f"{path} is not a LedgerQ directory: neither it nor one inside of it has segments such as"
            f" 00000000000000000001.log, or a {METADATA}"
        )
    return LedgerSource(path, disk, _topics_of_all(queues, disk), has_names=True)


class LedgerSource:
    """One or more queues, each with its dead letters."""

    kind = KIND

    def __init__(self, path: Path, disk: Disk, queues: dict[Path, list[Path]], *, has_names: bool) -> None:
        self.path = path
        self.has_names = has_names
        self.findings = Findings()
        for below in subdirectories(disk, path if has_names else path.parent):
            # Nobody can tell what is in it; beside a queue only dead letters are of interest.
            if has_names or sounds_dead(below):
                names_in(disk, below, self.findings)
        self.topics = [LedgerTopic(disk, queue, graves, self.findings) for queue, graves in queues.items()]

    def close(self) -> None:
        """Nothing is held open."""


def _is_queue(disk: Disk, path: Path) -> bool:
    segments = segment_paths(disk, path)
    if segments:
        return any(is_segment(disk, segment) for _, segment in segments)
    return METADATA in names_in(disk, path)


def _topics_of_one(queue: Path, disk: Disk) -> dict[Path, list[Path]]:
    """The queue, with where its dead letters lie; itself, when it holds nothing else."""
    if holds_dead_letters(disk, queue):
        return {queue: [queue]}
    beside = [path for path in subdirectories(disk, queue.parent) if path.name != queue.name]
    queues = [path for path in beside if _is_queue(disk, path)]
    graves = [path for path in queues if holds_dead_letters(disk, path)]
    live = [queue, *(path for path in queues if path not in graves)]
    return {queue: [grave for grave in graves if _owner(grave, live) == queue]}


def _topics_of_all(queues: list[Path], disk: Disk) -> dict[Path, list[Path]]:
    graves = [queue for queue in queues if holds_dead_letters(disk, queue)]
    live = [queue for queue in queues if queue not in graves]
    # Dead letters of which nobody knows the queue make a topic that has nothing else.
    topics: dict[Path, list[Path]] = {queue: [] for queue in live}
    for grave in graves:
        topics.setdefault(_owner(grave, live) or grave, []).append(grave)
    return dict(sorted(topics.items()))


def _owner(grave: Path, live: Iterable[Path]) -> Path | None:
    """The queue whose dead letters these are: the only one there is, or the one that their name tells."""
    candidates = list(live)
    if len(candidates) > 1:
        # The longest: where there is orders-eu, the letters in orders-eu-dlq are not those of orders.
        candidates = sorted((q for q in candidates if q.name in grave.name), key=lambda q: len(q.name))
    return candidates[-1] if candidates else None
