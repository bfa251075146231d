"""The calls of one queue: a topic, or all topics of a pattern, as one group sees it."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from random import getrandbits
from typing import TYPE_CHECKING, Any

from quivermq.client.core.call import DELIVERY, Answer, Broken, Call, Flow
from quivermq.client.core.failure import failure_of
from quivermq.client.core.place import Place
from quivermq.client.core.publishing import Publishing
from quivermq.client.core.received import Received
from quivermq.client.core.retry import asked
from quivermq.client.core.settling import Claims, wrong
from quivermq.client.core.topics import TopicCalls
from quivermq.client.core.wire import (
    dead_letter_of,
    decoded,
    encoded,
    message_json,
    milliseconds,
    path_of,
    queue_stats_of,
    scheduled_of,
    stored_message_of,
    wanted_query,
)
from quivermq.engine.archived import EVERYTHING
from quivermq.engine.editing import Edits, check_edits
from quivermq.engine.in_flight import check_after
from quivermq.engine.looking import check_timeline, wanted_of
from quivermq.engine.tables import Page, Part, check_arrow, is_behind, table_of
from quivermq.errors import (
    Closing,
    GroupNotFound,
    InvalidName,
    InvalidRequest,
    LeaseExpired,
    NotFound,
    OffsetOutOfRange,
    QuiverError,
    TopicNotFound,
    Unavailable,
    Unreachable,
)
from quivermq.frame import OFFSET_MAX, Wanted
from quivermq.model.checks import (
    Moment,
    Period,
    check_ids,
    check_limit,
    check_number,
    moment_us,
    seconds_of,
    seconds_us,
)
from quivermq.model.dead_letters import DeadLetter, DeadLetterReason, merged_reasons
from quivermq.model.deliveries import Delivery, InFlight, parse_receipt
from quivermq.model.lanes import LANE_NUMBERS, lane_number
from quivermq.model.messages import Message, Put, Scheduled, StoredMessage, Timeline
from quivermq.model.names import Pattern, check_group_name, check_topic_name, is_pattern
from quivermq.model.stats import QueueStats, stats_of_all
from quivermq.model.topic_settings import PARTITIONS_MAX
from quivermq.settings import Durability

MANY_MAX = 100_000
# More than this a broker does not hand out, or move, in one call.
_RECEIVE_MAX = 10_000
_IDS_MAX = 10_000
_LISTED_MAX = 1000
_TOKENS_MAX = 100
# A broker and what stands before it may cut off a call that waits for longer.
_WAIT_S_MAX = 20.0
_DEFAULT_LEASE_S = 30.0
_lease_of = attrgetter("_lease")

Filter = Callable[[DeadLetter], bool]
Held = Delivery | str | Iterable[Delivery | str]
# What calls for messages have given as the tokens of their leases.
Tokens = list[int]
if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

MakePlace = Callable[[str, int, str], Place]


class QueueCalls:
    """Flows for the messages of one queue, by the names of its methods. Any thread may run them."""

    def __init__(self, topics: TopicCalls, topic: str, group: str, make_place: MakePlace) -> None:
        check_group_name(group)
        self._pattern = Pattern(topic) if is_pattern(topic) else None
        if self._pattern is None:
            check_topic_name(topic)
        self.topic = topic
        self.group = group
        self._publishing = Publishing(topics, topic)
        self._topics = topics
        self._make_place = make_place
        self._places: dict[tuple[str, int], Place] = {}
        # Whether the broker has ever answered.
        self._was_there = False
        self._path = path_of("topics", topic)
        self._group_path = path_of("topics", topic, "groups", group)

    def _check_single(self, act: str) -> None:
        """Raise InvalidName for a pattern, which stands for many topics."""
        if self._pattern is not None:
            raise InvalidName(f"{self.topic} stands for many topics: {act} one of them")

    # In.

    def put(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        priority: str = "normal",
        ttl: Period | None = None,
        delay: Period | None = None,
        deliver_at: Moment | None = None,
        dedup_id: str | None = None,
        dedup_window: Period | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        durability: Durability | None = None,
    ) -> Flow[Put]:
        self._check_single("put into")
        message = Message(
            value, key, headers, priority, ttl, delay, deliver_at, dedup_id, timestamp, partition,
            dedup_window,
        )  # fmt: skip
        return (yield from self._publishing.put(message, durability))

    def put_many(
        self, messages: Iterable[bytes | Message], *, durability: Durability | None = None
    ) -> Flow[Sequence[Put]]:
        self._check_single("put into")
        return (yield from self._publishing.put_many(messages, durability))

    def put_frame(
        self,
        frame: bytes,
        *,
        partition: int | None = None,
        priority: str = "normal",
        durability: Durability | None = None,
    ) -> Flow[Put]:
        self._check_single("put into")
        return (yield from self._publishing.put_frame(frame, partition, priority, durability))

    def sync(self) -> Flow[None]:
        self._check_single("sync")
        yield from self._topics.ask("POST", f"{self._path}/sync", is_repeatable=True)

    # Out.

    def get(
        self, timeout: Period | None = 0, *, lease: Period | None = None, tokens: Tokens | None = None
    ) -> Flow[Delivery | None]:
        """In `tokens` stands what to give back when it fails, or is not waited for any more."""
        found = yield from self._take(1, timeout, lease, tokens)
        return found[0] if found else None

    def get_many(
        self,
        count: int,
        timeout: Period | None = 0,
        *,
        lease: Period | None = None,
        tokens: Tokens | None = None,
    ) -> Flow[list[Delivery]]:
        return (yield from self._take(count, timeout, lease, tokens))

    def pop(self, timeout: Period | None = 0) -> Flow[Delivery | None]:
        found = yield from self._take(1, timeout, None, None, pop=True)
        return found[0] if found else None

    def _take(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens | None,
        *,
        pop: bool = False,
    ) -> Flow[list[Delivery]]:
        """What is there, or, when nothing is, what comes first within `timeout` seconds."""
        check_number("count", count, 1, MANY_MAX)
        part = yield from self.receive(min(count, _RECEIVE_MAX), timeout, lease, tokens, pop=pop)
        found = self.deliveries(part)
        # One answer holds no more than that; of what is there, the next ones are taken as well.
        while len(part) == _RECEIVE_MAX and len(found) < count:
            left = min(count - len(found), _RECEIVE_MAX)
            part = yield from self.receive(left, 0, lease, tokens, pop=pop)
            found += self.deliveries(part)
        for delivery in found if pop else ():
            delivery.is_settled = True
        return found

    def receive(
        self,
        count: int,
        timeout: Period | None,
        lease: Period | None,
        tokens: Tokens | None = None,
        *,
        pop: bool = False,
    ) -> Flow[Received]:
        """As many as one answer holds, waiting for the first."""
        tokens, lost = Tokens() if tokens is None else tokens, Tokens()
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

    def deliveries(self, received: Received) -> list[Delivery]:
        """The messages of an answer."""
        return received.deliveries(self._place)

    def _receive_anew(
        self, wish: Mapping[str, Any], wait_s: float, tokens: Tokens, lost: Tokens, outcome: Answer | Broken
    ) -> Flow[Call]:
        """Ask again, with a token of its own."""
        if isinstance(outcome, Broken) and outcome.was_sent:
            lost.append(tokens[-1])
        else:
            tokens.pop()
        return (yield from self._receive_call(wish, wait_s, tokens, lost))

    def release_taken(self, tokens: Tokens, retries: int) -> Flow[None]:
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

    def _place(self, topic: str, partition: int) -> Place:
        place = self._places.get((topic, partition))
        if place is None:
            place = self._places[topic, partition] = self._make_place(topic, partition, self.group)
        return place

    def lease_s(self, topic: str, lease: Period | None) -> Flow[float]:
        """How long a lease lasts, as given or as the topic is set."""
        if lease is not None:
            return seconds_of("lease", lease, lowest=0.001)
        info = yield from self._topics.remembered(topic)
        return _DEFAULT_LEASE_S if info is None else info.settings.lease_ms / 1000

    # Settling.

    def ack(self, held: Held) -> Flow[None]:
        return (yield from self.settle("ack", self.claims_of(held), {}))

    def nack(
        self,
        held: Held,
        delay: Period | None = None,
        reason: str | None = None,
        *,
        error: str | None = None,
    ) -> Flow[None]:
        fields = self.nack_fields(delay, reason, error)
        return (yield from self.settle("nack", self.claims_of(held), fields))

    def release(self, held: Held) -> Flow[None]:
        return (yield from self.settle("release", self.claims_of(held), {}))

    def reject(self, held: Held, reason: str | None = None, *, error: str | None = None) -> Flow[None]:
        return (yield from self.settle("reject", self.claims_of(held), self.reject_fields(reason, error)))

    def extend(self, held: Held, seconds: Period) -> Flow[None]:
        return (yield from self.settle("extend", self.claims_of(held), self.extend_fields(seconds)))

    def nack_fields(self, delay: Period | None, reason: str | None, error: str | None) -> Mapping[str, Any]:
        """What a nack tells besides what it is about. Raises InvalidRequest, like the next two."""
        story = _story(reason, error)
        if delay is None:
            return story
        seconds_us("delay", delay, lowest=0)
        return {**story, "delay_ms": milliseconds(delay)}

    def reject_fields(self, reason: str | None, error: str | None) -> Mapping[str, Any]:
        return _story(reason, error)

    def extend_fields(self, seconds: Period) -> Mapping[str, Any]:
        return {"lease_ms": max(1, seconds_us("seconds", seconds, lowest=0.001) // 1000)}

    def settle(self, act: str, claims: Claims, fields: Mapping[str, Any]) -> Flow[None]:
        """Settle what still holds; LeaseExpired tells of the rest.

        To send it again is safe: the token of a lease that is over settles nothing.
        """
        if not claims:
            return
        late: list[str] = []
        failures: list[QuiverError] = []
        for part in claims.parts():
            try:
                yield from self._settle(act, part, fields)
            except Unavailable:
                # The others would wait for the same, one after the other.
                raise
            except LeaseExpired as error:
                late += error.receipts
            except QuiverError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        if late:
            raise LeaseExpired(receipts=late)

    def _settle(self, act: str, claims: Claims, fields: Mapping[str, Any]) -> Flow[None]:
        """As much as one call takes."""
        call = Call(
            "POST",
            f"{self._group_path}/{act}",
            {},
            encoded({**fields, "leases": claims.as_json()}),
            is_repeatable=True,
            takes=(409,),
        )
        answer = yield from asked(call, self._topics.retry)
        results = decoded(answer.body).get("results")
        if results is None:
            raise failure_of(answer)
        claims.settled(results, is_final=act != "extend")

    def claims_of(self, held: object) -> Claims:
        """The claims of deliveries and receipts, one or many. Raises InvalidRequest."""
        claims = Claims()
        if isinstance(held, Delivery | str):
            held = [held]
        if not isinstance(held, Iterable):
            raise wrong(held)
        items = held if isinstance(held, list) else list(held)
        if items and set(map(type, items)) == {Delivery}:
            # What one answer brought has few leases, each of messages of one lane that lie together.
            for _, group in groupby(items, _lease_of):
                together = list(group)
                self._check_place(together[0])
                claims.add_batch(together)
            return claims
        for item in items:
            if isinstance(item, Delivery):
                self._check_place(item)
                claims.add_batch([item])
            elif isinstance(item, str):
                receipt = parse_receipt(item)
                self._check_topic(receipt.topic)
                claims.add((receipt.topic, receipt.partition, receipt.lane, receipt.token), receipt.offset)
            else:
                raise wrong(item)
        return claims

    def _check_place(self, delivery: Delivery) -> None:
        group = delivery._settler.group
        self._check_topic(delivery._settler.topic)
        if group != self.group:
            raise InvalidRequest(f"the message was delivered to group {group}, and this is {self.group}")

    def _check_topic(self, topic: str) -> None:
        is_ours = topic == self.topic if self._pattern is None else self._pattern.looks_like(topic)
        if not is_ours:
            raise InvalidRequest(f"the message is one of {topic}, not of {self.topic}")

    # The log.

    def seek(
        self,
        to: str | None = None,
        *,
        offset: int | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        priority: str | None = None,
    ) -> Flow[None]:
        self._check_single("seek in")
        if sum(given is not None for given in (to, offset, timestamp)) != 1:
            raise InvalidRequest('seek to one of "earliest", "latest", an offset or a timestamp')
        moment = None if timestamp is None else moment_us("timestamp", timestamp)
        if priority is not None:
            lane_number(priority)
        given = {
            "to": to, "offset": offset, "timestamp": moment, "partition": partition, "priority": priority
        }  # fmt: skip
        wish = {name: value for name, value in given.items() if value is not None}
        yield from self._topics.ask("POST", f"{self._group_path}/seek", wish, is_repeatable=True)

    def read(
        self,
        partition: int = 0,
        start: int | None = None,
        limit: int = 100,
        *,
        priority: str = "normal",
        key: bytes | None = None,
        text: bytes | None = None,
    ) -> Flow[list[StoredMessage]]:
        self._check_single("read")
        lane_number(priority)
        check_number("partition", partition, 0, PARTITIONS_MAX)
        check_number("limit", limit, 0, MANY_MAX)
        if start is not None:
            check_number("start", start, 0, OFFSET_MAX)
        wanted = wanted_of(key, text)
        return (yield from self._read(self.topic, partition, start, limit, priority, wanted))

    def _read(
        self,
        topic: str,
        partition: int,
        start: int | None,
        limit: int,
        priority: str,
        wanted: Wanted = EVERYTHING,
    ) -> Flow[list[StoredMessage]]:
        found: list[StoredMessage] = []
        sought = wanted_query(wanted)
        path = path_of("topics", topic, "partitions", partition, "messages")
        offset = "earliest" if start is None else str(start)
        while True:
            # Even a look at nothing says whether the topic and the offset are there.
            count = min(max(1, limit - len(found)), MANY_MAX)
            query = {"offset": offset, "limit": str(count), "priority": priority, **sought}
            try:
                told = decoded((yield from self._topics.ask("GET", path, query=query)).body)
            except NotFound as error:
                if found and isinstance(error, OffsetOutOfRange):
                    return found  # What follows is gone: this is all up to there.
                if type(error) is not NotFound:
                    raise
                # To HTTP a partition is a part of the path; here it is an argument.
                raise InvalidRequest(str(error)) from None
            found += map(stored_message_of, told["messages"])
            # Whoever looks for something may have to go on where nothing was found.
            is_over = not (told["messages"] or wanted)
            if len(found) >= limit or is_over or told["next"] >= told["end"]:
                return found[:limit]
            offset = str(told["next"])

    def to_arrow(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        priority: str | None = None,
    ) -> Flow["pa.Table"]:
        check_arrow()
        part = Part(partition, start, end, limit, priority)
        self._check_single("read")
        pages = part.pages((yield from self._topics.topic(self.topic)).settings.partitions)
        try:
            page = next(pages)
            while True:
                page = pages.send((yield from self._page(page)))
        except StopIteration as stop:
            return table_of(stop.value)

    def _page(self, page: Page) -> Flow[list[StoredMessage]]:
        try:
            return (
                yield from self._read(self.topic, page.partition, page.start, page.limit, page.priority)
            )
        except OffsetOutOfRange as error:
            if is_behind(error, page):
                return []
            raise

    def peek(self, limit: int = 1) -> Flow[list[StoredMessage]]:
        check_number("limit", limit, 0, MANY_MAX)
        self._check_single("peek into")
        told = yield from self._listed(f"{self._group_path}/peek", "messages", limit, _place_of)
        return list(map(stored_message_of, told))

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
        if self._pattern is None:
            return (yield from self._stats_of(self.topic))
        each: list[QueueStats] = []
        for topic, origin in sorted((yield from self._topics.origins()).items()):
            if self._pattern.matches(topic, origin):
                each += [(yield from self._stats_of(topic))]
        return stats_of_all(self.topic, self.group, each)

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

    def deliveries_in_flight(self, limit: int, after: InFlight | None) -> Flow[list[InFlight]]:
        check_number("limit", limit, 0, MANY_MAX)
        check_after(after)
        topics = [self.topic]
        if self._pattern is not None:
            told = (yield from self._topics.origins()).items()
            topics = sorted([name for name, origin in told if self._pattern.matches(name, origin)])
        found: list[InFlight] = []
        for topic in topics:
            if len(found) < limit and (after is None or topic >= after.topic):
                behind = after if after is not None and after.topic == topic else None
                found += yield from self._in_flight(topic, limit - len(found), behind)
        return found

    def _in_flight(self, topic: str, limit: int, after: InFlight | None) -> Flow[list[InFlight]]:
        path = path_of("topics", topic, "groups", self.group, "deliveries")
        begin = None if after is None else _place_of(asdict(after))
        try:
            told = yield from self._listed(
                path, "deliveries", limit, _place_of, {"state": "in_flight"}, begin
            )
        except NotFound:
            # As embedded: nobody has anything of a topic, or for a group, that is not there.
            return []
        return [
            InFlight(
                topic,
                each["partition"],
                each["priority"],
                each["offset"],
                each["attempt"],
                each["owner"],
                each["time"],
                each["first_delivered_at"],
                each["last_delivered_at"],
            )
            for each in told
        ]

    def dead_letters(self, limit: int | None = None) -> Flow[list[DeadLetter]]:
        check_limit(limit)
        self._check_single("ask for the dead letters of")
        try:
            told = yield from self._listed(
                f"{self._path}/dead-letters", "messages", limit, itemgetter("id")
            )
        except TopicNotFound:
            return []
        return list(map(dead_letter_of, told))

    def dead_letter_reasons(self) -> Flow[list[DeadLetterReason]]:
        self._check_single("ask for the dead letters of")
        found: list[DeadLetterReason] = []
        query: dict[str, str] = {}
        while True:
            try:
                answer = yield from self._topics.ask(
                    "GET", f"{self._path}/dead-letters/reasons", query=query
                )
            except TopicNotFound:
                return []
            told = decoded(answer.body)
            found += [DeadLetterReason(**reason) for reason in told["reasons"]]
            if told["next"] is None:
                return merged_reasons(found)
            query["after"] = told["next"]

    def redrive(
        self,
        wanted: Filter | None = None,
        limit: int | None = None,
        ids: Collection[str] | None = None,
        edits: Edits | None = None,
    ) -> Flow[int]:
        check_ids(ids)
        check_edits(edits)
        chosen = list(edits) if edits is not None and ids is None else ids
        return (yield from self._move("redrive", "moved", wanted, limit, chosen, edits or {}))

    def discard(
        self,
        wanted: Filter | None = None,
        limit: int | None = None,
        ids: Collection[str] | None = None,
    ) -> Flow[int]:
        check_ids(ids)
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
        check_limit(limit)
        self._check_single("ask for the dead letters of")
        if wanted is not None and not callable(wanted):
            raise InvalidRequest(
                f"filter is a function that takes a dead letter, not a {type(wanted).__name__}"
            )
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
                if (yield from self._has_dead_letters()):
                    raise
                return total
            total += decoded(answer.body)[count]
        return total

    def _has_dead_letters(self) -> Flow[bool]:
        return bool((yield from self.dead_letters(1)))

    def scheduled(self, limit: int | None = None) -> Flow[list[Scheduled]]:
        check_limit(limit)
        self._check_single("ask for the delayed messages of")
        path = f"{self._path}/scheduled"
        try:
            told = yield from self._listed(path, "scheduled", limit, itemgetter("id"))
        except TopicNotFound:
            return []
        return list(map(scheduled_of, told))

    def timeline(self, until: Moment | None = None, bins: int = 60) -> Flow[Timeline]:
        end_us = check_timeline(until, bins)
        self._check_single("ask for the delayed messages of")
        query = {"bins": str(bins)} | ({} if end_us is None else {"until": str(end_us)})
        try:
            answer = yield from self._topics.ask("GET", f"{self._path}/scheduled/timeline", query=query)
        except TopicNotFound:
            now_us = self._topics.clock.now_us()
            return Timeline(now_us, max(now_us + bins, end_us or 0), [0] * bins, 0)
        return Timeline(**decoded(answer.body))

    def cancel(self, scheduled_id: str) -> Flow[bool]:
        self._check_single("cancel in")
        if not scheduled_id or type(scheduled_id) is not str:
            return False
        try:
            path = path_of("topics", self.topic, "scheduled", scheduled_id)
            yield from self._topics.ask("DELETE", path)
        except NotFound:
            return False
        return True

    def cancel_many(self, scheduled_ids: Collection[str]) -> Flow[int]:
        check_ids(scheduled_ids)
        self._check_single("cancel in")
        ids, cancelled = list(scheduled_ids), 0
        try:
            for start in range(0, len(ids), _IDS_MAX):
                wish = {"ids": ids[start : start + _IDS_MAX]}
                answer = yield from self._topics.ask("POST", f"{self._path}/scheduled/cancel", wish)
                cancelled += decoded(answer.body)["cancelled"]
        except TopicNotFound:
            return 0
        return cancelled

    def deliver_now(self, scheduled_id: str) -> Flow[bool]:
        self._check_single("deliver in")
        if not scheduled_id or type(scheduled_id) is not str:
            return False
        try:
            path = path_of("topics", self.topic, "scheduled", scheduled_id, "deliver")
            yield from self._topics.ask("POST", path)
        except NotFound:
            return False
        return True

    def purge(self) -> Flow[int]:
        self._check_single("purge")
        answer = yield from self._topics.ask("POST", f"{self._path}/purge")
        purged: int = decoded(answer.body)["purged"]
        return purged

    def pause(self) -> Flow[None]:
        self._check_single("pause a group of")
        yield from self._topics.ask("POST", f"{self._group_path}/pause", is_repeatable=True)

    def resume(self) -> Flow[None]:
        self._check_single("resume a group of")
        yield from self._topics.ask("POST", f"{self._group_path}/resume", is_repeatable=True)

    def retry_now(self) -> Flow[int]:
        self._check_single("retry in")
        answer = yield from self._topics.ask("POST", f"{self._group_path}/retry")
        retried: int = decoded(answer.body)["retried"]
        return retried


def _story(reason: str | None, error: str | None) -> dict[str, Any]:
    story = {name: told for name, told in (("reason", reason), ("error", error)) if told is not None}
    for told in story.values():
        if not isinstance(told, str):
            raise InvalidRequest(f"a reason and an error are texts, not a {type(told).__name__}")
    return story


def _wishes(ids: Iterable[str], edits: Edits) -> list[dict[str, Any]]:
    """What to ask for, call by call. What is edited goes alone, because it may be large."""
    each = list(dict.fromkeys(ids))
    plain = [name for name in each if name not in edits]
    wishes: list[dict[str, Any]] = [
        {"ids": plain[start : start + _IDS_MAX]} for start in range(0, len(plain), _IDS_MAX)
    ]
    return wishes + [{"edits": {name: message_json(edits[name])}} for name in each if name in edits]


def _place_of(message: Mapping[str, Any]) -> str:
    return f"{message['partition']}-{LANE_NUMBERS[message['priority']]}-{message['offset']}"
