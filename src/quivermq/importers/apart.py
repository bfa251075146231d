"""Whether a source and the directory it goes to are two: what is read must not be written to."""

from collections.abc import Iterator
from pathlib import Path

from quivermq.disk import Disk, real_path
from quivermq.errors import InvalidRequest
from quivermq.importers.files import subdirectories

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
