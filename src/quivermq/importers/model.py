"""What every foreign queue is described in, so that the side that writes knows none of them.

A reader is a module with `looks_like(path, disk)`, and `open_source(path, disk) -> ImportSource`, which
raises InvalidRequest for a directory of another kind. It yields what is whole, in order, and adds a finding
for everything that is not. It opens files for reading only, and holds one entry at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from quivermq.model.lanes import Priority
from quivermq.settings import StorageSettings


def text_identity(text: str) -> int:
    """The number that stands for a textual id."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest(), "little")


def witness(*parts: object) -> str:
    """A short text that stands for these parts, and practically for no others."""
    return blake2b(repr(parts).encode(), digest_size=12).hexdigest()


@dataclass(slots=True, kw_only=True)
class Item:
    """One message of a source, decompressed, with what its queue knows of it.

    Times are unix microseconds. A reader fills in what there is; the defaults mean that there is nothing.
    """

    identity: int
    """Unique among the live items, and among the dead letters, of one partition of a source topic, and the
    same in every run, also when the source has grown: an offset or a numeric id, or `text_identity(id)`.
    It has at most 128 bits."""
    id: str
    """The same for people, such as the digits of the offset; kept in the header quiver-import-id."""
    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    timestamp_us: int
    partition: int = 0
    level: Priority = "normal"
    """Its priority here."""
    priority: str | None = None
    """The source's own name of a priority, where it has more than three; kept in quiver-import-priority."""
    expires_at_us: int | None = None
    deliver_at_us: int | None = None
    """Only of a message that the source has not delivered yet; it may be in the past."""
    attempts: int = 0
    """How often it was handed out, or given back, without being finished; the next delivery is one more."""
    reason: str | None = None
    """Why it failed the last time."""
    is_consumed: bool = False
    """Finished by the queue itself, so left out unless everything is asked for. What a named group has
    finished follows from its `Position`."""
    dead: "Death | None" = None
    """Set for a dead letter."""
    size_bytes: int = 0
    """About how much of the source it takes, for the progress bar."""


@dataclass(slots=True, kw_only=True)
class Death:
    """What a source knows of a dead letter besides the message itself. None where it does not say."""

    original_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    """Where it lay in its topic, in the numbers of the source."""
    attempts: int | None = None
    reason: str | None = None
    """Short, such as the source's own word; "imported" is written where there is none."""
    error: str | None = None
    group: str | None = None
    time_us: int | None = None


class SeenId(NamedTuple):
    """A deduplication id that the source still remembers, also of a message that is consumed or gone."""

    dedup_id: str
    """As a producer gives it; or, where the source keeps only its hash, `sha256:` and 64 hex digits."""
    expires_at_us: int
    identity: int | None = None
    """The item that had it, in partition 0; None when it is not known."""


class Finding(NamedTuple):
    """Something in a source that could not be imported, or not as it is."""

    path: Path
    position: int | None
    """The byte in the file; None when it is about the whole of it."""
    problem: str
    """A sentence without a full stop, such as `the checksum of entry 5 does not match`."""
    length: int | None = None
    """How many bytes are concerned, where that is known."""
    is_damage: bool = True
    """False for what only has to be known: it does not stop a strict import."""


class Findings:
    """What was found so far: the first ones in full, and how many there are."""

    def __init__(self, kept_max: int = 10_000) -> None:
        self.kept: list[Finding] = []
        self.count = 0
        self.damages = 0
        """How many of them are damage."""
        self.reports = 0
        """How often something was added, also what was known."""
        self._kept_max = kept_max
        self._known: set[Finding] = set()
        self._once: set[tuple[Path, str]] = set()

    def add(
        self,
        path: Path,
        position: int | None,
        problem: str,
        *,
        length: int | None = None,
        is_damage: bool = True,
    ) -> None:
        self.reports += 1
        finding = Finding(path, position, problem, length, is_damage)
        if finding in self._known:
            # What is read twice, as groups are before and with the messages, is wrong once.
            return
        self.count += 1
        self.damages += is_damage
        # A hostile file may have more of them than there is memory.
        if len(self.kept) < self._kept_max:
            self._known.add(finding)
            self.kept.append(finding)

    def add_once(self, path: Path, position: int | None, problem: str) -> None:
        """Add what is no damage, and likely to be in every message, once for a directory."""
        if (path.parent, problem) not in self._once:
            self._once.add((path.parent, problem))
            self.add(path, position, problem, is_damage=False)

    def clear(self) -> None:
        """Begin anew, before everything is read again."""
        self.kept.clear()
        self._known.clear()
        self._once.clear()
        self.count = self.damages = 0


