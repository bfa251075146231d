"""Whoever stops in order, or is gone before it could begin, counts no attempt: over real sockets."""

import asyncio
import contextlib
import gc
import inspect
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import getrandbits
from types import FrameType
from typing import Any, Literal, get_args

import pytest
from support.broker import Served, serving
from support.threads import wait_until

import quivermq
from quivermq import Settings, StorageSettings, aio
from quivermq.client.asynchronous.pool import AsyncPool
from quivermq.client.blocking.backend import HttpBackend
from quivermq.client.blocking.pool import Pool
from quivermq.client.core.call import Broken
from quivermq.client.core.http import request_bytes
from quivermq.delivery.state import LaneState
from quivermq.engine import engine_of
from quivermq.engine.taking import Taking
from quivermq.model.json import DELIVERY
from quivermq.queue.renewing import Renewer
from quivermq.settings import Durability
from quivermq.topic.state_log import StateLog

# More than the kernel takes for a client that does not read.
LARGE = 1_000_000


def receive(broker: Served, body: bytes) -> socket.socket:
    """A client that asks for messages, and does not read the answer."""
    client = socket.socket()
    # Before it is connected: then the kernel takes little for it.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", broker.port))
    head = b"POST /v1/topics/orders/groups/billing/receive HTTP/1.1\r\nHost: localhost\r\n"
    length = b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n" % len(body)
    client.sendall(head + length + body)
    return client


def topic(broker: Served, durability: Durability = "os", count: int = 8) -> quivermq.Queue:
    broker.engine.create_topic("orders", attempts_max=1, durability=durability)
    queue = broker.engine.queue("orders", "billing")
    queue.put_many([b"x" * LARGE for _ in range(count)])
    return queue


@pytest.mark.parametrize("durability", ["os", "fsync"])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_an_answer_that_cannot_be_sent_is_given_back(
    tmp_path: Path, durability: Durability, end: str
) -> None:
    with serving(tmp_path) as broker:
        queue = topic(broker, durability)
        client = receive(broker, b'{"max": 8}')
        wait_until(lambda: queue.stats().in_flight == 8)
        if end == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        wait_until(lambda: queue.stats().pending == 8)
        assert {message.attempt for message in queue.get_many(8)} == {1}


