"""Clients of a cluster, each of which asks any broker again and again, and what they were promised.

Many publish, take and read at once. Everything that was answered is held against what was answered before,
and in the end against what is in the bucket.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPException
from itertools import count
from random import Random
from typing import Any, NamedTuple

from quivermq.chaos import CheckedThread, Violation, expect, wait_until
from quivermq.chaos.cluster_processes import SHARDS, ChaosCluster, ClusterBroker
from quivermq.chaos.http_clients import HttpClient, HttpReply
from quivermq.chaos.trial import DAY_S, read_all
from quivermq.clock import SystemClock
from quivermq.cluster.placement import shard_of
from quivermq.engine import engine_of
from quivermq.queue.connection import Connection

_PARTITIONS = 2
_GROUP = "billing"
_TOPIC_SETTINGS = {
    "partitions": _PARTITIONS,
    "attempts_max": 5,
    "segment_messages": 200,
    "dedup_window_ms": DAY_S * 1000,
}
# Long enough for a broker that hands the call on; one that stands still is not waited for.
_TIMEOUT_S = 2.0
_PAUSE_S = 0.02
_LEASE_MS = 3_600_000
_READ_BEHIND = 20


def _one_topic_per_shard() -> list[str]:
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(shard_of(f"orders-{number}", SHARDS), f"orders-{number}")
        if len(found) == SHARDS:
            return [found[shard] for shard in sorted(found)]
    raise AssertionError("there is no end to numbers")


TOPICS = _one_topic_per_shard()


class PartitionOf(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Acknowledged(NamedTuple):
    """When a put began, when it was acknowledged, and where that said it is."""

    lane: PartitionOf
    offset: int
    began: float
    ended: float


class ClusterClient:
    """Asks one broker as long as that answers, and then another one."""

    def __init__(self, ports: list[int], rng: Random) -> None:
        self._ports = ports
        self._rng = rng
        self._port = rng.choice(ports)
        self._clients: dict[int, HttpClient] = {}

    def ask(self, method: str, path: str, body: object = None, fine: str = "") -> HttpReply | None:
        """The answer; None when it has to be asked again, and nobody knows whether it was carried out.

        An error with the code `fine` is an answer, too. Raises Violation for any other that no client
        expects of a broker that is in trouble.
        """
        if self._rng.random() < 0.05:
            self._port = self._rng.choice(self._ports)
        port = self._port
        try:
            reply = self._client(port).call(method, path, body)
        except (OSError, HTTPException):
            self._clients.pop(port).close()
            self._port = self._rng.choice(self._ports)
            return None
        if reply.is_done or (fine and reply.code == fine):
            return reply
        expect_retryable(reply)
        self._port = self._rng.choice(self._ports)
        return None

    def _client(self, port: int) -> HttpClient:
        if port not in self._clients:
            self._clients[port] = HttpClient(port, _TIMEOUT_S)
        return self._clients[port]

    def close(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()


def expect_retryable(reply: HttpReply) -> None:
    """Raise Violation for an answer that no client expects of a broker that is in trouble."""
    is_told = isinstance(reply.document, dict) and reply.document["error"]["retryable"]
    expect(is_told, f"a call was refused: {reply}")


class ClusterHistory:
    """All that clients were told. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tried: set[str] = set()
        self.put: dict[str, Acknowledged] = {}
        self.seen: dict[PartitionOf, dict[int, str]] = defaultdict(dict)
        self.finished: dict[str, int] = {}
        """What was acknowledged by a consumer, or given up, and as the how manieth."""
        self.maybe_finished: set[str] = set()
        self.rejected: set[str] = set()
        self.maybe_rejected: set[str] = set()

    def note_try(self, values: list[str]) -> None:
        """They are about to be put."""
        with self.lock:
            self.tried.update(values)

    def note_put(self, values: list[str], results: list[dict[str, Any]], began: float) -> None:
        """They were acknowledged just now."""
        ended = SystemClock().monotonic()
        with self.lock:
            for value, put in zip(values, results, strict=True):
                lane = PartitionOf(put["topic"], put["partition"])
                self.put[value] = Acknowledged(lane, put["offset"], began, ended)
                self._is_at(lane, put["offset"], value)

    def note_read(self, lane: PartitionOf, page: dict[str, Any], last: int | None) -> None:
        """Somebody has read a part of a lane: it has to stay. What was put before is there up to `last`."""
        expect(
            last is None or page["end"] > last,
            f"{last} of {lane} was put, and a read ends at {page['end']}",
        )
        with self.lock:
            for message in page["messages"]:
                self._is_at(lane, message["offset"], message["value"])

    def _is_at(self, lane: PartitionOf, offset: int, value: str) -> None:
        known = self.seen[lane].setdefault(offset, value)
        expect(known == value, f"offset {offset} of {lane} is {value}, and was {known} before")

    def last_put(self, lane: PartitionOf) -> int | None:
        """The last offset of a lane that was acknowledged to anybody."""
        with self.lock:
            return max((put.offset for put in self.put.values() if put.lane == lane), default=None)

    def check_delivered(self, messages: list[dict[str, Any]], finished_before: int) -> None:
        """They were delivered to somebody who asked when so many were finished."""
        with self.lock:
            again = [
                message["value"]
                for message in messages
                if self.finished.get(message["value"], finished_before) < finished_before
            ]
        expect(not again, f"acknowledged, and delivered again: {again[:10]}")

    def note_settling(self, how: str, values: list[str]) -> None:
        """They are about to be settled."""
        with self.lock:
            self.maybe_finished.update(values)
            if how == "reject":
                self.maybe_rejected.update(values)

    def note_settled(self, how: str, values: list[str]) -> None:
        """They were settled."""
        with self.lock:
            for value in values:
                self.finished[value] = len(self.finished)
            if how == "reject":
                self.rejected.update(values)

    def check_order(self) -> None:
        """Of two puts into a lane, one that was acknowledged before the other began is before it."""
        by_lane: dict[PartitionOf, list[Acknowledged]] = defaultdict(list)
        for put in self.put.values():
            by_lane[put.lane].append(put)
        for lane, puts in by_lane.items():
            latest = 0.0
            for put in sorted(puts, key=lambda put: put.offset):
                expect(put.ended >= latest, f"offset {put.offset} of {lane} was put before those before it")
                latest = max(latest, put.began)


