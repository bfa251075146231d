"""A server that speaks S3 and takes the condition of a put for decoration, as some do."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape


@contextmanager
def unsafe_server() -> Iterator[str]:
    """Its endpoint, until the end of the block. It has every bucket, and takes every key."""
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(b"")

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if "list-type" in url.query:
                self._answer(_listed(objects, url.path, parse_qs(url.query)["prefix"][0]))
            elif self.path in objects:
                self._answer(objects[self.path])
            else:
                self._answer(b"<Error><Code>NoSuchKey</Code></Error>", 404)

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            keys = re.findall(rb"<Key>([^<]*)</Key>", asked)
            for key in keys:
                objects.pop(f"{urlsplit(self.path).path}/{key.decode()}", None)
            deleted = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % key for key in keys)
            self._answer(b"<DeleteResult>%b</DeleteResult>" % deleted)

        def _answer(self, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            for name, value in (
                ("Content-Length", str(len(body))),
                ("ETag", '"etag"'),
                ("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _listed(objects: dict[str, bytes], bucket: str, prefix: str) -> bytes:
    names = [path.removeprefix(f"{bucket}/") for path in sorted(objects)]
    contents = "".join(
        f"<Contents><Key>{escape(name)}</Key><Size>1</Size><ETag>etag</ETag>"
        "<LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>"
        for name in names
        if name.startswith(prefix)
    )
    return f"<ListBucketResult>{contents}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()
