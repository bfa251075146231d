"""When a call is made again: only when that is safe, and may help."""

import json
from typing import Any, cast

import pytest
from support.manual_clock import ManualClock
from unit.client.answers import body, frame, lease
from unit.client.flows import Script, answer, error

from quivermq.client.core.call import Answer, Broken, Call
from quivermq.client.core.queue import QueueCalls
from quivermq.client.core.retry import Retry, asked
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import (
    Closing,
    DiskFull,
    InvalidRequest,
    NotOwner,
    Overloaded,
    TopicNotFound,
    Unreachable,
)

SAFE = Call("GET", "/", is_repeatable=True)
UNSAFE = Call("POST", "/")
CUT = Broken("cut", was_sent=True)
REFUSED = Broken("refused", was_sent=False)


def test_an_answer_is_an_answer() -> None:
    script = Script(answer({"a": 1}))
    assert script.run(asked(UNSAFE, Retry())).status == 200
    assert (len(script.calls), script.pauses) == (1, [])


def test_a_shard_that_is_elsewhere_is_an_error_to_who_knows_one_broker_only() -> None:
    script = Script(error("not_owner", 307))
    with pytest.raises(NotOwner, match="so it is"):
        script.run(asked(SAFE, Retry()))
    assert len(script.calls) == 1


def test_what_is_safe_is_repeated_when_nobody_knows() -> None:
    script = Script(CUT, CUT, answer())
    script.run(asked(SAFE, Retry(retries=2)))
    assert len(script.pauses) == 2


def test_what_is_not_safe_is_not() -> None:
    script = Script(CUT)
    with pytest.raises(Unreachable, match="cut"):
        script.run(asked(UNSAFE, Retry()))


def test_what_was_never_sent_can_be_sent_again() -> None:
    script = Script(REFUSED, answer())
    script.run(asked(UNSAFE, Retry()))
    assert len(script.calls) == 2


def test_there_is_an_end_to_it() -> None:
    script = Script(*[REFUSED] * 4)
    with pytest.raises(Unreachable):
        script.run(asked(SAFE, Retry(retries=3)))
    assert len(script.calls) == 4


@pytest.mark.parametrize("code", ["closing", "rate_limited"])
def test_a_broker_that_did_nothing_is_asked_again_when_it_says(code: str) -> None:
    script = Script(error(code, 503), answer())
    script.run(asked(UNSAFE, Retry(first_s=0)))
    assert script.pauses == [1.0]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error("overloaded", 429, topic="t", setting="s", limit=1), Overloaded),
        (error("disk_full", 507, path="/data", needed_bytes=5), DiskFull),
    ],
)
def test_only_the_patient_wait_for_room(reply: object, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Script(reply).run(asked(UNSAFE, Retry()))  # type: ignore[arg-type]
    script = Script(reply, answer())  # type: ignore[arg-type]
    script.run(asked(UNSAFE, Retry(is_patient=True)))
    assert len(script.calls) == 2


def test_what_cannot_succeed_is_not_repeated() -> None:
    with pytest.raises(TopicNotFound):
        Script(error("topic_not_found", 404)).run(asked(SAFE, Retry()))


def test_a_proxy_without_a_broker_is_asked_again_only_when_that_is_safe() -> None:
    proxy = answer(status=502)
    script = Script(proxy, answer())
    script.run(asked(SAFE, Retry()))
    with pytest.raises(Exception, match="not from a broker"):
        Script(proxy).run(asked(UNSAFE, Retry()))


def test_a_status_that_is_expected_is_an_answer() -> None:
    call = Call("POST", "/", takes=(409,))
    assert Script(error("lease_expired", 409)).run(asked(call, Retry())).status == 409


def test_the_last_error_is_the_one_that_is_told() -> None:
    with pytest.raises(Closing):
        Script(REFUSED, error("closing", 503)).run(asked(SAFE, Retry(retries=1)))


def test_waits_grow_with_jitter_up_to_a_limit() -> None:
    retry = Retry(first_s=0.1, longest_s=2.0)
    for attempt, longest in ((0, 0.1), (1, 0.2), (4, 1.6), (5, 2.0), (1000, 2.0)):
        waits = {retry.wait_s(attempt) for _ in range(50)}
        assert len(waits) > 1
        assert all(longest / 2 <= wait <= longest for wait in waits)


@pytest.mark.parametrize("retries", [-1, "many", 1.5, True])
def test_a_wrong_number_of_retries_is_refused(retries: object) -> None:
    with pytest.raises(InvalidRequest):
        Retry(retries)  # type: ignore[arg-type]


def waits(timeout: float | None, *replies: Any) -> Script:
    """Wait for a message, with one attempt for each call. Whatever comes of it was not to be raised."""
    script = Script(*replies)
    topics = TopicCalls(Retry(retries=0), ManualClock())
    calls = QueueCalls(topics, "orders", "default", lambda *_: cast(Any, None))
    script.run(calls.take(1, 0, None, []))
    script.run(calls.take(1, timeout, None, []))
    return script


RELEASED = Answer(200, {}, b'{"results":[{"ok":true}]}')
NOTHING = Answer(200, {}, body([]))


def test_who_waits_for_ever_waits_for_a_broker_that_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    message = Answer(200, {}, body([lease([0, 1], 1)], frame(b"x", base=0)))
    calls = waits(None, NOTHING, CUT, REFUSED, NOTHING, RELEASED, message).calls
    assert [call.path.rpartition("/")[2] for call in calls] == [
        "receive", "receive", "release", "receive", "release", "receive",
    ]  # fmt: skip
    # Each has a token of its own; the one whose answer was lost is released until the broker has heard it.
    bodies = [json.loads(call.body) for call in calls]
    lost = bodies[1]["token"]
    assert bodies[2]["tokens"] == bodies[4]["tokens"] == [lost]
    assert len({each["token"] for each in bodies if "token" in each}) == 4
    assert "still waiting for messages of orders" in caplog.text


def test_who_waits_for_a_time_is_told() -> None:
    with pytest.raises(Unreachable):
        waits(60, NOTHING, REFUSED)


def test_who_waits_for_a_broker_that_never_was_there_is_told() -> None:
    with pytest.raises(Unreachable):
        waits(None, REFUSED)
