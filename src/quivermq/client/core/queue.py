"""A queue of a broker as flows: a topic, or all topics of a pattern, as one group sees it."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from random import getrandbits
from typing import Any, TypeVar

from quivermq.client.core.call import Answer, Broken, Call, Flow
from quivermq.client.core.failure import error_of, failure_of
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.received import Received
from quivermq.client.core.retry import asked
from quivermq.client.core.settling import leases_json, parts_of
from quivermq.client.core.topics import TopicCalls
from quivermq.client.core.wire import checked_json, decoded, encoded, path_of, place_of, wanted_query
from quivermq.errors import (
    Closing,
    GroupNotFound,
    InvalidRequest,
    LeaseExpired,
    NotFound,
    OffsetOutOfRange,
    QuiverError,
    TopicNotFound,
    Unavailable,
    Unreachable,
)
from quivermq.frame import Wanted
from quivermq.model import operations
from quivermq.model.checks import Moment, Period, seconds_of, seconds_us
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason, Edits, Filter, merged_reasons
from quivermq.model.deliveries import Delivery, Held, InFlight, Settler
from quivermq.model.json import (
    DELIVERY,
    dead_letter_of,
    in_flight_of,
    milliseconds,
    scheduled_of,
    stored_message_of,
)
from quivermq.model.lanes import Priority
from quivermq.model.messages import Message, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.names import Scope
from quivermq.model.operations import QueueOperation, SeekTarget, Settle, Settled, Tokens, arguments_of
from quivermq.model.stats import QueueStats, stats_of_all
from quivermq.model.stats_json import queue_stats_of
from quivermq.settings import Durability
from quivermq.topic.offsets import offsets_of

# More than this a broker does not hand out, or move, in one call.
_RECEIVE_MAX = 10_000
_READ_MAX = 100_000
_IDS_MAX = 10_000
_CANCELLED_MAX = 1000
_LISTED_MAX = 1000
_TOKENS_MAX = 100
# A broker and what stands before it may cut off a call that waits for longer.
_WAIT_S_MAX = 20.0
_DEFAULT_LEASE_S = 30.0

logger = logging.getLogger(__name__)

T = TypeVar("T")
MakeSettler = Callable[[str, int], Settler]


class QueueCalls:
    """Flows for what can be asked of a `QueueBackend`. Any thread may run them."""

    def __init__(
        self,
        topics: TopicCalls,
        topic: str,
        group: str,
        make_settler: MakeSettler,
        publishing: type[Publishing] = Publishing,
    ) -> None:
        self._scope = Scope(topic)
        self.topic = topic
        self.group = group
        self._publishing = publishing(topics, topic)
        self._topics = topics
        self._make_settler = make_settler
        self._settlers: dict[tuple[str, int], Settler] = {}
        # Whether the broker has ever answered.
        self._was_there = False
        self._path = path_of("topics", topic)
        self._group_path = path_of("topics", topic, "groups", group)

    def perform(self, operation: QueueOperation[T]) -> Flow[T]:
        answer: T = yield from _FLOWS[type(operation)](self, *arguments_of(operation))
        return answer

    # In.

    def put(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        priority: Priority,
        ttl: Period | None,
        delay: Period | None,
        deliver_at: Moment | None,
        dedup_id: str | None,
        timestamp: Moment | None,
        partition: int | None,
        dedup_window: Period | None,
        durability: Durability | None,
    ) -> Flow[Put]:
        self._scope.check_single("put into")
        message = Message(
            value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
            dedup_window,
        )  # fmt: skip
        return (yield from self._publishing.put(message, durability))

    def put_many(
        self, messages: list[bytes | Message], durability: Durability | None
    ) -> Flow[Sequence[Put]]:
        self._scope.check_single("put into")
        return (yield from self._publishing.put_many(messages, durability))

    def put_frame(
        self, frame: bytes, partition: int | None, priority: Priority, durability: Durability | None
    ) -> Flow[Put]:
        self._scope.check_single("put into")
        return (yield from self._publishing.put_frame(frame, partition, priority, durability))

    def sync(self) -> Flow[None]:
        yield from self._topics.ask("POST", f"{self._path}/sync", is_repeatable=True)

    # Out.

    def take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens,
        pop: bool = False,
    ) -> Flow[list[Delivery]]:
        """What is there, or, when nothing is, what comes first within `timeout` seconds."""
        part = yield from self._receive(min(count, _RECEIVE_MAX), timeout, lease, tokens, pop)
        found = part.deliveries(self._settler)
        # One answer holds no more than that; of what is there, the next ones are taken as well.
        while len(part) == _RECEIVE_MAX and len(found) < count:
            left = min(count - len(found), _RECEIVE_MAX)
            part = yield from self._receive(left, 0, lease, tokens, pop)
            found += part.deliveries(self._settler)
        return found

    def _receive(
        self, count: int, timeout: Period | None, lease: Period | None, tokens: Tokens, pop: bool
    ) -> Flow[Received]:
        """As many as one answer holds, waiting for the first."""
        lost = Tokens()
        wish: dict[str, Any] = {"max": count}
        if lease is not None:
            wish["lease_ms"] = max(1, seconds_us("lease", lease, lowest=0.001) // 1000)
        if pop:
            wish["pop"] = True
        clock = self._topics.clock
        end = None if timeout is None else clock.monotonic() + seconds_of("timeout", timeout, lowest=0)
        while True:
            wait_s = _WAIT_S_MAX if end is None else min(_WAIT_S_MAX, max(0.0, end - clock.monotonic()))
            try:
                call = yield from self._receive_call(wish, wait_s, tokens, lost)
                anew = partial(self._receive_anew, wish, wait_s, tokens, lost)
                answer = yield from asked(call, self._topics.retry, anew)
            except Unreachable as error:
                # Who waits for ever waits for a broker that comes back, not for one that never was there.
                if end is not None or not self._was_there:
                    raise
                logger.warning("still waiting for messages of %s: %s", self.topic, error)
                lost.append(tokens[-1])
                continue
            except Closing:
                # Nobody knows how far it was.
                raise
            except QuiverError:
                # The broker said so, and handed nothing out.
                tokens.pop()
                raise
            self._was_there = True
            received = Received(answer.body)
            if not len(received):
                tokens.pop()
            if len(received) or (end is not None and clock.monotonic() >= end):
                return received

    def _receive_anew(
        self, wish: Mapping[str, Any], wait_s: float, tokens: Tokens, lost: Tokens, outcome: Answer | Broken
    ) -> Flow[Call]:
        """Ask again, with a token of its own."""
        if isinstance(outcome, Broken) and outcome.was_sent:
            lost.append(tokens[-1])
        else:
            tokens.pop()
        return (yield from self._receive_call(wish, wait_s, tokens, lost))

    def release_taken(self, tokens: Tokens, retries: int = 0) -> Flow[None]:
        """Give back what was handed out, or would be, to calls that nobody waits for any more."""
        if tokens:
            yield from asked(self._release_call(tokens), replace(self._topics.retry, retries=retries))

    def _release_call(self, tokens: Tokens) -> Call:
        body = encoded({"tokens": [f"{token:x}" for token in tokens[-_TOKENS_MAX:]]})
        return Call("POST", f"{self._group_path}/release", {}, body, is_repeatable=True)

    def _receive_call(
        self, wish: Mapping[str, Any], wait_s: float, tokens: Tokens, lost: Tokens
    ) -> Flow[Call]:
        """What to ask, once everything is given back that answers that were `lost` had leased."""
        if lost:
            outcome = yield self._release_call(lost)
            if isinstance(outcome, Answer) and outcome.status < 400:
                tokens[:] = [token for token in tokens if token not in lost]
                lost.clear()
        # Before it is sent: an exception that strikes anywhere behind this finds it there.
        tokens.append(getrandbits(63))
        return Call(
            "POST",
            f"{self._group_path}/receive",
            {},
            encoded({**wish, "wait_ms": milliseconds(wait_s), "token": f"{tokens[-1]:x}"}),
            accept=DELIVERY,
            # What an answer that was lost had leased is given back; what it had popped is gone.
            is_repeatable="pop" not in wish,
            wait_s=wait_s,
        )

    def wait_until_ready(self, seconds: Period) -> Flow[bool]:
        """Whether there seems to be something to take, within so many seconds."""
        end = self._topics.clock.monotonic() + seconds_of("seconds", seconds, lowest=0)
        while True:
            wait_s = min(_WAIT_S_MAX, max(0.0, end - self._topics.clock.monotonic()))
            body = encoded({"wait_ms": milliseconds(wait_s)})
            call = Call("POST", f"{self._group_path}/wait", {}, body, is_repeatable=True, wait_s=wait_s)
            answer = yield from asked(call, self._topics.retry)
            is_ready: bool = decoded(answer.body)["ready"]
            if is_ready or self._topics.clock.monotonic() >= end:
                return is_ready

    def _settler(self, topic: str, partition: int) -> Settler:
        settler = self._settlers.get((topic, partition))
        if settler is None:
            settler = self._settlers[topic, partition] = self._make_settler(topic, partition)
        return settler

    def lease_s(self, topic: str) -> Flow[float]:
        info = yield from self._topics.remembered(topic)
        return _DEFAULT_LEASE_S if info is None else info.settings.lease_ms / 1000

    # Settling.

    def settle(self, settle: Settle, held: Sequence[Held]) -> Flow[Settled]:
        """To send it again is safe: the token of a lease that is over settles nothing."""
        late: list[str] = []
        failure: QuiverError | None = None
        for part in parts_of(held):
            try:
                settled = yield from self._settle(settle, part)
            except Unavailable:
                # The others would wait for the same, one after the other.
                raise
            except QuiverError as error:
                settled = Settled([receipt for lease in part for receipt in lease.receipts()], error)
            late += settled.late
            failure = failure or settled.failure
        return Settled(late, failure)

    def _settle(self, settle: Settle, held: Sequence[Held]) -> Flow[Settled]:
        """As much as one call takes."""
        body = {**_settle_json(settle), "leases": leases_json(held)}
        path = f"{self._group_path}/{settle.act}"
        call = Call("POST", path, {}, encoded(body), is_repeatable=True, takes=(409,))
        answer = yield from asked(call, self._topics.retry)
        results = decoded(answer.body).get("results")
        if results is None:
            raise failure_of(answer)
        late: list[str] = []
        failure: QuiverError | None = None
        for lease, result in zip(held, results, strict=True):
            late += lease.receipts(offsets_of(result.get("refused") or []))
            error = result.get("error")
            if error is not None and error.get("code") != LeaseExpired.code:
                failure = failure or error_of(error)
        return Settled(late, failure)

    # The log.

    def partitions(self) -> Flow[int]:
        return (yield from self._topics.topic(self.topic)).partitions

    def seek(self, target: SeekTarget) -> Flow[None]:
        names = {"timestamp_us": "timestamp"}
        given = {names.get(name, name): value for name, value in target._asdict().items()}
        wish = {name: value for name, value in given.items() if value is not None}
        yield from self._topics.ask("POST", f"{self._group_path}/seek", wish, is_repeatable=True)

    def read(
        self, partition: int, start: int | None, limit: int, priority: Priority, wanted: Wanted
    ) -> Flow[list[StoredMessage]]:
        found: list[StoredMessage] = []
        sought = wanted_query(wanted)
        path = path_of("topics", self.topic, "partitions", partition, "messages")
        offset = "earliest" if start is None else str(start)
        while True:
            # Even a look at nothing says whether the topic and the offset are there.
            count = min(max(1, limit - len(found)), _READ_MAX)
            query = {"offset": offset, "limit": str(count), "priority": priority, **sought}
            try:
                document = decoded((yield from self._topics.ask("GET", path, query=query)).body)
            except NotFound as error:
                if found and isinstance(error, OffsetOutOfRange):
                    return found  # What follows is gone: this is all up to there.
                if type(error) is not NotFound:
                    raise
                # To HTTP a partition is a part of the path; here it is an argument.
                raise InvalidRequest(str(error)) from None
            found += map(stored_message_of, document["messages"])
            # Whoever looks for something may have to go on where nothing was found.
            is_over = not (document["messages"] or wanted)
            if len(found) >= limit or is_over or document["next"] >= document["end"]:
                return found[:limit]
            offset = str(document["next"])

    def peek(self, limit: int) -> Flow[list[StoredMessage]]:
        documents = yield from self._listed(f"{self._group_path}/peek", "messages", limit, place_of)
        return list(map(stored_message_of, documents))

    def _listed(
        self,
        path: str,
        name: str,
        limit: int | None,
        after: Callable[[Mapping[str, Any]], str],
        wanted_too: Mapping[str, str] | None = None,
        begin: str | None = None,
    ) -> Flow[list[Mapping[str, Any]]]:
        """A whole list, page by page; `after` tells where one goes on."""
        found: list[Mapping[str, Any]] = []
        query = dict(wanted_too or {})
        if begin is not None:
            query["after"] = begin
        while True:
            # Even a look at nothing says whether the topic is there.
            wanted = _LISTED_MAX if limit is None else min(max(1, limit - len(found)), _LISTED_MAX)
            query["limit"] = str(wanted)
            page = decoded((yield from self._topics.ask("GET", path, query=query)).body)[name]
            found += page
            # A page may be short because its messages are large: only an empty one is the end.
            if not page or (limit is not None and len(found) >= limit):
                return found[:limit]
            query["after"] = after(page[-1])

    # Looking after.

    def stats(self) -> Flow[QueueStats]:
        each: list[QueueStats] = []
        for topic in (yield from self._matching()):
            each += [(yield from self._stats_of(topic))]
        return each[0] if self._scope.pattern is None else stats_of_all(self.topic, self.group, each)

    def _matching(self) -> Flow[list[str]]:
        """The topic, or those of the pattern that there are."""
        pattern = self._scope.pattern
        if pattern is None:
            return [self.topic]
        origins = (yield from self._topics.origins()).items()
        return sorted(name for name, origin in origins if pattern.matches(name, origin))

    def _stats_of(self, topic: str) -> Flow[QueueStats]:
        try:
            answer = yield from self._topics.ask("GET", path_of("topics", topic, "groups", self.group))
            return queue_stats_of(decoded(answer.body))
        except GroupNotFound:
            # As embedded: for a group that was never here, everything is pending, the archive included.
            stats = yield from self._topics.topic_stats(topic)
            path = path_of("groups", self.group, "offsets")
            answer = yield from self._topics.ask("GET", path, query={"topic": topic})
            pending = sum(each["lag"] for each in decoded(answer.body)["offsets"])
            return QueueStats(
                topic,
                self.group,
                pending=pending,
                delayed=stats.delayed,
                dead_letters=stats.dead_letters,
                state="waiting" if pending else "idle",
            )
        except TopicNotFound:
            # And a topic that nobody has made yet is empty.
            return QueueStats(topic, self.group)

    def deliveries(self, limit: int, after: InFlight | None) -> Flow[list[InFlight]]:
        found: list[InFlight] = []
        for topic in (yield from self._matching()):
            if len(found) < limit and (after is None or topic >= after.topic):
                behind = after if after is not None and after.topic == topic else None
                found += yield from self._in_flight(topic, limit - len(found), behind)
        return found

    def _in_flight(self, topic: str, limit: int, after: InFlight | None) -> Flow[list[InFlight]]:
        path = path_of("topics", topic, "groups", self.group, "deliveries")
        begin = None if after is None else place_of(asdict(after))
        try:
            documents = yield from self._listed(
                path, "deliveries", limit, place_of, {"state": "in_flight"}, begin
            )
        except NotFound:
            # As embedded: nobody has anything of a topic, or for a group, that is not there.
            return []
        return [in_flight_of(topic, each) for each in documents]

    def dead_letters(self, limit: int | None) -> Flow[list[DeadLetter]]:
        try:
            documents = yield from self._listed(
                f"{self._path}/dead-letters", "messages", limit, itemgetter("id")
            )
        except TopicNotFound:
            return []
        return list(map(dead_letter_of, documents))

    def dead_letter_reasons(self) -> Flow[list[DeadLetterReason]]:
        found: list[DeadLetterReason] = []
        query: dict[str, str] = {}
        while True:
            try:
                answer = yield from self._topics.ask(
                    "GET", f"{self._path}/dead-letters/reasons", query=query
                )
            except TopicNotFound:
                return []
            document = decoded(answer.body)
            found += [DeadLetterReason(**reason) for reason in document["reasons"]]
            if document["next"] is None:
                return merged_reasons(found)
            query["after"] = document["next"]

    def redrive(
        self, wanted: Filter | None, limit: int | None, ids: Collection[str] | None, edits: Edits
    ) -> Flow[int]:
        return (yield from self._move("redrive", "moved", wanted, limit, ids, edits))

    def discard(self, wanted: Filter | None, limit: int | None, ids: Collection[str] | None) -> Flow[int]:
        return (yield from self._move("discard", "discarded", wanted, limit, ids, {}))

    def _move(
        self,
        act: str,
        count: str,
        wanted: Filter | None,
        limit: int | None,
        ids: Collection[str] | None,
        edits: Edits,
    ) -> Flow[int]:
        wishes: list[dict[str, Any]] = [{}]
        if wanted is not None:
            # A function cannot be sent: it is asked here, and the broker told which ones it chose.
            letters = yield from self.dead_letters(None)
            named = None if ids is None else frozenset(ids)
            ids = [
                letter.id for letter in letters if (named is None or letter.id in named) and wanted(letter)
            ]
        if ids is not None:
            wishes = _wishes(ids, edits)
        total = 0
        for wish in wishes:
            if limit is not None:
                wish["limit"] = max(0, limit - total)
            try:
                answer = yield from self._topics.ask("POST", f"{self._path}/{act}", wish)
            except TopicNotFound:
                # Of a topic that never was there are none; of one that is gone they cannot go back.
                if (yield from self.dead_letters(1)):
                    raise
                return total
            total += decoded(answer.body)[count]
        return total

    def scheduled(self, limit: int | None) -> Flow[list[Scheduled]]:
        path = f"{self._path}/scheduled"
        try:
            documents = yield from self._listed(path, "scheduled", limit, itemgetter("id"))
        except TopicNotFound:
            return []
        return list(map(scheduled_of, documents))

    def timeline(self, until_us: int | None, bins: int) -> Flow[Timeline]:
        query = {"bins": str(bins)} | ({} if until_us is None else {"until": str(until_us)})
        try:
            answer = yield from self._topics.ask("GET", f"{self._path}/scheduled/timeline", query=query)
        except TopicNotFound:
            return Timeline.empty(self._topics.clock.now_us(), until_us, bins)
        return Timeline(**decoded(answer.body))

    def cancel(self, scheduled_ids: Collection[str]) -> Flow[int]:
        ids, cancelled = list(scheduled_ids), 0
        try:
            for start in range(0, len(ids), _CANCELLED_MAX):
                wish = {"ids": ids[start : start + _CANCELLED_MAX]}
                answer = yield from self._topics.ask("POST", f"{self._path}/scheduled/cancel", wish)
                cancelled += decoded(answer.body)["cancelled"]
        except TopicNotFound:
            return 0
        return cancelled

    def deliver_now(self, scheduled_id: str) -> Flow[bool]:
        try:
            path = path_of("topics", self.topic, "scheduled", scheduled_id, "deliver")
            yield from self._topics.ask("POST", path)
        except NotFound:
            return False
        return True

    def purge(self) -> Flow[int]:
        answer = yield from self._topics.ask("POST", f"{self._path}/purge")
        purged: int = decoded(answer.body)["purged"]
        return purged

    def pause(self, is_paused: bool) -> Flow[None]:
        act = "pause" if is_paused else "resume"
        yield from self._topics.ask("POST", f"{self._group_path}/{act}", is_repeatable=True)

    def retry_now(self) -> Flow[int]:
        answer = yield from self._topics.ask("POST", f"{self._group_path}/retry")
        retried: int = decoded(answer.body)["retried"]
        return retried


_FLOWS: dict[type[QueueOperation[Any]], Callable[..., Flow[Any]]] = {
    operations.SyncTopic: QueueCalls.sync,
    operations.GetLeaseSeconds: QueueCalls.lease_s,
    operations.WaitForMessages: QueueCalls.wait_until_ready,
    operations.CountPartitions: QueueCalls.partitions,
    operations.Seek: QueueCalls.seek,
    operations.Peek: QueueCalls.peek,
    operations.GetQueueStats: QueueCalls.stats,
    operations.ListDeliveries: QueueCalls.deliveries,
    operations.PauseGroup: QueueCalls.pause,
    operations.RetryNow: QueueCalls.retry_now,
    operations.Purge: QueueCalls.purge,
    operations.ListDeadLetters: QueueCalls.dead_letters,
    operations.CountReasons: QueueCalls.dead_letter_reasons,
    operations.Redrive: QueueCalls.redrive,
    operations.Discard: QueueCalls.discard,
    operations.ListScheduled: QueueCalls.scheduled,
    operations.CountScheduled: QueueCalls.timeline,
    operations.Cancel: QueueCalls.cancel,
    operations.DeliverNow: QueueCalls.deliver_now,
}


def _settle_json(settle: Settle) -> dict[str, Any]:
    fields: dict[str, Any] = {"reason": settle.reason, "error": settle.error}
    if settle.delay is not None:
        fields["delay_ms"] = milliseconds(settle.delay)
    if settle.act == "extend":
        fields["lease_ms"] = max(1, seconds_us("seconds", settle.seconds, lowest=0.001) // 1000)
    return {name: value for name, value in fields.items() if value is not None}


def _wishes(ids: Iterable[str], edits: Edits) -> list[dict[str, Any]]:
    """What to ask for, call by call. What is edited goes alone, because it may be large."""
    each = list(dict.fromkeys(ids))
    plain = [name for name in each if name not in edits]
    wishes: list[dict[str, Any]] = [
        {"ids": plain[start : start + _IDS_MAX]} for start in range(0, len(plain), _IDS_MAX)
    ]
    return wishes + [{"edits": {name: checked_json(edits[name])}} for name in each if name in edits]
