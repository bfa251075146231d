"""etcd's JSON gateway over HTTP, with etcd in memory behind it, and with faults."""

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from quivermq.shared.memory_etcd import MemoryEtcd

GatewayFault = Literal["fail", "lose_answer", "unavailable"]


@dataclass
class EtcdGateway(MemoryEtcd):
    """Its state, what it was asked, and what is to go wrong."""

    fault: Callable[[str, int], GatewayFault | None] = lambda _path, _number: None
    asked: list[str] = field(default_factory=list)


@contextmanager
def served(gateway: EtcdGateway, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of an endpoint of that cluster."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # An answer goes in one piece: of two, the second would wait for the first to be received.
        wbufsize = 1 << 16

        def do_POST(self) -> None:
            bodies = [
                json.loads(line)
                for line in self.rfile.read(int(self.headers["Content-Length"])).splitlines()
            ]
            gateway.asked.append(self.path)
            fault = gateway.fault(self.path, len(gateway.asked))
            if fault == "fail":
                self.close_connection = True
                return
            if fault == "unavailable":
                self._send(503, {"error": "etcdserver: no leader", "code": 14})
                return
            if self.path == "/v3/watch":
                self._send_news(gateway.news or gateway.watched(bodies))
                return
            answer = gateway.answer(self.path, bodies[0], self.headers["Authorization"])
            if fault == "lose_answer":
                self.close_connection = True
            else:
                self._send(*answer)

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _send_news(self, news: Iterable[dict[str, Any]]) -> None:
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            with suppress(ConnectionError):
                for each in news:
                    self.wfile.write(json.dumps(each).encode() + b"\n")
                    self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            # A client that is gone is no error here.
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        gateway.end_watches()
        server.shutdown()
        thread.join()
        server.server_close()
