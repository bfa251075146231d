"""TinyMQ: a directory with a log for each topic, for its dead letters, and for each group's own copy."""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

from quivermq.disk import Disk
from quivermq.errors import InvalidRequest
from quivermq.importers.files import file_bytes, first_bytes, names_in
from quivermq.importers.model import (
    Death,
    Findings,
    Item,
    Position,
    SeenId,
    SourceGroup,
    text_identity,
)
from quivermq.importers.tinymq_log import (
    PUT,
    LineIndex,
    LogFiles,
    PutMessage,
    UnreadableLine,
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
class TopicFiles:
    """The logs of a topic by group; "" stands for the topic itself."""

    live: dict[str, list[Path]] = field(default_factory=dict)
    dead: dict[str, list[Path]] = field(default_factory=dict)


class TinyTopic:
    """One topic."""

    partitions = 1
    # Every id is unique in the world.
    witnesses: tuple[str, ...] = ()
    seen_ids: tuple[SeenId, ...] = ()
    settings: Mapping[str, object] = MappingProxyType({})
    passed_over = 0

    def __init__(self, disk: Disk, name: str, files: TopicFiles, findings: Findings) -> None:
        self.name = name
        self._disk = disk
        self._files = files
        self._findings = findings
        self._groups: list[SourceGroup] | None = None
        # Copies without a counterpart, by group.
        self._alone: dict[str, list[int]] = {}

    @property
    def size_bytes(self) -> int:
        logs = [*self._files.live.values(), *self._files.dead.values()]
        return sum(file_bytes(self._disk, path) for paths in logs for path in paths)

    @property
    def groups(self) -> list[SourceGroup]:
        if not any(self._files.live):
            return []
        if self._groups is None:
            self._groups = self._match_groups()
        return self._groups

    def items(self) -> Iterator[Item]:
        has_groups = bool(self.groups)
        for message, is_live in self._messages(self._files.live.get("", [])):
            # Where there are groups, they tell what is consumed, and by whom.
            yield _item(message, is_consumed=not is_live and not has_groups)
        for group, identities in self._alone.items():
            wanted = set(identities)
            # What is damaged was told when the copies were matched.
            for message, is_live in self._messages(self._files.live[group], Findings(0)) if wanted else ():
                if is_live and text_identity(message.id) in wanted:
                    yield _item(message)

    def dead_letters(self) -> Iterator[Item]:
        for group, paths in self._files.dead.items():
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
        self, paths: list[Path], findings: Findings | None = None
    ) -> Iterator[tuple[PutMessage, bool]]:
        findings = self._findings if findings is None else findings
        with LogFiles(self._disk, paths, findings) as files:
            for line, is_live in LineIndex(files, findings).messages():
                try:
                    yield parse_put(line.data), is_live
                except UnreadableLine as error:
                    path = files.path(line.file)
                    findings.add(path, line.position, str(error), length=len(line.data))

    def _match_groups(self) -> list[SourceGroup]:
        """What each group has left, in terms of the topic's own messages."""
        quiet = Findings(0)
        known: dict[bytes, deque[tuple[int, int]]] = {}
        own: dict[int, int] = {}
        for message, is_live in self._messages(self._files.live.get("", []), quiet):
            identity = text_identity(message.id)
            known.setdefault(_contents(message), deque()).append((message.timestamp_us, identity))
            if is_live:
                own[identity] = message.retry_count
        groups = [SourceGroup(OWN_GROUP, {0: Position(_EVERYTHING, own)})]
        for group, paths in self._files.live.items():
            if group:
                left = self._matched(group, paths, {digest: deque(each) for digest, each in known.items()})
                groups.append(SourceGroup(group, {0: Position(_EVERYTHING, left)}))
        return groups

    def _matched(
        self, group: str, paths: list[Path], known: dict[bytes, deque[tuple[int, int]]]
    ) -> dict[int, int]:
        left: dict[int, int] = {}
        alone: list[int] = []
        for message, is_live in self._messages(paths, Findings(0) if group in self._alone else None):
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

    Not when it expires: the retention of a topic tells that for each of them anew.
    """
    told = (message.value, message.headers, message.deliver_at_us)
    return blake2b(repr(told).encode(), digest_size=16).digest()


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
