"""Logs as JSON: a line a record, with its extra fields, and nothing secret in the access log."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from support.transport import Wire

from quivermq.server.edge import access_log
from quivermq.server.http import Response
from quivermq.server.process import JsonFormatter, configure_logging


@pytest.fixture(autouse=True)
def package_logger() -> Iterator[None]:
    package = logging.getLogger("quivermq")
    before = package.handlers[:], package.level, package.propagate
    yield
    package.handlers[:], package.level, package.propagate = before


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_a_line_with_its_extra_fields() -> None:
    stream = io.StringIO()
    configure_logging(as_json=True, stream=stream)
    logging.getLogger("quivermq.engine").info("made %s", "a\nb", extra={"topic": "a", "level": "no"})
    [line] = logged(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "info", "logger": "quivermq.engine", "message": "made a\nb", "topic": "a"}


def test_an_error_has_its_traceback_in_the_same_line() -> None:
    stream = io.StringIO()
    configure_logging(as_json=True, stream=stream)
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        logging.getLogger("quivermq").exception(
            "failed", extra={"request_id": "r1", "odd": {1, 2}.__class__}
        )
    [line] = logged(stream)
    assert "ZeroDivisionError: by nothing" in line["error"]
    assert line["request_id"] == "r1"


def test_for_people_there_is_text() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("quivermq").warning("look")
    assert stream.getvalue().endswith("WARNING quivermq: look\n")


def test_a_record_cannot_break_the_format() -> None:
    record = logging.makeLogRecord({"msg": "a", "topic": object(), "made": b"\xff"})
    assert set(json.loads(JsonFormatter().format(record))) >= {"topic", "made"}


def test_requests_are_logged_on_request_without_anything_secret(caplog: pytest.LogCaptureFixture) -> None:
    sent = (
        b"POST /a?key=hidden HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hidden\r\n"
        b"Content-Length: 6\r\n\r\nhidden"
    )
    quiet = Wire(lambda _: Response(200, b"hidden"))
    quiet.send(sent)
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, logger=access_log.name):
        wire = Wire(lambda _: Response(200, b"hidden"))
        wire.send(sent)
    [record] = caplog.records
    assert record.getMessage() == "POST /a 200"
    told = json.loads(JsonFormatter().format(record))
    assert (told["client"], told["request_bytes"], told["response_bytes"]) == ("192.0.2.1", 6, 6)
    assert told["request_id"] == wire.requests[0].id
    assert "hidden" not in JsonFormatter().format(record)