@dataclass(slots=True)
class Position:
    """How far a group has come in a partition."""

    next: int
    """Everything with an identity below it is finished, but for what `unfinished` names."""
    unfinished: Mapping[int, int] = field(default_factory=dict)
    """Identities below `next` that were delivered and are not finished: how often each was delivered."""

    def is_finished(self, identity: int) -> bool:
        return identity < self.next and identity not in self.unfinished


@dataclass(slots=True)
class SourceGroup:
    """A group of consumers; a partition that it does not name is untouched by it."""

    name: str
    positions: dict[int, Position]


class SourceTopic(Protocol):
    """A queue or topic of a source, with its dead letters. Readers inherit what their source has not."""

    name: str
    """What the source calls it."""

    @property
    def witnesses(self) -> Sequence[str]:
        """Short texts by which the topic is known again, wherever its directory is moved or copied to.

        Any one of them is enough: for each segment file what never changes in it, such as the base offset
        and a hash of the first record. Empty where identities are unique everywhere, as random ids are.
        """
        return ()

    @property
    def partitions(self) -> int:
        return 1

    @property
    def size_bytes(self) -> int:
        """About how much there is to read, for the progress bar."""
        ...

    @property
    def groups(self) -> Sequence[SourceGroup]:
        """Known at the latest when the items have been read."""
        return ()

    @property
    def seen_ids(self) -> Sequence[SeenId]:
        return ()

    @property
    def settings(self) -> Mapping[str, object]:
        """Those of its settings that a topic here has as well, by their names here."""
        return {}

    @property
    def passed_over(self) -> int:
        """Of the consumed messages, how many may never have been delivered. Known when all were read."""
        return 0

    def items(self) -> Iterator[Item]:
        """The messages in the order in which they are to be delivered; inside a partition that is their
        own. Identities ascend inside a partition unless the source numbers nothing. Consumed and expired
        ones are among them, marked. May be called again, and then reports findings again."""
        ...

    def dead_letters(self) -> Iterator[Item]:
        """The dead letters of this topic, each with `dead`."""
        ...


@dataclass(slots=True, frozen=True)
class ImportSource:
    """An opened directory. Nothing of it stays open between two calls."""

    kind: str
    path: Path
    topics: Sequence[SourceTopic]
    """Sorted by name. A topic that only holds the dead letters of another is not among them."""
    findings: Findings
    """They grow while items are read."""
    has_names: bool
    """Whether the source itself says what its topics are called; if not, the user has to."""

    def report(self, problem: str, *, is_damage: bool = False) -> None:
        """Add a finding about the whole of it."""
        self.findings.add(self.path, None, problem, is_damage=is_damage)


@dataclass(slots=True)
class TopicSummary:
    """One topic of the source, and what became of it. A dry run says what would."""

    source_topic: str
    topic: str
    imported: int = 0
    """Messages that were added, the scheduled ones among them."""
    scheduled: int = 0
    dead_letters: int = 0
    already_there: int = 0
    """Messages and dead letters that an earlier import added."""
    consumed: int = 0
    """Messages and dead letters that were left out because the source is done with them."""
    expired: int = 0
    """Messages that were left out because their time is over."""
    unstorable: int = 0
    """Messages that the topic does not let in."""
    retried: int = 0
    """Of those that were added, how many go on counting attempts."""
    groups: list[str] = field(default_factory=list)
    """The groups that go on where they were."""
    groups_left: list[str] = field(default_factory=list)
    """The groups that have been elsewhere here, and were left alone."""
    dedup_ids: int = 0
    passed_over: int = 0
    """Of those that count as consumed, how many the source may never have delivered."""
    settings: dict[str, object] = field(default_factory=dict)
    """The settings of the source that a topic which is new here got."""

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class ImportSummary:
    """All of it."""

    kind: str
    path: Path
    is_dry: bool
    topics: list[TopicSummary] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """The first of them."""
    findings_count: int = 0
    damages: int = 0
    """How many findings are about something that was not imported."""

    def take_findings(self, findings: Findings) -> None:
        self.findings, self.findings_count = list(findings.kept), findings.count
        self.damages = findings.damages

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "dry_run": self.is_dry,
            "topics": [topic.as_json() for topic in self.topics],
            "findings": [{**each._asdict(), "path": str(each.path)} for each in self.findings],
            "findings_count": self.findings_count,
            "damages": self.damages,
        }


# What a frame, and the headers of a dead letter, need besides the message.
MESSAGE_ROOM_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = StorageSettings().frame_bytes_max - MESSAGE_ROOM_BYTES
