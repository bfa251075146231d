"""LedgerQ: a directory is one queue. Its dead letters are a queue of their own, in one beside it."""

from collections.abc import Iterable
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest
from quivermq.importers.files import is_directory, names_in, subdirectories
from quivermq.importers.ledgerq_queue import (
    INDEX,
    LedgerTopic,
    holds_dead_letters,
    segment_paths,
    sounds_dead,
)
from quivermq.importers.ledgerq_segments import is_blank, is_index, is_segment
from quivermq.importers.ledgerq_state import DEDUP, METADATA, RETRIES
from quivermq.importers.model import Findings

KIND = "ledgerq"

# No other queue has files of these names.
_STATE = {METADATA, RETRIES, DEDUP}
_OTHER_INDEX = (".index", ".timeindex")


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
        self._disk = disk
        if has_names:
            self._tell_others({path for queue, graves in queues.items() for path in (queue, *graves)})
        else:
            for below in filter(sounds_dead, subdirectories(disk, path.parent)):
                # Nobody can tell what is in it; beside a queue only dead letters are of interest.
                names_in(disk, below, self.findings)
        self.topics = [LedgerTopic(disk, queue, graves, self.findings) for queue, graves in queues.items()]

    def _tell_others(self, queues: set[Path]) -> None:
        """Tell what lies among the queues and is none, so that nothing is passed over in silence."""
        for name in names_in(self._disk, self.path):
            path = self.path / name
            if path in queues:
                continue
            if not is_directory(self._disk, path):
                self.findings.add(path, None, "it is not imported", is_damage=False)
            elif segment_paths(self._disk, path):
                problem = (
                    "it is not imported: none of its segments is one of LedgerQ, or what is left of one"
                )
                self.findings.add(path, None, problem)
            elif names_in(self._disk, path, self.findings):
                problem = "it is not imported: it is no queue of LedgerQ"
                self.findings.add(path, None, problem, is_damage=False)

    def close(self) -> None:
        """Nothing is held open."""


def _is_queue(disk: Disk, path: Path) -> bool:
    """Whether anything there is of LedgerQ: any part of a queue may be damaged, or gone after a crash."""
    names = names_in(disk, path)
    if not _STATE.isdisjoint(names):
        return True
    segments = [segment for _, segment in segment_paths(disk, path)]
    if any(is_segment(disk, segment) for segment in segments):
        return True
    if any(INDEX.fullmatch(name) and is_index(disk, path / name) for name in names):
        return True
    # Those of GoQueue have the same names, and an index beside them.
    is_other = any(name.endswith(_OTHER_INDEX) for name in names)
    return bool(segments) and not is_other and all(is_blank(disk, segment) for segment in segments)


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
