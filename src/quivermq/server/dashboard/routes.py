"""The calls that answer with the files of the dashboard.

Anybody may have these; what they ask the broker for needs a key where the broker wants one.
"""

from typing import Any

from quivermq.errors import NotFound
from quivermq.server.broker import Broker
from quivermq.server.dashboard.files import MEDIA_TYPES, StaticFile, load_files
from quivermq.server.http import Request, Response
from quivermq.server.routing import Route

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


class Files:
    """The files of one broker."""

    def __init__(self, _: Broker) -> None:
        self._files = load_files()

    def get(self, path: str) -> StaticFile:
        """The file at a path. Raises NotFound."""
        file = self._files.get(path)
        if file is None:
            raise NotFound(f"the dashboard has no file {path[:200]!r}: open / in a browser")
        return file


def dashboard(broker: Broker, request: Request) -> Response:
    """The dashboard: topics, messages, groups and figures in a browser."""
    return _answer(broker, request, INDEX)


def docs(broker: Broker, request: Request) -> Response:
    """This API, for people: every call, with a form that tries it."""
    return _answer(broker, request, DOCS)


def dashboard_file(broker: Broker, request: Request) -> Response:
    """A file of the dashboard."""
    return _answer(broker, request, request.params["file"])


def dashboard_page(broker: Broker, request: Request) -> Response:
    """A file of one of the dashboard's pages."""
    return _answer(broker, request, f"pages/{request.params['file']}")


def _answer(broker: Broker, request: Request, path: str) -> Response:
    file = broker.part(Files).get(path)
    headers = {**_HEADERS, "ETag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(304, b"", file.content_type, headers)
    return Response(200, file.body, file.content_type, headers)


def _route(path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route("GET", path, handler, summary=summary, tag="dashboard", **more)


ROUTES: list[Route] = [
    _route("/", dashboard, "The dashboard", returns={200: MEDIA_TYPES[0], 304: None}),
    _route("/docs", docs, "Every call of the broker as a page", returns={200: MEDIA_TYPES[0], 304: None}),
    _route(
        "/dashboard/{file}",
        dashboard_file,
        "A file of the dashboard",
        returns={200: MEDIA_TYPES, 304: None},
        errors=(404,),
    ),
    _route(
        "/dashboard/pages/{file}",
        dashboard_page,
        "A file of a page of the dashboard",
        returns={200: MEDIA_TYPES, 304: None},
        errors=(404,),
    ),
]
