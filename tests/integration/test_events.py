"""Server-sent events over a real connection."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
from support.broker import serving
from support.threads import PATIENCE_S

from quivermq.engine import engine_of


def events(response: requests.Response) -> Iterator[tuple[str, Any]]:
    """The events of an answer that goes on."""
    name = ""
    # A byte at a time: the library would wait for more than one event.
    for line in response.iter_lines(chunk_size=1):
        field, _, value = line.decode().partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_a_client_hears_of_what_happens_until_the_broker_drains(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as served,
        requests.get(f"{served.url}/v1/events", stream=True, timeout=PATIENCE_S) as response,
    ):
        assert response.status_code == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        heard = events(response)
        assert next(heard)[0] == "stats"
        served.engine.queue("orders").put(b"x")
        assert next(data for name, data in heard if name == "topic") == {
            "topic": "orders",
            "change": "created",
        }
        # Figures may have been made between the creation and the message.
        now_us = engine_of(served.engine).clock.now_us()
        after = (data for name, data in heard if name == "stats" and data["time"] >= now_us)
        assert next(after)["messages"] == 1
        served.drain()
        # The answer ends, so this does, too.
        assert all(name in ("stats", "topic") for name, _ in heard)


def test_figures_and_health_over_a_real_connection(tmp_path: Path) -> None:
    with serving(tmp_path) as served, requests.Session() as session:
        lines = session.get(f"{served.url}/metrics", timeout=PATIENCE_S).text.splitlines()
        assert "quiver_http_connections 1" in lines
        lines = session.get(f"{served.url}/metrics", timeout=PATIENCE_S).text.splitlines()
        assert 'quiver_http_requests_total{method="GET",route="/metrics",status="200"} 1' in lines
        assert session.get(f"{served.url}/readyz", timeout=PATIENCE_S).json() == {"status": "ok"}
        page = session.get(f"{served.url}/docs", timeout=PATIENCE_S)
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