class Probes:
    """Requests that were sent to one broker, and are answered when it can."""

    def __init__(self, history: ClusterHistory, broker: ClusterBroker) -> None:
        self._history = history
        self._port = broker.port
        self._began = SystemClock().monotonic()
        self._sent: list[tuple[HttpClient, Callable[[dict[str, Any]], None]]] = []

    def put(self, topic: str, value: str) -> None:
        """Put a message, once."""
        self._history.note_try([value])
        self._send(
            lambda answer: self._history.note_put([value], [answer], self._began),
            "POST",
            f"/v1/topics/{topic}/messages",
            {"value": value},
        )

    def read(self, lane: PartitionOf) -> None:
        """Read the end of a lane, where everything is that was put before."""
        last = self._history.last_put(lane)
        self._send(
            lambda answer: self._history.note_read(lane, answer, last),
            "GET",
            f"/v1/topics/{lane.topic}/partitions/{lane.partition}/messages?offset={last or 0}&limit=10",
        )

    def take(self, topic: str) -> None:
        """Take a message, and forget it."""
        before = len(self._history.finished)
        self._send(
            lambda answer: self._history.check_delivered(answer["messages"], before),
            "POST",
            f"/v1/topics/{topic}/groups/{_GROUP}/receive",
            {"max": 5, "lease_ms": _LEASE_MS},
        )

    def _send(
        self, check: Callable[[dict[str, Any]], None], method: str, path: str, body: object = None
    ) -> None:
        client = HttpClient(self._port)
        client.send(method, path, body)
        self._sent.append((client, check))

    def check(self, *, may_be_done: bool = True) -> None:
        """Wait for the answers, and hold each that is none of trouble against what others were told."""
        for client, check in self._sent:
            with closing(client):
                reply = client.answer()
            if reply.is_done:
                expect(may_be_done, f"a broker answers that may not: {reply}")
                check(reply.document)
            else:
                expect_retryable(reply)


