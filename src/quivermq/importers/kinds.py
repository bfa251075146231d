"""Which queues can be imported from, and how a directory is opened as one of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from quivermq.disk import Disk, real_path
from quivermq.errors import InvalidRequest, NotFound, StorageFailed
from quivermq.frame.header import MAGIC
from quivermq.importers.files import first_bytes, segment_files, subdirectories
from quivermq.importers.model import ImportSource, SourceTopic
from quivermq.log.directory import LOCK_NAME
from quivermq.model.names import IMPORTS_TOPIC, NAME_LENGTH_MAX, check_topic_name, usual_origin

KINDS: Sequence[str] = ("ledgerq", "tinymq", "fluxmq", "goqueue")
_ENCRYPTING = "goqueue"


class KindReader(Protocol):
    """What the module of a kind offers."""

    def open_source(self, path: Path, disk: Disk) -> ImportSource:
        """The directory, opened for reading. Raises InvalidRequest when it is not of that kind."""
        ...

    def looks_like(self, path: Path, disk: Disk) -> bool:
        """Whether a directory seems to be of that kind."""
        ...


def open_source(kind: str, path: Path, disk: Disk, key: str | None = None) -> ImportSource:
    """A directory of that kind. Raises InvalidRequest, NotFound, StorageFailed, and says what to do."""
    if kind not in KINDS:
        raise InvalidRequest(f"{kind!r} is not a queue to import from: choose one of {', '.join(KINDS)}")
    if key is not None and kind != _ENCRYPTING:
        raise InvalidRequest(f"only a GoQueue may be encrypted: a {kind} queue has no key")
    if not disk.is_directory(path) and disk.exists(path):
        raise InvalidRequest(f"{path} is a file: give the directory that it is in")
    if not disk.is_directory(path):
        raise NotFound(f"there is no directory {path} to import from")
    if not disk.names(path):
        raise InvalidRequest(f"{path} is empty: there is nothing to import")
    _refuse_own(path, disk)
    others = [] if _looks_like(kind, path, disk) else detect(path, disk)
    try:
        source = _opened(kind, path, disk, key)
        if not others:
            return source
        source.close()
        raise InvalidRequest(f"{path} is no {kind} directory")
    except InvalidRequest as error:
        if others:
            raise InvalidRequest(f"{error}. This looks like a {' or '.join(others)} directory") from None
        if below := [each.name for each in subdirectories(disk, path) if _looks_like(kind, each, disk)]:
            raise InvalidRequest(f"{error}. What is in {below[0]}/ looks like one: give that") from None
        raise


def _opened(kind: str, path: Path, disk: Disk, key: str | None) -> ImportSource:
    if key is None:
        return _reader(kind).open_source(path, disk)
    from quivermq.importers.goqueue import open_encrypted

    return open_encrypted(path, disk, key)


def _refuse_own(path: Path, disk: Disk) -> None:
    """Raise InvalidRequest for a directory of ours, whose files are named as those of some others are."""
    is_own = disk.exists(path / LOCK_NAME) and disk.is_directory(path / "topics")
    if is_own or any(
        first_bytes(disk, segment.path, len(MAGIC)) == MAGIC
        for segment in segment_files(disk, path, ".log")
    ):
        raise InvalidRequest(
            f"{path} is a directory of Quiver itself: open it as it is, or copy it while nobody uses it"
        )


def detect(path: Path, disk: Disk) -> list[str]:
    """The kinds that a directory may be of."""
    return [kind for kind in KINDS if _looks_like(kind, path, disk)]


def _looks_like(kind: str, path: Path, disk: Disk) -> bool:
    try:
        return _reader(kind).looks_like(path, disk)
    except StorageFailed:
        return False


def _reader(kind: str) -> KindReader:
    # Loaded when it is needed: nobody needs more than one.
    return cast(KindReader, import_module(f"quivermq.importers.{kind}"))


# As deep as the directories of any kind are nested, so that links among them are seen.
_DEPTH_MAX = 4


def check_apart(source: Path, target: Path, disk: Disk) -> None:
    """Raise InvalidRequest when one of the two is the other, or lies inside of it, also by links."""
    real_target = real_path(target)
    for place in _places(disk, source, _DEPTH_MAX):
        where = real_path(place)
        if where == real_target:
            relation = "is where it would be imported to"
        elif real_target in where.parents:
            relation = f"lies inside of {target}, where it would be imported to"
        elif where in real_target.parents:
            relation = f"has {target} in it, where it would be imported to"
        else:
            continue
        raise InvalidRequest(f"{place} {relation}: choose a data directory elsewhere")


def _places(disk: Disk, path: Path, depth: int) -> Iterator[Path]:
    """A directory, and every link below it, which may lead anywhere."""
    yield path
    for below in subdirectories(disk, path) if depth else ():
        if real_path(below) != real_path(path) / below.name:
            yield below
        yield from (each for each in _places(disk, below, depth - 1) if each != below)


_STRANGE = re.compile(r"[^A-Za-z0-9._-]")


def own_name(name: str) -> str:
    """A name as it may be here: levels are separated by dots, and what is not allowed becomes a dash."""
    made = _STRANGE.sub("-", name.replace("/", "."))[:NAME_LENGTH_MAX]
    return made if made.strip(".") else "-"


def chosen_topics(
    source: ImportSource, topic: str | None, wanted: Sequence[str], names: Mapping[str, str]
) -> list[tuple[str, SourceTopic]]:
    """The topics to import, each with its name here. Raises InvalidRequest.

    `wanted` are names in the source, by default all; `names` says what some are called here. One topic gets
    the name `topic`; several get it as a prefix, or keep their own names where there is none.
    """
    there = {each.name: each for each in source.topics}
    if missing := [name for name in (*wanted, *names) if name not in there]:
        others = ", ".join(map(repr, sorted(there))) or "none"
        raise InvalidRequest(f"{source.path} has no topic {missing[0]!r}: it has {others}")
    chosen = [each for each in source.topics if not wanted or each.name in wanted]
    if topic is None and not source.has_names and any(each.name not in names for each in chosen):
        raise InvalidRequest(f"a {source.kind} queue has no name of its own: say which topic it becomes")
    made = [(names.get(each.name) or _name(each.name, topic, len(chosen)), each) for each in chosen]
    _check_names(made)
    return made


def _name(own: str, topic: str | None, count: int) -> str:
    if topic is None:
        return own_name(own)
    return topic if count == 1 else f"{topic}.{own_name(own)}"


def _check_names(made: list[tuple[str, SourceTopic]]) -> None:
    taken: dict[str, str] = {}
    for name, topic in made:
        check_topic_name(name)
        if (origin := usual_origin(name)) is not None:
            raise InvalidRequest(f"{name} is where dead letters go: name the topic they are of, {origin}")
        if name == IMPORTS_TOPIC:
            raise InvalidRequest(f"{name} is where imports note what they have done: choose another name")
        if name in taken:
            raise InvalidRequest(
                f"{taken[name]!r} and {topic.name!r} would both become {name}: give one another name"
            )
        taken[name] = topic.name
