"""Which queues can be imported from, and how a directory is opened as one of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from quivermq.disk import Disk, real_path
from quivermq.errors import InvalidRequest, NotFound, StorageFailed
from quivermq.frame.header import MAGIC
from quivermq.importers.files import SourceFiles
from quivermq.importers.model import ImportSource, SourceTopic
from quivermq.log.directory import LOCK_NAME
from quivermq.model.names import IMPORTS_TOPIC, NAME_LENGTH_MAX, check_topic_name, usual_origin

KINDS: Sequence[str] = ("ledgerq", "tinymq", "fluxmq", "goqueue")
_ENCRYPTING = "goqueue"


class QueueUnnamed(InvalidRequest):
    """The source has a single queue without a name, and nobody said which topic it becomes."""

    advice = "say which topic it becomes"
    command_advice = "say --topic NAME"


class NameTaken(InvalidRequest):
    """Two topics of the source would become the same one."""

    advice = "give one another name"
    command_advice = "give one another name with --name THERE=HERE"


def open_source(kind: str, path: Path, disk: Disk, key: str | None = None) -> ImportSource:
    """A directory of that kind. Raises InvalidRequest, NotFound, StorageFailed, and says what to do."""
    if kind not in KINDS:
        raise InvalidRequest(f"{kind!r} is not a queue to import from: choose one of {', '.join(KINDS)}")
    if key is not None and kind != _ENCRYPTING:
        raise InvalidRequest(f"only a GoQueue may be encrypted: a {kind} queue has no key")
    if not disk.is_directory(path):
        if disk.exists(path):
            raise InvalidRequest(f"{path} is a file: give the directory that it is in")
        raise NotFound(f"there is no directory {path} to import from")
    if not disk.names(path):
        raise InvalidRequest(f"{path} is empty: there is nothing to import")
    _refuse_own(path, disk)
    is_likely = _looks_like(kind, path, disk)
    others = [] if is_likely else [each for each in KINDS if _looks_like(each, path, disk)]
    try:
        source = _opened(kind, path, disk, key)
        if others:
            raise InvalidRequest(f"{path} is no {kind} directory")
        return source
    except InvalidRequest as error:
        if others:
            raise InvalidRequest(f"{error}. This looks like a {' or '.join(others)} directory") from None
        directories = SourceFiles(disk).subdirectories(path)
        if below := [each.name for each in directories if _looks_like(kind, each, disk)]:
            raise InvalidRequest(f"{error}. What is in {below[0]}/ looks like one: give that") from None
        raise


def _opened(kind: str, path: Path, disk: Disk, key: str | None) -> ImportSource:
    reader = _reader(kind)
    opened: ImportSource
    opened = reader.open_source(path, disk) if key is None else reader.open_encrypted(path, disk, key)
    return opened


def _refuse_own(path: Path, disk: Disk) -> None:
    """Raise InvalidRequest for a directory of ours, whose files are named as those of some others are."""
    files = SourceFiles(disk)
    is_own = disk.exists(path / LOCK_NAME) and disk.is_directory(path / "topics")
    begins = (files.first_bytes(each.path, len(MAGIC)) for each in files.segments(path, ".log"))
    if is_own or MAGIC in begins:
        raise InvalidRequest(
            f"{path} is a directory of Quiver itself: open it as it is, or copy it while nobody uses it"
        )


def _looks_like(kind: str, path: Path, disk: Disk) -> bool:
    try:
        return bool(_reader(kind).looks_like(path, disk))
    except StorageFailed:
        return False


def _reader(kind: str) -> ModuleType:
    # Loaded when it is needed: nobody needs more than one.
    return import_module(f"quivermq.importers.{kind}")


# As deep as the directories of any kind are nested, so that links among them are seen.
_DEPTH_MAX = 4


def check_apart(source: Path, target: Path, disk: Disk) -> None:
    """Raise InvalidRequest when one of the two is the other, or lies inside of it, also by links."""
    real_target = real_path(target)
    for place in _places(SourceFiles(disk), source, _DEPTH_MAX):
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


def _places(files: SourceFiles, path: Path, depth: int) -> Iterator[Path]:
    """A directory, and every link below it, which may lead anywhere."""
    yield path
    for below in files.subdirectories(path) if depth else ():
        if real_path(below) != real_path(path) / below.name:
            yield below
        yield from (each for each in _places(files, below, depth - 1) if each != below)


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
        raise QueueUnnamed(f"a {source.kind} queue has no name of its own: {QueueUnnamed.advice}")
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
            raise NameTaken(
                f"{taken[name]!r} and {topic.name!r} would both become {name}: {NameTaken.advice}"
            )
        taken[name] = topic.name
