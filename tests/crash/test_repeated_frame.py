"""A producer that was killed with its broker, or before it heard of an answer, sends its frame again."""

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos.http_clients import HttpReply
from quivermq.chaos.processes import BrokerProcess, broker
from quivermq.frame import Producer, encode

pytestmark = pytest.mark.fault("producer", "broker")

FRAME = "application/vnd.quiver.frame"
PRODUCER_ID = 9


def send(process: BrokerProcess, sequence: int, *values: bytes, epoch: int = 0) -> HttpReply:
    frame = bytes(encode(list(values), timestamp=1, producer=Producer(PRODUCER_ID, epoch, sequence)))
    path = "/v1/topics/orders/messages?partition=0"
    return process.client().call("POST", path, frame, content_type=FRAME)


def test_it_is_stored_once_and_answered_as_before(make_trial: MakeTrial) -> None:
    trial = make_trial(2)
    values = [f"{cycle}/{part}" for cycle in range(trial.cycles) for part in range(2)]
    with trial.process_pool() as pool, broker(pool, trial.data) as process:
        for sequence in range(0, len(values), 2):
            batch = [value.encode() for value in values[sequence : sequence + 2]]
            told = []
            for _ in range(3):
                answer = send(process, sequence, *batch)
                told.append((answer.document["offset"], answer.document["duplicate"]))
                process.restart()
                trial.tried += 1
            assert told == [(sequence, False), (sequence, True), (sequence, True)]
        assert process.client().values("orders") == values
        # Nor does it go on with a gap, or as somebody whom a later one has replaced.
        assert send(process, len(values) + 1, b"skipped one").status == 409
        assert process.client().call("POST", f"/v1/topics/orders/producers/{PRODUCER_ID}").is_done
        process.restart()
        assert send(process, len(values), b"of an epoch that is over").status == 409
        assert process.client().values("orders") == values