def test_an_answer_that_arrived_is_not_given_back(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        broker.engine.create_topic("orders")
        queue = broker.engine.queue("orders", "billing")
        queue.put(b"x")
        client = receive(broker, b"{}")
        assert client.recv(100_000).startswith(b"HTTP/1.1 200")
        client.close()
        wait_until(lambda: not broker.server.edge.clients)
        assert queue.stats().in_flight == 1


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_broker_that_stops_gives_back_what_it_could_not_send(
    tmp_path: Path, durability: Durability
) -> None:
    with serving(tmp_path, drain_timeout_ms=1) as broker:
        topic(broker, durability)
        client = receive(broker, b'{"max": 8}')
        wait_until(lambda: broker.engine.queue("orders", "billing").stats().in_flight == 8)
    client.close()
    with quivermq.open(tmp_path) as mq:
        queue = mq.queue("orders", "billing")
        assert {message.attempt for message in queue.get_many(8)} == {1}
        assert queue.dead_letters() == []


def test_a_broker_that_stops_hands_nothing_out(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        queue = topic(broker, count=1)
        broker.app.broker.drain()
        client = receive(broker, b"{}")
        assert b'{"messages":[]}' in client.recv(100_000)
        client.close()
        assert queue.stats().in_flight == 0


@pytest.mark.parametrize("is_embedded", [True, False])
def test_a_cancelled_task_burns_no_attempt(tmp_path: Path, is_embedded: bool) -> None:
    async def three_times(mq: Any) -> tuple[Any, list[int]]:
        await mq.create_topic("orders", attempts_max=1)
        orders = mq.queue("orders")
        await orders.put_many([b"%d" % number for number in range(10)])
        attempts: list[int] = []

        async def process(begun: asyncio.Event) -> None:
            async with orders.process() as message:
                attempts.append(message.attempt)
                begun.set()
                await asyncio.Event().wait()

        async def stream(begun: asyncio.Event) -> None:
            async for message in orders.stream(prefetch=5):
                attempts.append(message.attempt)
                begun.set()
                await asyncio.Event().wait()

        for work in (process, stream) * 3:
            begun = asyncio.Event()
            task = asyncio.create_task(work(begun))
            await begun.wait()
            task.cancel()
            await asyncio.wait([task])
            # An asynchronous generator that nobody closes is closed by the event loop.
            gc.collect()
            for _ in range(500):
                if not (stats := await orders.stats()).in_flight:
                    break
                await asyncio.sleep(0.01)
        return stats, attempts

    async def embedded() -> tuple[Any, list[int]]:
        async with await aio.open(tmp_path) as mq:
            return await three_times(mq)

    async def remote(url: str) -> tuple[Any, list[int]]:
        async with await aio.connect(url) as mq:
            return await three_times(mq)

    if is_embedded:
        stats, attempts = asyncio.run(embedded())
    else:
        with serving(tmp_path) as broker:
            stats, attempts = asyncio.run(remote(broker.url))
    assert attempts == [1] * 6
    assert (stats.pending, stats.in_flight, stats.dead_letters) == (10, 0, 0)


def test_a_stream_that_is_collected_in_the_middle_of_a_call_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        mq.create_topic("orders", attempts_max=1)
        orders = mq.queue("orders")
        orders.put_many([b"%d" % number for number in range(10)])
        box: list[Any] = [orders.stream(prefetch=5)]
        next(box[0])
        box.append(box)
        del box
        exchange, collected = Pool.exchange, list[bool]()

        def collecting(self: Pool, call: Any) -> Any:
            if not collected:
                collected.append(True)
                gc.collect()
            return exchange(self, call)

        monkeypatch.setattr(Pool, "exchange", collecting)
        assert mq.topics() == ["orders"]
        wait_until(lambda: orders.stats().in_flight == 0)
        assert {message.attempt for message in orders.get_many(10)} == {1}


def ways_to_take(orders: Any) -> list[Callable[[], object]]:
    def process() -> None:
        with orders.process():
            pass

    return [
        process,
        orders.get,
        lambda: orders.get(timeout=1),
        lambda: orders.get_many(5),
        lambda: next(orders.stream()),
        lambda: next(orders.stream(prefetch=5)),
    ]


def taking_of(mq: quivermq.Connection) -> object:
    """What closing the connection would have its broker give back."""
    assert isinstance(mq.backend, HttpBackend)
    return mq.backend._taking


def assert_given_back(orders: Any, strike: list[bool]) -> None:
    """Whatever asks for messages, and is struck before it has them, gives them back."""
    for take in ways_to_take(orders):
        strike.append(True)
        with pytest.raises(KeyboardInterrupt):
            take()
        strike.clear()
        wait_until(lambda: orders.stats().in_flight == 0)
    assert {message.attempt for message in orders.get_many(10)} == {1}


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_what_a_signal_handler_raises_while_messages_are_taken_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    take, strike = Taking.take_now, list[bool]()

    def struck(self: Taking, *args: Any, **kwargs: Any) -> Any:
        found = take(self, *args, **kwargs)
        if strike:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Taking, "take_now", struck)
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", attempts_max=1, durability=durability)
        mq.queue("orders").put_many([b"%d" % number for number in range(10)])
        assert_given_back(mq.queue("orders"), strike)


@pytest.mark.parametrize("is_written", [False, True])
def test_nor_around_the_note_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """What is in the journal alone would be leased when the queue is opened again."""
    append, strike = StateLog.append, list[bool]()

    def struck(self: StateLog, *args: Any) -> int:
        if strike:
            strike.clear()
            if is_written:
                append(self, *args)
            raise KeyboardInterrupt
        return append(self, *args)

    monkeypatch.setattr(StateLog, "append", struck)
    for number in range(6):
        path = tmp_path / str(number)
        with quivermq.open(path) as mq:
            mq.create_topic("orders", attempts_max=1)
            orders = mq.queue("orders")
            orders.put_many([b"%d" % number for number in range(10)])
            # Who takes them is noted by now.
            orders.ack(orders.get_many(1))
            strike.append(True)
            with pytest.raises(KeyboardInterrupt):
                ways_to_take(orders)[number]()
            before = orders.stats()
        with quivermq.open(path) as mq:
            assert mq.queue("orders").stats() == before


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_nor_when_the_state_is_half_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, is_done: bool
) -> None:
    """Behind the position and without a lease, messages would come no more."""
    grant, strike = LaneState.grant, list[bool]()

    def struck(self: LaneState, *args: Any) -> None:
        if strike and not is_done:
            strike.clear()
            raise KeyboardInterrupt
        grant(self, *args)
        if strike:
            strike.clear()
            raise KeyboardInterrupt

    monkeypatch.setattr(LaneState, "grant", struck)
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", attempts_max=1, durability=durability)
        orders = mq.queue("orders")
        engine_queue = engine_of(mq).queue("orders", "default")
        orders.put_many([b"%d" % number for number in range(10)])

        def whole() -> object:
            # As for a broker, which takes messages in the name of a client, with a token of the client's.
            token = getrandbits(63)
            try:
                return engine_queue.take_batches(3, whole=True, token=token)
            finally:
                engine_queue.release_taken([token])

        for take in (whole, lambda: orders.get_many(5), lambda: orders.get_many(5), whole):
            strike.append(True)
            with pytest.raises(KeyboardInterrupt):
                take()
            assert not strike
            assert orders.stats().in_flight == 0
        assert [message.value for message in orders.get_many(20)] == [b"%d" % n for n in range(10)]


