"""A broker that goes away and comes back: calls that are safe to repeat do not notice."""

from pathlib import Path

import pytest
from contract.broker_process import BrokerProcess
from support.threads import start

import quivermq
from quivermq.errors import Unreachable


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_connection_survives_its_broker(tmp_path: Path, end: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker, quivermq.connect(broker.url) as mq:
        orders = mq.queue("orders", "billing")
        orders.put_many([b"%d" % number for number in range(10)])
        messages = orders.get_many(4)
        consumer = mq.consumer("orders", "stream", session_timeout_ms=1000)
        seen = {message.value for message in consumer.poll(60)}
        waiting = start(lambda: mq.queue("other").get(timeout=60))
        getattr(broker, end)()
        broker.start()
        # The receipts of before still hold, and nothing that was acknowledged is gone.
        orders.ack(messages)
        orders.put(b"10", dedup_id="x")
        assert orders.stats().pending == 7
        mq.queue("other").put(b"here", dedup_id="y")
        found = waiting.result(60)
        assert found is not None
        assert found.value == b"here"
        while len(seen) < 11:
            seen |= {message.value for message in consumer.poll(0.1)}
        assert seen == {b"%d" % number for number in range(11)}


def test_without_a_broker_a_call_says_that_nobody_answers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        mq = quivermq.connect(broker.url, retries=1)
        mq.queue("orders").put(b"x")
        broker.stop()
        for call in (mq.topics, lambda: mq.queue("orders").put(b"y"), mq.queue("orders").get):
            with pytest.raises(Unreachable, match=broker.url):
                call()
        mq.close()
