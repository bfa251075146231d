"""TinyMQ: a directory with a log for each topic, for its dead letters, and for each group's own copy."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest
from quivermq.importers.files import SourceFiles, Unreadable
from quivermq.importers.model import (
    Death,
    ImportSource,
    Item,
    Position,
    SourceGroup,
    SourceTopic,
    text_identity,
)
from quivermq.importers.tinymq_log import (
    PUT,
    LineIndex,
    LogFiles,
    PutMessage,
    message_of,
    parse_put,
    parse_record,
)

OWN_GROUP = "default"
"""Who reads a topic without being a group."""

# Behind every identity.
_EVERYTHING = 2**128
# A copy is made just before the message itself, by the same call.
_APART_US = 10_000_000


@dataclass(slots=True)
class TopicLogs:
    """The logs of a topic by group; "" stands for the topic itself."""

    live: dict[str, list[Path]] = field(default_factory=dict)
    dead: dict[str, list[Path]] = field(default_factory=dict)


class TinyTopic(SourceTopic):
    """One topic. Every id is unique in the world, so it has no witnesses."""

    def __init__(self, files: SourceFiles, name: str, logs: TopicLogs) -> None:
        self.name = name
        self._files = files
        self._logs = logs
        self._groups: list[SourceGroup] | None = None
        # Copies without a counterpart, by group.
        self._alone: dict[str, list[int]] = {}

    @property
    def size_bytes(self) -> int:
        logs = [*self._logs.live.values(), *self._logs.dead.values()]
        return sum(self._files.size(path) for paths in logs for path in paths)

    @property
    def groups(self) -> list[SourceGroup]:
        if self._groups is None:
            self._groups = self._match_groups() if any(self._logs.live) else []
        return self._groups

    def items(self) -> Iterator[Item]:
        has_groups = bool(self.groups)
        for message, is_live in self._messages(self._logs.live.get("", [])):
            # Where there are groups, these say what is consumed, and by whom.
            yield _item(message, is_consumed=not is_live and not has_groups)
        for group, identities in self._alone.items():
            wanted = set(identities)
            # What is damaged was reported when the copies were matched.
            copies = self._messages(self._logs.live[group], self._files.quiet()) if wanted else ()
            for message, is_live in copies:
                if is_live and text_identity(message.id) in wanted:
                    yield _item(message)

    def dead_letters(self) -> Iterator[Item]:
        for group, paths in self._logs.dead.items():
            for message, is_live in self._messages(paths):
                item = _item(message, is_consumed=not is_live)
                item.deliver_at_us, item.attempts = None, 0
                # TinyMQ gives a message up for this reason only.
                item.dead = Death(
                    original_id=message.id,
                    attempts=message.retry_count,
                    reason="attempts",
                    group=group or None,
                    time_us=message.put_us,
                )
                yield item

    def _messages(
        self, paths: list[Path], files: SourceFiles | None = None
    ) -> Iterator[tuple[PutMessage, bool]]:
        with LogFiles(files or self._files, paths) as logs:
            for line, is_live in LineIndex(logs).messages():
                try:
                    yield parse_put(line.data), is_live
                except Unreadable as error:
                    logs.report(line, str(error))

    def _match_groups(self) -> list[SourceGroup]:
        """What each group has left, in terms of the topic's own messages."""
        known: dict[bytes, deque[tuple[int, int]]] = {}
        own: dict[int, int] = {}
        for message, is_live in self._messages(self._logs.live.get("", []), self._files.quiet()):
            identity = text_identity(message.id)
            known.setdefault(_contents(message), deque()).append((message.timestamp_us, identity))
            if is_live:
                own[identity] = message.retry_count
        groups = [SourceGroup(OWN_GROUP, {0: Position(_EVERYTHING, own)})]
        for group, paths in self._logs.live.items():
            if group:
                left = self._matched(group, paths, {digest: deque(each) for digest, each in known.items()})
                groups.append(SourceGroup(group, {0: Position(_EVERYTHING, left)}))
        return groups

    def _matched(
        self, group: str, paths: list[Path], known: dict[bytes, deque[tuple[int, int]]]
    ) -> dict[int, int]:
        left: dict[int, int] = {}
        alone: list[int] = []
        files = self._files.quiet() if group in self._alone else self._files
        for message, is_live in self._messages(paths, files):
            identity = _counterpart(message, known.get(_contents(message)))
            if identity is None:
                identity = text_identity(message.id)
                if is_live:
                    alone.append(identity)
            if is_live:
                left[identity] = message.retry_count
        self._alone[group] = alone
        return left


