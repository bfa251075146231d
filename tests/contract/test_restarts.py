"""A broker that goes away and comes back: calls that are safe to repeat do not notice."""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from contract.broker_process import BrokerProcess
from support.threads import start

import quivermq
from quivermq.errors import LeaseExpired, Unreachable

# A broker on a busy machine may take longer to start than a connection waits for by default.
PATIENT_RETRIES = 100


def test_a_connection_survives_its_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, connect(broker) as mq:
        survive(broker, mq, broker.kill, "killed")
        survive(broker, mq, broker.stop, "stopped")


def connect(broker: BrokerProcess) -> quivermq.Connection:
    return quivermq.connect(broker.url, retries=PATIENT_RETRIES)


def survive(broker: BrokerProcess, mq: quivermq.Connection, end: Callable[[], None], name: str) -> None:
    orders = mq.queue(f"{name}.orders", "billing")
    orders.put_many([b"%d" % number for number in range(10)])
    messages = orders.get_many(4)
    consumer = mq.consumer(orders.topic, f"{name}.stream", session_timeout_ms=1000)
    seen = {message.value for message in consumer.poll(60)}
    others = mq.queue(f"{name}.others")
    waiting = start(lambda: others.get(timeout=60))
    end()
    broker.start()
    # The receipts of before still hold, and nothing that was acknowledged is gone.
    orders.ack(messages)
    orders.put(b"10", dedup_id="x")
    assert orders.stats().pending == 7
    others.put(b"here", dedup_id="y")
    found = waiting.result(60)
    assert found is not None
    assert found.value == b"here"
    while len(seen) < 11:
        seen |= {message.value for message in consumer.poll(0.1)}
    assert seen == {b"%d" % number for number in range(11)}
    consumer.close()


def test_a_stream_that_takes_ahead_loses_nothing_with_its_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, connect(broker) as mq:
        orders = mq.queue("orders")
        orders.put_many([b"%d" % number for number in range(2000)])
        seen: list[int] = []
        while len(set(seen)) < 2000:
            # An ack whose answer was lost may be refused the second time: what is left comes again.
            with suppress(LeaseExpired):
                for message in orders.stream(timeout=0, prefetch=100, lease=1):
                    seen.append(int(message.value))
                    if len(seen) == 1000:
                        broker.kill()
                        broker.start()
        for _ in orders.stream(timeout=1.5, prefetch=100):
            continue
        assert orders.stats().backlog == 0


def test_without_a_broker_a_call_says_that_nobody_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        mq = quivermq.connect(broker.url, retries=1)
        mq.queue("orders").put(b"x")
        broker.stop()
        for call in (mq.topics, lambda: mq.queue("orders").put(b"y"), mq.queue("orders").get):
            with pytest.raises(Unreachable, match=broker.url):
                call()
        # Nothing was handed out, so that nobody is warned of messages that wait.
        assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []
        mq.close()
