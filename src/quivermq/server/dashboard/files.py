"""The files of the dashboard, read once and kept: they are few, small, and do not change while it runs."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from quivermq.disk import Disk, SystemDisk, read_file

STATIC = Path(__file__).with_name("static")

_FILE_BYTES_MAX = 1024 * 1024
# A file of another kind is not served, whatever lies in the directory.
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
MEDIA_TYPES = tuple(_CONTENT_TYPES.values())


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent. Its tag is another one when its bytes are."""

    body: bytes
    content_type: str
    tag: str


def load_files(disk: Disk | None = None, root: Path = STATIC) -> dict[str, StaticFile]:
    """Every file that may be served, by its path below the directory, with `/` between the parts."""
    return dict(_found(disk or SystemDisk(), root, PurePosixPath()))


def _found(disk: Disk, root: Path, below: PurePosixPath) -> list[tuple[str, StaticFile]]:
    files: list[tuple[str, StaticFile]] = []
    for name in disk.names(root / below):
        place = below / name
        content_type = _CONTENT_TYPES.get(place.suffix)
        if disk.is_directory(root / place):
            files += _found(disk, root, place)
        elif content_type is not None:
            body = read_file(disk, root / place, bytes_max=_FILE_BYTES_MAX)
            files.append((str(place), StaticFile(body, content_type, f'"{sha256(body).hexdigest()[:32]}"')))
    return files
