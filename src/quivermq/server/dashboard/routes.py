"""The calls that answer with the files of the dashboard, read once and kept: they are few and small.

Anybody may have these; what they ask the broker for needs a key where the broker wants one.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from quivermq.disk import Disk, SystemDisk, read_file
from quivermq.errors import NotFound
from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response
from quivermq.server.routing import Calls, Route

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

INDEX = "index.html"
DOCS = "docs.html"

# What the page may do: nothing but run its own files and talk to its own broker. No text can become
# markup or script, because strings are refused wherever a browser would read them as such.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked for each time, and answered without a body while it is the same: an upgrade shows at once.
    "Cache-Control": "no-cache",
}


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


ROUTES: list[Route] = []
_dashboard = Calls(ROUTES, "", "dashboard", ())
_PAGE, _FILE = {200: MEDIA_TYPES[0], 304: None}, {200: MEDIA_TYPES, 304: None}


@_dashboard("GET", "/", "The dashboard", _PAGE)
def dashboard(broker: Broker, request: Request) -> Response:
    """The dashboard: topics, messages, groups and figures in a browser."""
    return _answer(broker, request, INDEX)


@_dashboard("GET", "/docs", "Every call of the broker as a page", _PAGE)
def docs(broker: Broker, request: Request) -> Response:
    """This API, for people: every call, with a form that tries it."""
    return _answer(broker, request, DOCS)


@_dashboard("GET", "/dashboard/{file}", "A file of the dashboard", _FILE, errors=(404,))
def dashboard_file(broker: Broker, request: Request) -> Response:
    """A file of the dashboard."""
    return _answer(broker, request, request.params["file"])


@_dashboard("GET", "/dashboard/pages/{file}", "A file of a page of the dashboard", _FILE, errors=(404,))
def dashboard_page(broker: Broker, request: Request) -> Response:
    """A file of one of the dashboard's pages."""
    return _answer(broker, request, f"pages/{request.params['file']}")


def _answer(broker: Broker, request: Request, path: str) -> Response:
    file = broker.part(_files).get(path)
    if file is None:
        raise NotFound(f"the dashboard has no file {path[:200]!r}: open / in a browser")
    headers = {**_HEADERS, "ETag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(304, b"", file.content_type, headers)
    return Response(200, file.body, file.content_type, headers)


def _files(_: Broker) -> dict[str, StaticFile]:
    return load_files()
