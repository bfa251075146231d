"""A bit is flipped in each kind of file of a real broker, which has to say so, and to serve the rest."""

from collections.abc import Callable
from pathlib import Path

from quivermq.chaos.broker import broker
from quivermq.chaos.expectation import Unkept, expect
from quivermq.chaos.http import Caller
from quivermq.chaos.trial import Trial
from quivermq.log import repair, verify
from quivermq.server.keys import create_key

_MESSAGES = 10
_HURT = 4
_ORDERS, _OTHER, _GROUP = "orders", "other", "billing"


def over_http(trial: Trial) -> None:
    """Every kind of file, one after the other, each in a directory of its own."""
    for number, (name, hurt, check) in enumerate(_KINDS * trial.cycles):
        path = trial.directory / f"data{number}"
        with trial.nursery() as lives, broker(lives, path) as process:
            _prepare(process.caller())
            process.stop()
            hurt(path)
            try:
                process.start()
                check(process.caller())
                _check_other(process.caller())
                process.stop()
                _check_repaired(path, name)
                process.start()
                _check_after_repair(process.caller(), name)
            except Unkept as error:
                raise Unkept(f"{name}: {error}") from error
            trial.tried += 1


def damaged_keys(trial: Trial) -> None:
    """A broker whose keys cannot be read does not serve: it could not tell who may do what."""
    create_key(trial.data, "read", ["orders"])
    _flip_value(trial.data / "keys.json", b"orders")
    with trial.nursery() as lives:
        try:
            with broker(lives, trial.data):
                raise Unkept("it serves with keys that were changed")
        except Unkept as error:
            expect("keys.json cannot be understood" in str(error), f"it does not say why: {error}")
            list(lives.last_words(256))
    trial.tried += 1


def _prepare(caller: Caller) -> None:
    for topic in (_ORDERS, _OTHER):
        caller.call("POST", "/v1/topics", {"name": topic, "partitions": 1, "attempts_max": 5})
        for number in range(_MESSAGES):
            expect(caller.publish(topic, f"message {number}").is_done, "a publish failed")
        caller.publish(topic, "later", delay_ms=3_600_000)
        messages = caller.receive(topic, _GROUP, 3, lease_ms=3_600_000)
        caller.settle("ack", topic, _GROUP, [message["receipt"] for message in messages[:2]])


def _flip_message(path: Path) -> None:
    """Hurt the message of one offset."""
    _flip_value(_log(path / "topics" / _ORDERS / "p0" / "normal"), b"message %d" % _HURT)


def _flip_journal(path: Path) -> None:
    _flip_middle(_log(path / "groups" / _GROUP / _ORDERS / "p0"))


def _flip_delayed(path: Path) -> None:
    buckets = [each for each in (path / "topics" / _ORDERS / "delayed").iterdir() if each.name != "journal"]
    _flip_value(_log(buckets[0]), b"later")


def _flip_settings(path: Path) -> None:
    _flip_value(path / "topics" / _ORDERS / "topic.json", b'"attempts_max": 5')


def _log(directory: Path) -> Path:
    return max(each for each in directory.glob("*.log") if each.stat().st_size)


def _flip_value(path: Path, value: bytes) -> None:
    """Flip the lowest bit of the last byte of some text: a digit stays a digit."""
    _flip(path, path.read_bytes().index(value) + len(value) - 1)


def _flip_middle(path: Path) -> None:
    _flip(path, path.stat().st_size // 2)


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def _check_message(caller: Caller) -> None:
    """What lies before the damage is read; the damage itself is an error that names its offsets."""
    values = caller.values(_ORDERS, limit=_HURT)
    expect(values == [f"message {number}" for number in range(_HURT)], f"before the damage: {values}")
    answer = caller.read(_ORDERS, offset=_HURT)
    expect(answer.code == "corruption", f"the damage is not told: {answer}")
    offsets = answer.document["error"]["offsets"]
    expect(offsets == [_HURT, _HURT + 1], f"the damage is said to be at {offsets}")
    expect(_problems(caller), "the broker says that all is well")


def _check_journal(caller: Caller) -> None:
    answer = caller.call("POST", f"/v1/topics/{_ORDERS}/groups/{_GROUP}/receive", {"max": 1})
    expect(answer.code == "corruption", f"the damage is not told: {answer}")
    expect(len(caller.values(_ORDERS)) == _MESSAGES, "the messages themselves cannot be read")
    expect(caller.receive(_ORDERS, "another"), "another group is not served")
    expect(_problems(caller), "the broker says that all is well")


def _check_delayed(caller: Caller) -> None:
    answer = caller.call("GET", f"/v1/topics/{_ORDERS}/scheduled")
    expect(answer.code == "corruption", f"the damage is not told: {answer}")
    expect(len(caller.values(_ORDERS)) == _MESSAGES, "the messages in the lanes cannot be read")
    expect(len(caller.receive(_ORDERS, _GROUP, 100)) == _MESSAGES - 3, "they are not delivered")


def _check_settings(caller: Caller) -> None:
    answer = caller.publish(_ORDERS, "x")
    expect(answer.code == "storage_failed", f"settings that were changed are obeyed: {answer}")
    expect("checksum" in answer.document["error"]["message"], f"it does not say why: {answer}")
    expect(_problems(caller), "the broker says that all is well")


def _problems(caller: Caller) -> list[object]:
    found: list[object] = caller.call("GET", "/v1/stats").document["problems"]
    return found


def _check_other(caller: Caller) -> None:
    """Another topic goes on as if nothing had happened."""
    expect(caller.values(_OTHER)[:_MESSAGES] == [f"message {n}" for n in range(_MESSAGES)], "not served")
    expect(caller.publish(_OTHER, "more").is_done, "another topic takes nothing")
    expect(len(caller.receive(_OTHER, _GROUP, 100)) == _MESSAGES - 2, "another topic delivers nothing")


def _check_repaired(path: Path, name: str) -> None:
    """As `quiver repair` does; a file of settings is for people to mend, who take its checksum out."""
    if name == "settings":
        file = path / "topics" / _ORDERS / "topic.json"
        _flip_value(file, b'"attempts_max": 4')
        return
    expect(repair(path).mended, "a repair found nothing to mend")
    expect(verify(path).is_sound, "a repair left damage")


def _check_after_repair(caller: Caller, name: str) -> None:
    """Only the damaged range is lost."""
    lost = [_HURT] if name == "message" else []
    wanted = [f"message {number}" for number in range(_MESSAGES) if number not in lost]
    expect(caller.values(_ORDERS)[: len(wanted)] == wanted, f"after a repair: {caller.values(_ORDERS)}")
    expect(caller.publish(_ORDERS, "more").is_done, "after a repair nothing is taken")
    expect(caller.receive(_ORDERS, _GROUP, 1), "after a repair nothing is delivered")
    expect(not _problems(caller), f"after a repair there are problems: {_problems(caller)}")


_KINDS: list[tuple[str, Callable[[Path], None], Callable[[Caller], None]]] = [
    ("message", _flip_message, _check_message),
    ("delivery journal", _flip_journal, _check_journal),
    ("delayed message", _flip_delayed, _check_delayed),
    ("settings", _flip_settings, _check_settings),
]
