"""kill -9 of a real broker at the very write that ends a redrive, again and again, without any luck."""

import signal
from http.client import HTTPException

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos import tracing
from quivermq.chaos.broker import broker
from quivermq.chaos.http import Answer, Caller

pytestmark = pytest.mark.fault("interrupted", "broker")

TOPIC, GROUP = "orders", "billing"
# Of the words of strace: an error that nobody hears of, because the process is gone.
DEATH = "EIO:signal=KILL"
LETTERS = f"/v1/topics/{TOPIC}/dead-letters"


def give_up_one(caller: Caller, value: str) -> None:
    assert caller.publish(TOPIC, value).is_done
    [message] = caller.receive(TOPIC, GROUP)
    assert caller.settle("reject", TOPIC, GROUP, [message["receipt"]]).is_done


def redrive(caller: Caller) -> Answer:
    return caller.call("POST", f"/v1/topics/{TOPIC}/redrive", {})


@pytest.mark.parametrize(("number", "is_back"), [(1, False), (2, True)], ids=["begun", "arrived"])
def test_a_dead_letter_is_in_one_of_the_two_topics(
    number: int, is_back: bool, make_trial: MakeTrial
) -> None:
    assert (reason := tracing.why_not()) is None, reason
    trial = make_trial(2)
    with trial.nursery() as lives, broker(lives, trial.data) as process:
        # The first one, so that the file is there in which redrives are noted.
        give_up_one(process.caller(), "first")
        assert redrive(process.caller()).is_done
        [message] = process.caller().receive(TOPIC, GROUP)
        process.caller().settle("ack", TOPIC, GROUP, [message["receipt"]])
        notes = trial.data / "topics" / f"{TOPIC}.dlq" / "p0" / "removed"
        for cycle in range(trial.cycles):
            give_up_one(process.caller(), f"{cycle}")
            path = max(notes.glob("*.log"))
            # Before anything of it is written.
            with (
                tracing.failing(
                    process.pid, "writev", DEATH, str(number), trial.directory / "strace.txt", path
                ),
                pytest.raises((OSError, HTTPException)),
            ):
                redrive(process.caller())
            list(lives.last_words(signal.SIGKILL))
            process.start()
            caller = process.caller()
            letters = caller.call("GET", LETTERS).document["dead_letters"]
            delivered = caller.receive(TOPIC, GROUP, 10)
            assert [len(letters), len(delivered)] == ([0, 1] if is_back else [1, 0])
            # Once more, and this time nobody dies.
            if not is_back:
                assert redrive(caller).is_done
                delivered = caller.receive(TOPIC, GROUP, 10)
            assert [message["value"] for message in delivered] == [f"{cycle}"]
            caller.settle("ack", TOPIC, GROUP, [message["receipt"] for message in delivered])
            trial.tried += 1
