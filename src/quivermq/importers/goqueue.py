"""The directory of a GoQueue broker, of one of its topics, or of one partition.

A partition is `logs/<topic>/<number>/<base offset>.log`. The dead letters of a topic are in the topic
`<topic>.dlq`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest, StorageFailed
from quivermq.importers.files import first_bytes, names_in, subdirectories
from quivermq.importers.goqueue_cipher import LOOKED_AT, Cipher, read_key
from quivermq.importers.goqueue_groups import Committed, read_committed
from quivermq.importers.goqueue_rest import left_behind
from quivermq.importers.goqueue_topic import BESIDE, LETTERS_SUFFIX, SUFFIX, GoTopic, Partitions, TopicState
from quivermq.importers.goqueue_transactions import NO_TRANSACTIONS, read_transactions
from quivermq.importers.model import Findings
from quivermq.importers.segment_files import segment_files
from quivermq.topic.settings import PARTITIONS_MAX

KIND = "goqueue"

_MAGIC = b"GQ"
# What is understood; of everything else it is told that it is left out.
_PARTS = {"logs", "offsets", "delay", "transactions"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
# While a partition is compacted, the old one is moved aside before the new one takes its place.
_ASIDE = ".old"


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory may be one of GoQueue."""
    try:
        topics = [path, *subdirectories(disk, path / "logs")]
        partitions = [path, *(part for topic in topics for part in subdirectories(disk, topic))]
        return any(_is_partition(disk, each) for each in partitions)
    except StorageFailed:
        return False


def open_encrypted(path: Path, disk: Disk, key: str) -> "GoSource":
    """The same for values that are encrypted. Raises InvalidRequest, also for a key that opens none."""
    cipher = Cipher(read_key(key, disk))
    source = open_source(path, disk, cipher)
    opened = [each for topic in source.topics for each in topic.opened_values(cipher, LOOKED_AT)]
    if opened and not any(opened):
        raise InvalidRequest(
            f"the key opens none of the first values in {path}: it is the key of another queue"
        )
    return source


def open_source(path: Path, disk: Disk, cipher: Cipher | None = None) -> "GoSource":
    """The topics in a directory. Raises InvalidRequest when it is not one of GoQueue."""
    findings = Findings()
    if disk.is_directory(path / "logs"):
        topics = {
            topic.name: _partitions(disk, topic, findings)
            for topic in subdirectories(disk, path / "logs", findings)
        }
        if not any(topics.values()) and any(names_in(disk, path / "logs" / name) for name in topics):
            raise InvalidRequest(
                f"{path} is no directory of GoQueue: logs/ has no partition such as logs/x/0/"
            )
        return GoSource(path, disk, findings, topics, has_names=True, cipher=cipher)
    if segment_files(disk, path, SUFFIX):
        return GoSource(path, disk, findings, {path.name: {0: path}}, has_names=False, cipher=cipher)
    below = subdirectories(disk, path)
    if any(_is_partition(disk, each) for each in below) and (
        partitions := _partitions(disk, path, findings)
    ):
        return GoSource(path, disk, findings, {path.name: partitions}, has_names=False, cipher=cipher)
    inside = [
        part for topic in below for part in subdirectories(disk, topic) if _NUMBER.fullmatch(part.name)
    ]
    if any(_is_partition(disk, each) for each in inside):
        raise InvalidRequest(f"{path} has the topics of a GoQueue broker: give the directory above it")
    raise InvalidRequest(
        f"{path} is no directory of GoQueue: it has no logs/, no partitions such as 0/ and no files such as"
        " 00000000000000000000.log"
    )


def _is_partition(disk: Disk, path: Path) -> bool:
    """Whether a segment begins as those of GoQueue do: other queues have files of the same names."""
    begins = [first_bytes(disk, segment.path, len(_MAGIC)) for segment in segment_files(disk, path, SUFFIX)]
    if not any(begins):
        # Nothing was put there yet; no other queue has an index of that name.
        return bool(begins) and any(name.endswith(BESIDE) for name in names_in(disk, path))
    return _MAGIC in begins


def _partitions(disk: Disk, topic: Path, findings: Findings) -> Partitions:
    found: dict[int, Path] = {}
    aside: dict[int, Path] = {}
    for path in subdirectories(disk, topic, findings):
        digits = path.name.removesuffix(_ASIDE)
        if _NUMBER.fullmatch(digits) and int(digits) < PARTITIONS_MAX:
            (found if digits == path.name else aside)[int(digits)] = path
        else:
            findings.add(path, None, "it is not imported: it is no partition", is_damage=False)
    for number, path in aside.items():
        if number not in found:
            problem = "the partition was being compacted; what it was before is imported"
            findings.add(path, None, problem, is_damage=False)
            found[number] = path
    return dict(sorted(found.items()))


class GoSource:
    """The topics of one directory."""

    kind = KIND

    def __init__(
        self,
        path: Path,
        disk: Disk,
        findings: Findings,
        topics: Mapping[str, Partitions],
        *,
        has_names: bool,
        cipher: Cipher | None = None,
    ) -> None:
        self.path = path
        self.has_names = has_names
        self.findings = findings
        self._disk = disk
        letters = {name for name in topics if _origin(name) != name}
        names = sorted({_origin(name) for name in topics})
        states = self._states(names, topics) if has_names else {}
        self.topics = [
            GoTopic(
                name,
                disk,
                findings,
                topics.get(name, {}),
                {each: topics[each] for each in sorted(letters) if _origin(each) == name},
                states.get(name) or TopicState(),
                cipher,
            )
            for name in names
        ]
        for name in disk.names(path) if has_names else ():
            if name not in _PARTS:
                findings.add(path / name, None, left_behind(disk, path / name), is_damage=False)

    def close(self) -> None:
        """Nothing is kept open between two calls."""

    def _states(self, names: list[str], topics: Mapping[str, Partitions]) -> dict[str, TopicState]:
        directory = self.path / "transactions"
        is_known = self._disk.is_directory(directory)
        transactions = (
            read_transactions(self._disk, directory, self.findings) if is_known else NO_TRANSACTIONS
        )
        offsets = self.path / "offsets"
        committed = read_committed(self._disk, offsets, self.findings)
        self._tell_positions(offsets, committed, topics)
        return {
            name: TopicState(
                delays=self.path / "delay" / "delays" / name / "delay.index",
                positions=committed.get(name, {}),
                aborted=transactions.aborted.get(name, ()),
                unended=transactions.unended.get(name, ()),
                is_known=is_known,
            )
            for name in names
        }

    def _tell_positions(self, path: Path, committed: Committed, topics: Mapping[str, Partitions]) -> None:
        for topic, groups in sorted(committed.items()):
            if topic in topics and _origin(topic) == topic:
                continue
            why = "holds dead letters" if topic in topics else "is not there"
            problem = f"positions of {', '.join(sorted(groups))} in {topic} are not imported: it {why}"
            self.findings.add(path, None, problem, is_damage=False)


def _origin(topic: str) -> str:
    """Of which topic a topic holds dead letters; itself for any other."""
    while topic.endswith(LETTERS_SUFFIX) and topic != LETTERS_SUFFIX:
        topic = topic.removesuffix(LETTERS_SUFFIX)
    return topic
