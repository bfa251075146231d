"""Errors cross the wire: the class, the words and the fields are those they were raised with."""

from pathlib import Path
from typing import Any

import pytest
from unit.client.flows import answer, error

from quivermq import errors
from quivermq.client.core.call import Answer, Broken
from quivermq.client.core.failure import failure_of
from quivermq.server.http import error_response

RAISED: list[errors.QuiverError] = [
    errors.InvalidRequest("a"),
    errors.InvalidName("b"),
    errors.MessageTooLarge("the message", size_bytes=5, limit_bytes=4, setting="s"),
    errors.InvalidFrame("bad", position=3),
    errors.UnsupportedFrame("new", position=0),
    errors.InvalidSettings("key", "why", origin="arguments"),
    errors.TopicNotFound("c"),
    errors.GroupNotFound("d"),
    errors.OffsetOutOfRange(5, start=1, end=3),
    errors.TopicExists("e"),
    errors.LeaseExpired(receipts=["a:0:1:2:3", "b:0:1:2:3"]),
    errors.DirectoryLocked(Path("/data"), pid=7),
    errors.Fenced("f"),
    errors.Denied("g"),
    errors.Unauthenticated("h"),
    errors.Overloaded("orders", setting="backlog_messages_max", limit=5),
    errors.RateLimited("i"),
    errors.Closing("j"),
    errors.DiskFull(Path("/data"), needed_bytes=9),
    errors.Corruption("rot", path=Path("/data/x.log"), position=4, offsets=(1, None)),
    errors.FsyncFailed("k", path=Path("/data/x.log")),
    errors.QuiverError("l"),
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_it_was_raised(raised: errors.QuiverError) -> None:
    response = error_response(raised)
    found = failure_of(Answer(response.status, {}, response.body))
    assert type(found) is type(raised)
    assert str(found) == str(raised)
    assert vars(found) == vars(raised)


def test_a_code_of_a_later_release_is_still_an_error() -> None:
    found = failure_of(error("too_beautiful", 418, colour="red"))
    assert type(found) is errors.QuiverError
    assert (str(found), vars(found)) == ("so it is", {"colour": "red"})


def test_a_broken_connection_is_unreachable() -> None:
    found = failure_of(Broken("nobody there", was_sent=False))
    assert type(found) is errors.Unreachable
    assert "nobody there" in str(found)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Answer(502, {}, b"<html>Bad Gateway</html>"), errors.Unavailable),
        (Answer(404, {}, b"not here"), errors.QuiverError),
        (Answer(500, {}, b"\xff"), errors.QuiverError),
        (answer(["a list"], 400), errors.QuiverError),
        (answer({"error": "just text"}, 400), errors.QuiverError),
    ],
)
def test_what_no_broker_said_is_shown(reply: Answer, kind: type[Any]) -> None:
    found = failure_of(reply)
    assert type(found) is kind
    assert str(reply.status) in str(found)
