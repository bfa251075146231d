"""A message that nobody survives: its worker dies, or raises, again and again."""

from typing import Any

from quivermq.chaos.broker import LIVES, broker
from quivermq.chaos.expectation import expect
from quivermq.chaos.http import Caller
from quivermq.chaos.nursery import Nursery, nursery
from quivermq.chaos.trial import Trial
from quivermq.engine import open_engine

_ATTEMPTS_MAX = 3
_LEASE_S = 0.1
_LONG_LEASE_S = 600.0
_SETTINGS: dict[str, Any] = {"attempts_max": _ATTEMPTS_MAX, "backoff_ms": 1, "backoff_ms_max": 1}
_HEALTHY = "healthy"


def engine(trial: Trial) -> None:
    """Each attempt is a new process, which opens the directory, takes the message, and dies or raises."""
    with trial.nursery() as lives:
        for cycle in range(trial.cycles):
            topic = f"t{cycle}"
            with open_engine(trial.data) as opened:
                opened.create_topic(topic, **_SETTINGS)
                opened.queue(topic).put(b"poison")
            crashes = _crash_on(lives, str(trial.data), topic, crashes=bool(cycle % 2))
            with open_engine(trial.data) as opened:
                letters = opened.queue(topic).dead_letters()
                expect(len(letters) == 1, f"{len(letters)} dead letters after {crashes} attempts")
                letter = letters[0]
                _check(letter.value, letter.attempts, letter.reason, letter.error, bool(cycle % 2))
            trial.tried += crashes


def over_http(trial: Trial) -> None:
    """The same against a broker that lives on, while others get their messages."""
    with trial.nursery() as lives, nursery(LIVES) as workers, broker(lives, trial.data) as process:
        caller = process.caller()
        for cycle in range(trial.cycles):
            topic = f"t{cycle}"
            caller.call("POST", "/v1/topics", {"name": topic, **_SETTINGS})
            caller.publish(topic, "poison")
            crashes = _crash_on(workers, process.url, topic, crashes=bool(cycle % 2))
            letters = caller.call("GET", f"/v1/topics/{topic}.dlq/partitions/0/messages").document[
                "messages"
            ]
            expect(len(letters) == 1, f"{len(letters)} dead letters after {crashes} attempts")
            told = {name.removeprefix("quiver-dlq-"): text for name, text in letters[0]["headers"].items()}
            value = letters[0]["value"].encode()
            _check(value, int(told["attempts"]), told["reason"], told.get("error", ""), bool(cycle % 2))
            _check_others(caller)
            trial.tried += crashes


def _crash_on(lives: Nursery, place: str, topic: str, *, crashes: bool) -> int:
    """Let process after process take the message, until nobody gets it any more."""
    attempts: list[int] = []
    while len(attempts) <= _ATTEMPTS_MAX:
        # Who raises gives the message back itself; a lease is over only when its holder is dead.
        lease_s = _LEASE_S if crashes else _LONG_LEASE_S
        lives.begin(kind="poisoned", place=place, topic=topic, lease_s=lease_s, crashes=crashes)
        word, told = lives.read()
        if word == "took":
            attempts += told
        # A process that exits with 1 has a status of 256.
        list(lives.last_words(256 if word == "took" and crashes else 0))
        if word == "nothing":
            break
    expect(attempts == list(range(1, _ATTEMPTS_MAX + 1)), f"delivered as attempts {attempts}")
    return len(attempts)


def _check(value: bytes, attempts: int, reason: str | None, error: str | None, crashes: bool) -> None:
    expect((value, attempts) == (b"poison", _ATTEMPTS_MAX), f"{value!r} died after {attempts} attempts")
    cause = (reason, error or "")
    wanted = ("lease_expired", "") if crashes else ("ValueError", "ValueError: it tastes of almonds")
    expect(cause == wanted, f"its cause is {cause}")


def _check_others(caller: Caller) -> None:
    caller.publish(_HEALTHY, "fine")
    messages = caller.receive(_HEALTHY, "default", wait_ms=5000)
    expect([message["value"] for message in messages] == ["fine"], "others do not get their messages")
    caller.settle("ack", _HEALTHY, "default", [message["receipt"] for message in messages])