class Strike:
    """Raises as a signal handler does, at the entry of the so many'th function of the queue's own.

    That is where the interpreter looks whether there was a signal. A generator that goes on would not see
    what a trace function raises, so these are left out.
    """

    def __init__(self, number: int, within: tuple[str, ...] | None = None) -> None:
        self._left = number
        self._within = (OWN,) if within is None else within
        self.is_done = False

    def __enter__(self) -> "Strike":
        sys.settrace(self._entered)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _entered(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event != "call"
            or code.co_flags & inspect.CO_GENERATOR
            or not code.co_filename.startswith(self._within)
        ):
            return
        if not self._left:
            sys.settrace(None)
            self.is_done = True
            raise KeyboardInterrupt
        self._left -= 1


OWN = str(Path(quivermq.__file__).parent)


def in_process(orders: quivermq.Queue) -> list[quivermq.Delivery]:
    with orders.process(timeout=1) as message:
        assert message is not None
        sys.settrace(None)
        raise SystemExit
    raise AssertionError("it was not left")


def in_stream(orders: quivermq.Queue, prefetch: int) -> list[quivermq.Delivery]:
    stream = orders.stream(timeout=1, prefetch=prefetch)
    next(stream)
    sys.settrace(None)
    stream.close()
    return []


def gotten(orders: quivermq.Queue, timeout: int) -> list[quivermq.Delivery]:
    message = orders.get(timeout)
    assert message is not None
    return [message]


TAKES: dict[str, Callable[[quivermq.Queue], list[quivermq.Delivery]]] = {
    "get": lambda orders: gotten(orders, 0),
    "get with a timeout": lambda orders: gotten(orders, 1),
    "get_many": lambda orders: orders.get_many(5),
    "process": in_process,
    "stream": lambda orders: in_stream(orders, 1),
    "stream ahead": lambda orders: in_stream(orders, 5),
}


def assert_none_lost(mq: quivermq.Connection, take: str) -> None:
    """Strike one step after the other, until a call gets to its end."""
    mq.create_topic("orders", attempts_max=1)
    orders = mq.queue("orders")
    values = [b"%d" % number for number in range(10)]
    orders.put_many(values)
    for number in count():
        held: list[quivermq.Delivery] = []
        with suppress(KeyboardInterrupt, SystemExit), Strike(number) as strike:
            held = TAKES[take](orders)
        orders.release(held)
        wait_until(lambda: orders.stats().in_flight == 0)
        assert orders.stats().pending == len(values), f"step {number}"
        if not strike.is_done:
            break
    assert number > 10, "the steps of a call were not found"
    assert sorted((message.value, message.attempt) for message in orders.get_many(20)) == [
        (value, 1) for value in values
    ]


@pytest.mark.parametrize("durability", ["os", "fsync"])
@pytest.mark.parametrize("take", TAKES)
def test_no_step_of_a_call_loses_a_message(tmp_path: Path, take: str, durability: Durability) -> None:
    settings = Settings(storage=StorageSettings(durability=durability))
    with quivermq.open(tmp_path, settings) as mq:
        assert_none_lost(mq, take)


# A connection that is struck between two hands is closed when nobody has it any more.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("take", TAKES)
def test_no_step_of_a_call_of_a_broker_loses_a_message(tmp_path: Path, take: str) -> None:
    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        assert_none_lost(mq, take)
        assert not taking_of(mq)
        gc.collect()