class ClusterLoad:
    """Clients at work on a cluster, until told to end."""

    def __init__(self, cluster: ChaosCluster, rng: Random, *, leases_hold: bool) -> None:
        self._cluster = cluster
        self._lost_lease = "" if leases_hold else "lease_expired"
        self._rng = rng
        self.history = ClusterHistory()
        self._names = count()
        self._ends = threading.Event()
        # How many puts of each topic were begun behind a mark and acknowledged.
        self._mark = 0.0
        self._since_mark: Counter[str] = Counter()
        self._refusals = 0
        self._threads: list[CheckedThread] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let them work. What one of them found out is raised at the end."""
        with closing(self.client()) as client:
            for topic in TOPICS:
                self._make(client, topic)
        acts: list[Callable[[ClusterClient, Random], None]] = [
            *(partial(self._publish, topics=[topic]) for topic in TOPICS),
            partial(self._publish, topics=TOPICS),
            self._consume,
            self._consume,
            self._read,
        ]
        self._threads = [CheckedThread(partial(self._repeat, act, self._rng.random())) for act in acts]
        try:
            yield
            self.wait_for_puts()
        finally:
            self._ends.set()
        for thread in self._threads:
            thread.end("a client waits for a cluster that does not answer")

    def client(self) -> ClusterClient:
        """One more client, for whoever asks for something special."""
        return ClusterClient(self._cluster.ports, Random(self._rng.random()))

    def wait_for_puts(self) -> None:
        """Return once every topic has taken a put that began after now."""
        with self.history.lock:
            self._mark = SystemClock().monotonic()
            self._since_mark.clear()

        def is_working() -> bool:
            self.check_alive()
            return all(self._since_mark[topic] for topic in TOPICS)

        wait_until(is_working, "some topic takes no puts")

    def wait_for_refusal(self) -> None:
        """Return once a put that began after now was refused, or not answered."""
        before = self._refusals

        def is_refused() -> bool:
            self.check_alive()
            # Each of those who publish may have had one on its way.
            return self._refusals > before + len(TOPICS) + 1

        wait_until(is_refused, "nobody is refused anything")

    def check_alive(self) -> None:
        """Raise what a client has failed with."""
        for thread in self._threads:
            if thread.is_over:
                thread.end("it has ended")
                raise Violation("a client has ended, and nobody told it to")

    def _make(self, client: ClusterClient, topic: str) -> None:
        def is_made() -> bool:
            # An attempt before this one may have made it.
            body = {"name": topic, **_TOPIC_SETTINGS}
            return client.ask("POST", "/v1/topics", body, fine="topic_exists") is not None

        wait_until(is_made, f"{topic} cannot be made")

    def _repeat(self, act: Callable[[ClusterClient, Random], None], seed: float) -> None:
        rng = Random(seed)
        with closing(ClusterClient(self._cluster.ports, rng)) as client:
            while not self._ends.wait(_PAUSE_S):
                act(client, rng)

    def _publish(self, client: ClusterClient, rng: Random, topics: list[str]) -> None:
        """Put a few messages: again and again under an id until they are acknowledged, or just once."""
        topic, partition = rng.choice(topics), rng.randrange(_PARTITIONS)
        values = [f"m{next(self._names)}" for _ in range(rng.choice((1, 1, 1, 5, 30)))]
        is_repeated = rng.random() < 0.8
        messages = [
            {"value": value, "partition": partition, **({"dedup_id": value} if is_repeated else {})}
            for value in values
        ]
        self.history.note_try(values)
        began = SystemClock().monotonic()
        while True:
            reply = client.ask("POST", f"/v1/topics/{topic}/messages", {"messages": messages})
            if reply is not None:
                self._was_put(values, reply, began)
                return
            with self.history.lock:
                self._refusals += 1
            if not is_repeated or self._ends.wait(_PAUSE_S):
                return

    def _was_put(self, values: list[str], reply: HttpReply, began: float) -> None:
        results = reply.document["results"]
        self.history.note_put(values, results, began)
        if began >= self._mark:
            with self.history.lock:
                self._since_mark[results[0]["topic"]] += 1

    def _consume(self, client: ClusterClient, rng: Random) -> None:
        """Take a few messages; acknowledge most, give others back or up, and forget some."""
        group = f"/v1/topics/{rng.choice(TOPICS)}/groups/{_GROUP}"
        before = len(self.history.finished)
        asked = {"max": 30, "wait_ms": rng.choice((0, 200)), "lease_ms": _LEASE_MS}
        reply = client.ask("POST", f"{group}/receive", asked)
        messages = [] if reply is None else reply.document["messages"]
        self.history.check_delivered(messages, before)
        if messages:
            how = rng.choice(("ack",) * 8 + ("nack", "reject"))
            self._settle(client, group, how, messages)

    def _settle(self, client: ClusterClient, group: str, how: str, messages: list[dict[str, Any]]) -> None:
        values = [message["value"] for message in messages]
        if how != "nack":
            self.history.note_settling(how, values)
        receipts = [message["receipt"] for message in messages]
        reply = client.ask("POST", f"{group}/{how}", {"receipts": receipts}, self._lost_lease)
        if reply is not None and reply.is_done and how != "nack":
            self.history.note_settled(how, values)

    def _read(self, client: ClusterClient, rng: Random) -> None:
        """Read the end of a lane: what was acknowledged before is in it."""
        lane = PartitionOf(rng.choice(TOPICS), rng.randrange(_PARTITIONS))
        last = self.history.last_put(lane)
        start = max(0, (last or 0) - rng.randint(0, _READ_BEHIND))
        path = f"/v1/topics/{lane.topic}/partitions/{lane.partition}/messages"
        reply = client.ask("GET", f"{path}?offset={start}&limit=1000")
        if reply is not None:
            self.history.note_read(lane, reply.document, last)

    # What is asked of one broker, whatever that may answer.

    def send_to(self, broker: ClusterBroker) -> "Probes":
        """Ask a broker for all kinds of things; it may stand still."""
        probes = Probes(self.history, broker)
        for topic in TOPICS:
            probes.put(topic, f"m{next(self._names)}")
            for partition in range(_PARTITIONS):
                probes.read(PartitionOf(topic, partition))
            probes.take(topic)
        return probes

    # The end.

    def check(self) -> None:
        """Everything that was promised is in the bucket. No broker runs any more."""
        self.history.check_order()
        for shard in range(SHARDS):
            with self._cluster.opened(shard, later_s=DAY_S) as mq:
                engine_of(mq).maintain()
                for topic in [each for each in TOPICS if shard_of(each, SHARDS) == shard]:
                    self._check_topic(mq, topic)
                report = mq.verify()
                expect(report.is_sound, f"a log is damaged: {report.findings}")

    def _check_topic(self, mq: Connection, topic: str) -> None:
        history, stored = self.history, Counter[str]()
        for partition in range(_PARTITIONS):
            lane = PartitionOf(topic, partition)
            found = self._values(mq, topic, partition)
            stored.update(found)
            for offset, value in history.seen[lane].items():
                there = found[offset] if offset < len(found) else "nothing"
                expect(there == value, f"offset {offset} of {lane} was {value}, and is {there}")
        put = {value for value, where in history.put.items() if where.lane.topic == topic}
        expect(put <= stored.keys(), f"lost: {sorted(put - stored.keys())[:10]}")
        expect(stored.keys() <= history.tried, "something is there that nobody put")
        expect(not stored or max(stored.values()) == 1, f"stored twice: {stored.most_common(3)}")
        self._check_deliveries(mq, topic, stored.keys())

    def _check_deliveries(self, mq: Connection, topic: str, stored: Any) -> None:
        history, left = self.history, set[str]()
        queue = mq.queue(topic, group=_GROUP)
        while taken := queue.get_many(10_000):
            left.update(delivery.value.decode() for delivery in taken)
        dead = Counter[str]()
        if f"{topic}.dlq" in mq.topics():
            for partition in range(mq.topic(f"{topic}.dlq").partitions):
                dead.update(self._values(mq, f"{topic}.dlq", partition))
        finished = history.finished.keys() & stored
        expect(left.isdisjoint(finished), f"finished, and delivered again: {sorted(left & finished)[:10]}")
        missing = stored - left - history.maybe_finished - dead.keys()
        expect(not missing, f"stored, but nobody gets it: {sorted(missing)[:10]}")
        expect(not dead or max(dead.values()) == 1, f"died twice: {dead.most_common(3)}")
        rejected = history.rejected & stored
        expect(rejected <= dead.keys(), f"no dead letter: {sorted(rejected - dead.keys())[:10]}")
        acked = finished - history.maybe_rejected
        expect(acked.isdisjoint(dead), f"acknowledged, and dead: {sorted(acked & dead.keys())[:10]}")

    @staticmethod
    def _values(mq: Connection, topic: str, partition: int) -> list[str]:
        found: list[str] = []
        for record in read_all(mq.queue(topic), partition):
            expect(record.offset == len(found), f"offset {record.offset} stands at {len(found)}")
            found.append(record.value.decode())
        return found


@contextmanager
def cluster_load(cluster: ChaosCluster, rng: Random, *, leases_hold: bool = True) -> Iterator[ClusterLoad]:
    """A load for the time of the block; then the brokers end, and everything is checked.

    Where clocks are wrong, leases may not hold.
    """
    load = ClusterLoad(cluster, rng, leases_hold=leases_hold)
    with load.at_work():
        yield load
    cluster.stop()
    load.check()
