"""TinyMQ: a directory with a log for each topic, for its dead letters, and for each group's own copy."""

from collections.abc import Iterator
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest
from quivermq.importers.files import file_bytes, first_bytes, names_in
from quivermq.importers.model import Findings
from quivermq.importers.tinymq_lines import Unreadable, message_of, parse_record
from quivermq.importers.tinymq_topic import TinyTopic, TopicFiles

KIND = "tinymq"

_SUFFIX = ".log"
_DEAD = ".dlq"
_GROUP = "::"
# So much of a file is looked at to tell whose it is.
_LOOK_BYTES = 256 * 1024


def looks_like(path: Path, disk: Disk) -> bool:
    """Whether a directory has logs of JSON lines."""
    return any(_is_log(disk, log) for log in _logs(disk, path))


def open_source(path: Path, disk: Disk) -> "TinySource":
    """All topics of a directory. Raises InvalidRequest."""
    logs = _logs(disk, path)
    if not any(_is_log(disk, log) for log in logs) and (not logs or any(file_bytes(disk, p) for p in logs)):
        raise InvalidRequest(
            f"{path} is not a TinyMQ directory: it has no log such as orders.log with lines like"
            ' {"type":"PUT",…}'
        )
    return TinySource(path, disk, logs)


class TinySource:
    """The topics of a directory, each with its dead letters and its groups."""

    kind = KIND
    has_names = True

    def __init__(self, path: Path, disk: Disk, logs: list[Path]) -> None:
        self.path = path
        self.findings = Findings()
        found: dict[str, TopicFiles] = {}
        for log in sorted(logs, key=_age):
            name = topic_name(disk, log)
            base, is_dead = name, False
            while base.endswith(_DEAD) and base != _DEAD:
                base, is_dead = base.removesuffix(_DEAD), True
            topic, _, group = base.partition(_GROUP)
            files = found.setdefault(topic, TopicFiles())
            if is_dead:
                files.dead.setdefault(group, []).append(log)
            else:
                files.live.setdefault(group, []).append(log)
        self.topics = [TinyTopic(disk, name, found[name], self.findings) for name in sorted(found)]

    def close(self) -> None:
        """Nothing is held open."""


def _age(log: Path) -> tuple[bool, str]:
    # The older way to write a name comes first: once TinyMQ writes to a topic again, it uses the newer one.
    return "@" not in log.name, log.name


def _logs(disk: Disk, path: Path) -> list[Path]:
    names = [name for name in names_in(disk, path) if name.endswith(_SUFFIX) and name != _SUFFIX]
    return [path / name for name in names]


def _is_log(disk: Disk, path: Path) -> bool:
    return any(True for _ in _first_records(disk, path))


def topic_name(disk: Disk, path: Path) -> str:
    """What a topic is called. Its messages tell, because the name of a file may be read in two ways."""
    stem = path.name.removesuffix(_SUFFIX)
    for record in _first_records(disk, path):
        if record.get("type") != "PUT":
            continue
        try:
            told = message_of(record).topic
        except Unreadable:
            continue
        if stem in (told, _written(told), told.replace("/", "@")):
            return told
    return stem.replace("_b_", "/").replace("@", "/").replace("_a_", "@")


def _written(topic: str) -> str:
    return topic.replace("/", "_b_").replace("@", "_a_")


def _first_records(disk: Disk, path: Path) -> Iterator[dict[str, object]]:
    *lines, rest = first_bytes(disk, path, _LOOK_BYTES).split(b"\n")
    for line in (*lines, rest):
        if line.startswith(b"{"):
            try:
                yield parse_record(line)
            except Unreadable:
                continue