def test_a_poll_that_was_struck_can_be_made_again(tmp_path: Path) -> None:
    """Also where a block is left, which is a function of Python's own."""
    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        mq.queue("orders").put_many([b"%d" % number for number in range(10)])
        with mq.consumer("orders", "billing") as consumer:
            wait_until(lambda: consumer.poll(0.1))
            # Somebody who logs them later keeps what they have seen alive.
            errors: list[KeyboardInterrupt] = []
            for number in count():
                strike = Strike(number, (OWN, contextlib.__file__))
                try:
                    with strike:
                        consumer.poll(0)
                except KeyboardInterrupt as error:
                    errors.append(error)
                consumer.poll(0)
                if not strike.is_done:
                    break
            assert number > 10, "the steps of a call were not found"


Moment = Literal["before it is sent", "before the answer", "behind it", "when it was read"]


@pytest.mark.parametrize("moment", get_args(Moment))
def test_nor_while_a_broker_sends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    exchange, strike = Pool._exchange_on, list[bool]()

    def struck(self: Pool, connection: Any, call: Any) -> Any:
        if not strike or call.accept != DELIVERY:
            return exchange(self, connection, call)
        if moment == "when it was read":
            exchange(self, connection, call)
        elif moment != "before it is sent":
            connection.sendall(request_bytes(call, self._common, self._address.prefix))
        if moment == "behind it":
            select.select([connection], [], [])
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "_exchange_on", struck)
    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        mq.create_topic("orders", attempts_max=1)
        mq.queue("orders").put_many([b"%d" % number for number in range(10)])
        assert_given_back(mq.queue("orders"), strike)
        assert not taking_of(mq)


def test_nor_when_the_giving_back_is_struck_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, strikes = Pool.exchange, list[bool]()

    def struck(self: Pool, call: Any) -> Any:
        outcome = exchange(self, call) if call.accept == DELIVERY else None
        if strikes:
            strikes.pop()
            raise KeyboardInterrupt
        return outcome or exchange(self, call)

    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        mq.create_topic("orders", attempts_max=1)
        orders = mq.queue("orders")
        orders.put_many([b"%d" % number for number in range(10)])
        monkeypatch.setattr(Pool, "exchange", struck)
        for take in ways_to_take(orders):
            strikes += [True, True]
            with pytest.raises(KeyboardInterrupt):
                take()
        mq.close()
        left = broker.engine.queue("orders").stats()
        assert (left.in_flight, left.pending) == (0, 10)


def test_nor_when_a_signal_handler_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = Pool._exchange_on

    def closing(self: Pool, connection: Any, call: Any) -> Any:
        answer = exchange(self, connection, call)
        if call.accept != DELIVERY:
            return answer
        mq.close()
        return Broken("the connection was shut down", was_sent=True)

    monkeypatch.setattr(Pool, "_exchange_on", closing)
    with serving(tmp_path) as broker:
        queue = broker.engine.queue("orders")
        queue.put_many([b"%d" % number for number in range(10)])
        for number in range(6):
            with quivermq.connect(broker.url) as mq, pytest.raises(quivermq.Closing):
                ways_to_take(mq.queue("orders"))[number]()
            wait_until(lambda: queue.stats().in_flight == 0)
        assert {message.attempt for message in queue.get_many(10)} == {1}


def test_an_answer_that_was_lost_is_given_back_before_the_call_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, lose = Pool._exchange_on, list[bool]()

    def losing(self: Pool, connection: Any, call: Any) -> Any:
        answer = exchange(self, connection, call)
        if call.accept == DELIVERY and lose:
            lose.pop()
            return Broken("the connection was reset", was_sent=True)
        return answer

    monkeypatch.setattr(Pool, "_exchange_on", losing)
    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        orders = mq.queue("orders")
        orders.put_many([b"1", b"2"])
        lose += [True, True]
        message = orders.get()
        assert message is not None
        assert (message.value, message.attempt, orders.stats().in_flight) == (b"1", 1, 1)


