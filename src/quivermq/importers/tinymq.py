"""TinyMQ: a directory with a log for each topic, for its dead letters, and for each group's own copy."""

import re
from collections.abc import Iterator
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest
from quivermq.importers.files import file_bytes, first_bytes, names_in
from quivermq.importers.model import Findings
from quivermq.importers.tinymq_lines import PUT, UnreadableLine, message_of, parse_record
from quivermq.importers.tinymq_topic import TinyTopic, TopicFiles

KIND = "tinymq"

_SUFFIX = ".log"
_DEAD = ".dlq"
_GROUP = "::"
# So much of a file is looked at to tell whose it is.
_LOOK_BYTES = 256 * 1024
# How lines begin, whatever becomes of the rest of them.
_BEGINNING = re.compile(rb'\{\s*"type"\s*:\s*"(?:PUT|ACK)"')
_TOPIC = re.compile(rb'\{"type":"PUT","message":\{"id":"[^"\\]*","topic":"([^"\\]*)"')


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
    return any(map(_BEGINNING.match, _first_lines(disk, path)))


def topic_name(disk: Disk, path: Path) -> str:
    """What a topic is called. Its messages tell, because the name of a file may be read in two ways."""
    stem = path.name.removesuffix(_SUFFIX)
    for told in _told_topics(disk, path):
        for written in (told, _written(told), told.replace("/", "@")):
            more = stem.removeprefix(written)
            if written and not more:
                return told
            # Copies and dead letters may call themselves what the topic is called.
            if written and more != stem and more.startswith((_GROUP, _DEAD)):
                return told + _read(more)
    return _read(stem)


def _written(topic: str) -> str:
    return topic.replace("/", "_b_").replace("@", "_a_")


def _read(written: str) -> str:
    return written.replace("_b_", "/").replace("@", "/").replace("_a_", "@")


def _told_topics(disk: Disk, path: Path) -> Iterator[str]:
    """What the first messages say that their topic is. A long one is cut off, and still begins with it."""
    for line in _first_lines(disk, path):
        try:
            record = parse_record(line)
            if record["type"] == PUT:
                yield message_of(record).topic
        except UnreadableLine:
            if match := _TOPIC.match(line):
                yield match[1].decode(errors="replace")


def _first_lines(disk: Disk, path: Path) -> list[bytes]:
    return first_bytes(disk, path, _LOOK_BYTES).split(b"\n")