def _counterpart(copy: PutMessage, candidates: deque[tuple[int, int]] | None) -> int | None:
    """The message that a copy was made of, which then has its copy."""
    while candidates and candidates[0][0] < copy.timestamp_us:
        # Made before the copy: of a time when the group was not there, or its copy is gone.
        candidates.popleft()
    if candidates and candidates[0][0] - copy.timestamp_us <= _APART_US:
        return candidates.popleft()[1]
    return None


def _contents(message: PutMessage) -> bytes:
    """A hash of what a copy has in common with its message.

    Not when it expires: the retention of a topic decides that for each of them anew.
    """
    shared = (message.value, message.headers, message.deliver_at_us)
    return blake2b(repr(shared).encode(), digest_size=16).digest()


def _item(message: PutMessage, *, is_consumed: bool = False) -> Item:
    return Item(
        identity=text_identity(message.id),
        id=message.id,
        value=message.value,
        headers=message.headers,
        timestamp_us=message.timestamp_us,
        expires_at_us=message.expires_at_us,
        deliver_at_us=message.deliver_at_us,
        attempts=message.retry_count,
        is_consumed=is_consumed,
    )


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
    files = SourceFiles(disk).quiet()
    return any(_is_log(files, log) for log in _logs(files, path))


def open_source(path: Path, disk: Disk) -> ImportSource:
    """The topics of a directory, each with its dead letters and its groups. Raises InvalidRequest."""
    files = SourceFiles(disk)
    logs = _logs(files.quiet(), path)
    if not any(_is_log(files, log) for log in logs) and (not logs or any(map(files.size, logs))):
        raise InvalidRequest(
            f"{path} is not a TinyMQ directory: it has no log such as orders.log with lines like"
            ' {"type":"PUT",…}'
        )
    found: dict[str, TopicLogs] = {}
    for log in sorted(logs, key=_age):
        base, is_dead = topic_name(files, log), False
        while base.endswith(_DEAD) and base != _DEAD:
            base, is_dead = base.removesuffix(_DEAD), True
        topic, _, group = base.partition(_GROUP)
        of_topic = found.setdefault(topic, TopicLogs())
        (of_topic.dead if is_dead else of_topic.live).setdefault(group, []).append(log)
    topics = [TinyTopic(files, name, found[name]) for name in sorted(found)]
    return ImportSource("tinymq", path, topics, files.findings, has_names=True)


def _age(log: Path) -> tuple[bool, str]:
    # The older way to write a name comes first: once TinyMQ writes to a topic again, it uses the newer one.
    return "@" not in log.name, log.name


def _logs(files: SourceFiles, path: Path) -> list[Path]:
    return [path / name for name in files.names(path) if name.endswith(_SUFFIX) and name != _SUFFIX]


def _is_log(files: SourceFiles, path: Path) -> bool:
    return any(map(_BEGINNING.match, _first_lines(files, path)))


def topic_name(files: SourceFiles, path: Path) -> str:
    """What a topic is called. Its messages say so, because the name of a file may be read in two ways."""
    stem = path.name.removesuffix(_SUFFIX)
    for name in _named_topics(files, path):
        for written in (name, _written(name), name.replace("/", "@")):
            more = stem.removeprefix(written)
            if written and not more:
                return name
            # Copies and dead letters may call themselves what the topic is called.
            if written and more != stem and more.startswith((_GROUP, _DEAD)):
                return name + _read(more)
    return _read(stem)


def _written(topic: str) -> str:
    return topic.replace("/", "_b_").replace("@", "_a_")


def _read(written: str) -> str:
    return written.replace("_b_", "/").replace("@", "/").replace("_a_", "@")


def _named_topics(files: SourceFiles, path: Path) -> Iterator[str]:
    """What the first messages say that their topic is. A long one is cut off, and still begins with it."""
    for line in _first_lines(files, path):
        try:
            record = parse_record(line)
            if record["type"] == PUT:
                yield message_of(record).topic
        except Unreadable:
            if match := _TOPIC.match(line):
                yield match[1].decode(errors="replace")


def _first_lines(files: SourceFiles, path: Path) -> list[bytes]:
    return files.first_bytes(path, _LOOK_BYTES).split(b"\n")