def test_acks_of_a_stream_that_are_struck_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exchange, strike = Pool._exchange_on, list[bool]()

    def struck(self: Pool, connection: Any, call: Any) -> Any:
        if not strike or not call.path.endswith("/ack"):
            return exchange(self, connection, call)
        if strike.pop():
            exchange(self, connection, call)
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "_exchange_on", struck)
    with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
        orders = mq.queue("orders")
        # Nobody else sends acks: there is nothing to fetch ahead.
        monkeypatch.setattr(Renewer, "repeat", lambda *_: None)
        for is_done in (False, True):
            orders.put_many([b"1", b"2"])
            stream = orders.stream(prefetch=8, timeout=0)
            assert [next(stream).value, next(stream).value] == [b"1", b"2"]
            strike.append(is_done)
            with pytest.raises(KeyboardInterrupt):
                next(stream)
            stats = orders.stats()
            assert (stats.in_flight, stats.pending) == (0, 0)
    assert "could not acknowledge" not in caplog.text


@pytest.mark.parametrize("moment", ["before the answer", "when it was read"])
def test_a_task_that_is_cancelled_while_a_broker_sends_messages_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    exchange, strike = AsyncPool._exchange_on, list[bool]()

    async def struck(self: AsyncPool, connection: Any, call: Any) -> Any:
        if strike and call.accept == DELIVERY:
            if moment == "when it was read":
                await exchange(self, connection, call)
            else:
                connection.writer.write(request_bytes(call, self._common, self._address.prefix))
            raise asyncio.CancelledError
        return await exchange(self, connection, call)

    monkeypatch.setattr(AsyncPool, "_exchange_on", struck)

    async def take_and_cancel(url: str) -> None:
        async with await aio.connect(url) as mq:
            await mq.create_topic("orders", attempts_max=1)
            orders = mq.queue("orders")
            await orders.put_many([b"%d" % number for number in range(10)])
            takes: list[Callable[[], Any]] = [
                orders.get,
                lambda: orders.get_many(5),
                lambda: anext(orders.stream()),
                lambda: anext(orders.stream(prefetch=5)),
                lambda: orders.process().__aenter__(),
            ]
            for take in takes:
                strike.append(True)
                with pytest.raises(asyncio.CancelledError):
                    await take()
                strike.clear()
            assert (await orders.stats()).in_flight == 0
            assert {message.attempt for message in await orders.get_many(10)} == {1}

    with serving(tmp_path) as broker:
        asyncio.run(take_and_cancel(broker.url))


WORKER = """
    import os, signal, sys, time
    import quivermq

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    mq = quivermq.open(sys.argv[1]) if os.path.isdir(sys.argv[1]) else quivermq.connect(sys.argv[1])
    with mq, mq.queue("orders").process(timeout=30) as message:
        print(message.attempt, flush=True)
        while True:
            time.sleep(60)
"""


@pytest.mark.parametrize("is_embedded", [True, False])
def test_three_deploys_make_no_dead_letter(tmp_path: Path, is_embedded: bool) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", attempts_max=2)
        mq.queue("orders").put(b"x")

    def deploy(place: str) -> bytes:
        command = [sys.executable, "-c", textwrap.dedent(WORKER), place]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ.copy()) as worker:
            assert worker.stdout is not None
            attempt = worker.stdout.readline()
            worker.send_signal(signal.SIGTERM)
        assert worker.returncode == 0
        return attempt.strip()

    if is_embedded:
        assert [deploy(str(tmp_path)) for _ in range(3)] == [b"1"] * 3
    else:
        with serving(tmp_path) as broker:
            assert [deploy(broker.url) for _ in range(3)] == [b"1"] * 3
    with quivermq.open(tmp_path) as mq:
        assert mq.queue("orders").dead_letters() == []
        assert mq.queue("orders").stats().pending == 1


LEFT = """
    import sys, time
    import quivermq
    from quivermq.queue.queue import Queue

    address = sys.argv[1]
    mq = quivermq.connect(address) if "://" in address else quivermq.open(address)
    orders = mq.queue("orders")
    orders.put_many([b"%d" % number for number in range(10)])
    get_many = Queue.get_many

    def slow(self, count, timeout, *, lease):
        if timeout == 0:
            # What a stream fetches ahead: its thread is in here when everything ends.
            time.sleep(0.5)
        return get_many(self, count, timeout, lease=lease)

    Queue.get_many = slow
    stream = orders.stream(prefetch=4)
    next(stream)
    next(stream)
"""


