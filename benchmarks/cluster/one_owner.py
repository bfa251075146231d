"""One owner of a shard in a bucket, etcd deciding: puts beside a put of the store and a transaction."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from socket import socket

from benchmarks.broker.nats import Nats
from benchmarks.broker.processes import connection
from benchmarks.broker.request import CONNECTION, Request
from benchmarks.cluster.services import Services, missing, nats_cluster, services
from benchmarks.contest import put_batches, put_each, put_round, take_batches, take_round, threads_round
from benchmarks.measure import Prepare, Work
from benchmarks.messages import AnyMessage, frame_bytes, random_messages
from benchmarks.race import Race, Subject, seconds, turns
from benchmarks.row import Goal, Skipped
from benchmarks.shape import Shape
from benchmarks.stores import TOPIC, Open, Quiver
from benchmarks.workload import Bench, fresh_directory
from quivermq.chaos import wait_until
from quivermq.engine import open_engine
from quivermq.queue.connection import Connection
from quivermq.shared import open_shared
from quivermq.shared.etcd import created_at, put_key
from quivermq.shared.etcd_chunks import EtcdChunks

_PUT = "put"
_STORE = "store put + etcd transaction"
_NATS_NAME = "NATS JetStream, R3, sync always"
_BATCH, _TAKEN = 1000, 100
_RECEIVE_BYTES = 256 * 1024
_numbers = count()


class QuiverInBucket(Quiver):
    """The topic in a queue whose truth is the store. The path is only the name of its shard."""

    def __init__(self, found: Services, path: Path, shape: Shape = "plain") -> None:
        shard = path.name
        chunks = EtcdChunks(found.store(shard), found.etcd(), f"/bench/{shard}", owner="bench")
        self._disk = open_shared(chunks, path / f"cache{next(_numbers)}")
        engine = open_engine(self._disk.root, disk=self._disk)
        self._is_real = shape == "real"
        self._is_buffered = False
        self.engine = Connection(engine)
        if TOPIC not in self.engine.topics():
            self.engine.create_topic(TOPIC, durability="fsync")
        self.queue = self.engine.queue(TOPIC)

    def close(self) -> None:
        super().close()
        self._disk.close()


@dataclass(frozen=True, slots=True)
class _Rows:
    """What all races of this group share."""

    bench: Bench
    found: Services
    nats: Nats | None

    def opens(self, shape: Shape) -> Open:
        return lambda path: QuiverInBucket(self.found, path, shape)

    def latency(self, shape: Shape) -> dict[str, Prepare]:
        messages = random_messages(self.bench.scale.queue_synced, shape)
        return {
            _PUT: partial(put_round, self.bench, self.opens(shape), messages, put_each),
            _STORE: partial(self._storing, messages),
            **self._peer(shape, len(messages), 1, 1),
        }

    def threads(self, shape: Shape) -> dict[str, Prepare]:
        scale = self.bench.scale
        messages = random_messages(scale.queue_threads * scale.thread_appends, shape)
        return {
            _PUT: partial(threads_round, self.bench, self.opens(shape), messages, scale.queue_threads),
            **self._peer(shape, len(messages), 1, scale.queue_threads),
        }

    def batches(self, shape: Shape) -> dict[str, Prepare]:
        messages = random_messages(self.bench.scale.queue_many, shape)
        putting = put_batches(_BATCH, messages)
        return {
            _PUT: partial(put_round, self.bench, self.opens(shape), messages, putting),
            **self._peer(shape, len(messages), _BATCH, 1),
        }

    def taking(self, shape: Shape) -> dict[str, Prepare]:
        messages = random_messages(self.bench.scale.queue_many, shape)
        filling, taking = put_batches(_BATCH, messages), take_batches(_TAKEN)
        here = partial(Quiver, durability="fsync", shape=shape)
        return {
            name: partial(take_round, self.bench, opens, messages, filling, taking)
            for name, opens in ((_PUT, self.opens(shape)), ("the same in a directory", here))
        }

    @contextmanager
    def _storing(self, messages: Sequence[AnyMessage]) -> Iterator[Work]:
        """As a put would be without us: the bytes to the store, and then the decision of etcd."""
        store, etcd = self.found.store("plain"), self.found.etcd()
        data = frame_bytes(messages[:1])

        def work() -> int:
            for _ in messages:
                name = f"plain/{next(_numbers)}"
                store.put(name, data)
                if etcd.transact([created_at(name, 0)], [put_key(name, b"x" * 150)]) is None:
                    raise RuntimeError("a key of its own was there")
            return len(messages)

        yield work
        etcd.close()

    def _peer(self, shape: Shape, messages: int, batch: int, connections: int) -> dict[str, Prepare]:
        if self.nats is None:
            return {}
        nats = self.nats
        return {_NATS_NAME: partial(_publishing, nats, shape, messages // batch, batch, connections)}


@contextmanager
def _publishing(nats: Nats, shape: Shape, requests: int, batch: int, connections: int) -> Iterator[Work]:
    """So many batches into a stream of three, and see that it has them."""
    topic = f"bench{next(_numbers)}"
    # They elect a leader first, and refuse until then.
    wait_until(partial(_is_made, nats, topic), "NATS makes no stream of three")
    request = nats.publish_many(topic, batch, shape)
    each = max(1, requests // connections)
    with ExitStack() as stack, ThreadPoolExecutor(connections) as threads:
        senders = [_greeted(nats, request, number) for number in range(connections)]
        for made, _ in senders:
            stack.enter_context(made)

        def work() -> int:
            for _ in threads.map(partial(_publish, request, each), senders):
                continue
            return connections * each * batch

        yield work
        nats.check(topic, connections * each * batch, b"")
    nats.drop(topic)


def _greeted(nats: Nats, request: Request, number: int) -> "tuple[socket, bytes]":
    """A connection with an inbox of its own, and what it sends."""
    made = connection(nats.port)
    greeting, data = (
        each.replace(CONNECTION, b"%06d" % number) for each in (request.greeting, request.data)
    )
    made.sendall(greeting)
    said = b""
    while not said.endswith(request.greeted):
        said += made.recv(_RECEIVE_BYTES)
    return made, data


def _publish(request: Request, times: int, sender: "tuple[socket, bytes]") -> None:
    """Send a batch, wait until all of it is acknowledged, and send the next one."""
    made, data = sender
    for _ in range(times):
        made.sendall(data)
        answered = 0
        while answered < request.marks:
            said = made.recv(_RECEIVE_BYTES)
            if not said or b'"error"' in said:
                raise RuntimeError(f"NATS refused a message: {said[-200:]!r}")
            answered += said.count(request.mark)


def _is_made(nats: Nats, topic: str) -> bool:
    try:
        nats.create(topic)
    except RuntimeError:
        return False
    return True


def cluster_owner(bench: Bench) -> Iterable[Race | Skipped]:
    """Latency, many threads, batches, and getting."""
    absent = missing("weed", "etcd")
    yield from absent
    if absent:
        return
    rounds = turns(bench.scale.queue_rounds)
    with ExitStack() as stack:
        place = stack.enter_context(fresh_directory(bench.place))
        found = stack.enter_context(services(place))
        absent = [] if bench.is_alone else missing("nats-server")
        nats = None if bench.is_alone or absent else stack.enter_context(_three_of_nats(place))
        rows = _Rows(bench, found, nats)
        put = Subject("put at fsync, 1 thread", _PUT, Goal("beyond", 0.002), figure=seconds)
        median = turns(bench.scale.queue_rounds, "median")
        yield Race(rows.latency, [put], median, unit="seconds")
        threads = f"put at fsync, {bench.scale.queue_threads} threads"
        yield Race(rows.threads, [Subject(threads, _PUT, Goal("at least", 4e3))], rounds)
        yield Race(rows.batches, [Subject(f"put_many({_BATCH})", _PUT, Goal("at least", 250e3))], rounds)
        yield Race(rows.taking, [Subject(f"get_many({_TAKEN}) + ack", _PUT)], rounds)
    yield from absent


@contextmanager
def _three_of_nats(place: Path) -> Iterator[Nats]:
    with nats_cluster(place) as ((pid, port), *_):
        nats = Nats(pid, port, replicas=3)
        try:
            yield nats
        finally:
            nats.close()