@pytest.mark.parametrize("is_embedded", [True, False])
def test_a_stream_that_is_left_at_the_end_of_the_program_does_not_hold_it_up(
    tmp_path: Path, is_embedded: bool
) -> None:
    def left(address: str) -> None:
        command = [sys.executable, "-c", textwrap.dedent(LEFT), address]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")

    def look(mq: quivermq.Connection) -> None:
        orders = mq.queue("orders")
        assert orders.stats().in_flight == 0
        assert [(message.value, message.attempt) for message in orders.get_many(10)] == [
            (b"%d" % number, 1) for number in range(1, 10)
        ]

    if is_embedded:
        left(str(tmp_path))
        with quivermq.open(tmp_path) as mq:
            look(mq)
    else:
        with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
            left(broker.url)
            look(mq)


WAITING = """
    import os, signal, sys, threading
    import quivermq

    address = sys.argv[1]
    mq = quivermq.connect(address) if "://" in address else quivermq.open(address)
    orders = mq.queue("orders")
    orders.put_many([b"1", b"2"])
    signal.signal(signal.SIGTERM, lambda *_: mq.close())
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    try:
        for message in orders.stream(prefetch=4):
            pass
    except quivermq.Closing:
        print("closed")
"""


@pytest.mark.parametrize("is_embedded", [True, False])
def test_a_signal_handler_that_closes_the_queue_ends_a_stream_that_waits(
    tmp_path: Path, is_embedded: bool
) -> None:
    def waiting(address: str) -> None:
        command = [sys.executable, "-c", textwrap.dedent(WAITING), address]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\n", "")

    if is_embedded:
        waiting(str(tmp_path))
    else:
        with serving(tmp_path) as broker:
            waiting(broker.url)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_a_forked_child_leaves_a_stream_to_its_parent(tmp_path: Path, is_embedded: bool) -> None:
    def forked(mq: quivermq.Connection) -> None:
        orders = mq.queue("orders")
        orders.put_many([b"%d" % number for number in range(10)])
        streams = [orders.stream(timeout=0, prefetch=4)]
        seen = [next(streams[0]).value]
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                try:
                    next(streams[0])
                except quivermq.Closing:
                    streams.clear()
                    gc.collect()
                    os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        seen += [message.value for message in streams[0]]
        assert seen == [b"%d" % number for number in range(10)]
        stats = orders.stats()
        assert (stats.pending, stats.in_flight) == (0, 0)

    if is_embedded:
        with quivermq.open(tmp_path) as mq:
            forked(mq)
    else:
        with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
            forked(mq)


def leave_block(orders: quivermq.Queue) -> None:
    with orders.process():
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0


def raise_in_block(orders: quivermq.Queue) -> None:
    with orders.process():
        in_child(lambda: 1 // 0)


def stop_in_block(orders: quivermq.Queue) -> None:
    with orders.process():
        in_child(sys.exit)


def close_stream(orders: quivermq.Queue) -> None:
    stream = orders.stream(timeout=0)
    next(stream)
    in_child(stream.close)
    assert next(stream, None) is None


def go_on_with_stream(orders: quivermq.Queue) -> None:
    stream = orders.stream(timeout=0)
    next(stream)
    in_child(lambda: next(stream))
    assert next(stream, None) is None


class InChild(BaseException):
    """Ends what the parent has begun, in the child."""


def in_child(act: Callable[[], object]) -> None:
    """Leave the caller in a child, as `act` does it, and go on when the child has ended."""
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        act()
        raise InChild


@pytest.mark.parametrize("is_embedded", [True, False])
@pytest.mark.parametrize(
    "fork", [leave_block, raise_in_block, stop_in_block, close_stream, go_on_with_stream]
)
def test_a_forked_child_leaves_a_message_to_its_parent(
    tmp_path: Path, is_embedded: bool, fork: Callable[[quivermq.Queue], None]
) -> None:
    def forked(mq: quivermq.Connection) -> None:
        orders, parent = mq.queue("orders"), os.getpid()
        orders.put(b"x")
        try:
            fork(orders)
        except BaseException:
            if os.getpid() == parent:
                raise
        if os.getpid() != parent:
            os._exit(0)
        stats = orders.stats()
        assert (stats.pending, stats.in_flight, stats.retrying) == (0, 0, 0)
        assert mq.stats().topics["orders"].messages == 1, "nothing was done twice, or given up"

    if is_embedded:
        with quivermq.open(tmp_path) as mq:
            forked(mq)
    else:
        with serving(tmp_path) as broker, quivermq.connect(broker.url) as mq:
            forked(mq)
