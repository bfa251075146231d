"""A broker as flows: its topics, their groups, and what there is."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from quivermq.client.core.call import Answer, Call, Flow
from quivermq.client.core.retry import Retry, asked
from quivermq.client.core.wire import decoded, encoded, path_of
from quivermq.clock import Clock, SystemClock
from quivermq.disk import Buffer
from quivermq.errors import GroupNotFound, TopicNotFound
from quivermq.frame import parse_header
from quivermq.model import operations
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.backups import Backup
from quivermq.model.json import FRAME, put_of
from quivermq.model.lanes import Lane, Priority
from quivermq.model.messages import ProducerState, Put
from quivermq.model.operations import LaneBounds, Operation, TopicExtent, arguments_of
from quivermq.model.stats import Compacted, EngineStats, Replaced, Report, TopicInfo, TopicStats
from quivermq.model.stats_json import (
    adopted_id_json,
    backup_of,
    compacted_of,
    engine_stats_of,
    producer_state_of,
    progress_json,
    report_of,
    topic_info_of,
    topic_stats_of,
)
from quivermq.model.topic_settings import TopicSettings

T = TypeVar("T")

# Settings that others change are noticed after so long.
_REMEMBERED_S = 10.0
# As long as it takes to read and store everything.
_BACKUP_S = 24 * 3600


class TopicCalls:
    """Flows for what can be asked of a `Backend`, but for frames. Any thread may run them."""

    def __init__(self, retry: Retry, clock: Clock | None = None) -> None:
        self.retry = retry
        self.clock: Clock = SystemClock() if clock is None else clock
        self._remembered: dict[str, tuple[float, TopicInfo]] = {}

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        is_repeatable: bool | None = None,
    ) -> Flow[Answer]:
        """One call in JSON. What only looks may always be repeated."""
        call = Call(
            method,
            path,
            query or {},
            b"" if body is None else encoded(body),
            is_repeatable=method == "GET" if is_repeatable is None else is_repeatable,
        )
        return (yield from asked(call, self.retry))

    def perform(self, operation: Operation[T]) -> Flow[T]:
        answer: T = yield from _FLOWS[type(operation)](self, *arguments_of(operation))
        return answer

    def create_topic(self, name: str, exist_ok: bool, settings: Mapping[str, Any]) -> Flow[None]:
        wish = {**settings, "name": name} | ({"exist_ok": True} if exist_ok else {})
        # Made by a call whose answer was lost, it is there when that is made again.
        yield from self.ask("POST", "/v1/topics", wish, is_repeatable=exist_ok)

    def alter_topic(self, name: str, settings: Mapping[str, Any]) -> Flow[None]:
        self.forget(name)
        yield from self.ask("PATCH", path_of("topics", name), settings, is_repeatable=True)

    def delete_topic(self, name: str) -> Flow[None]:
        self.forget(name)
        yield from self.ask("DELETE", path_of("topics", name))

    def topics(self) -> Flow[list[str]]:
        answer = yield from self.ask("GET", "/v1/topics")
        return sorted(topic["name"] for topic in decoded(answer.body)["topics"])

    def origins(self) -> Flow[dict[str, str | None]]:
        """All topics, each with the topic whose dead letters it has, if it has any."""
        answer = yield from self.ask("GET", "/v1/topics")
        topics = decoded(answer.body)["topics"]
        return {topic["name"]: topic["dead_letters_of"] for topic in topics}

    def extent(self, name: str) -> Flow[TopicExtent]:
        document = yield from self._document(name)
        lanes = {
            Lane(name, each["partition"], each["priority"]): LaneBounds(
                *(each[figure] for figure in LaneBounds._fields)
            )
            for each in document["lanes"]
        }
        settings = TopicSettings.from_json(document["settings"])
        return TopicExtent(document["created_at"], settings, lanes, document["dead_letters_of"])

    def topic(self, name: str) -> Flow[TopicInfo]:
        info = topic_info_of((yield from self._document(name)))
        self._remembered[name] = (self.clock.monotonic(), info)
        return info

    def remembered(self, name: str) -> Flow[TopicInfo | None]:
        """The topic as it was a moment ago, which is good enough to route by; None when there is none."""
        found = self._remembered.get(name)
        if found is not None and self.clock.monotonic() - found[0] < _REMEMBERED_S:
            return found[1]
        try:
            return (yield from self.topic(name))
        except TopicNotFound:
            self.forget(name)
            return None

    def forget(self, name: str) -> None:
        """Look at the topic again when it is next asked for."""
        self._remembered.pop(name, None)

    def topic_stats(self, name: str) -> Flow[TopicStats]:
        """What there is in one topic. Raises TopicNotFound."""
        return topic_stats_of(name, (yield from self._document(name)))

    def groups(self, topic: str) -> Flow[list[str]]:
        document = yield from self._document(topic)
        return sorted(document["groups"])

    def delete_group(self, topic: str, group: str) -> Flow[bool]:
        try:
            yield from self.ask("DELETE", path_of("topics", topic, "groups", group))
        except GroupNotFound:
            return False
        return True

    def begin_producer(self, topic: str, producer_id: int) -> Flow[ProducerState]:
        # To begin twice does no harm: the epoch between the two is one that nobody sends with.
        path = path_of("topics", topic, "producers", producer_id)
        answer = yield from self.ask("POST", path, is_repeatable=True)
        return producer_state_of(decoded(answer.body))

    def adopt(
        self,
        topic: str,
        group: str,
        progress: Progress,
        partition: int,
        priority: Priority,
        expected: Progress | None,
    ) -> Flow[bool]:
        body = {"progress": progress_json(progress), "partition": partition, "priority": priority}
        if expected is not None:
            body["expected"] = progress_json(expected)
        path = path_of("topics", topic, "groups", group, "adopt")
        answer = yield from self.ask("POST", path, body)
        is_adopted: bool = decoded(answer.body)["adopted"]
        return is_adopted

    def adopt_ids(self, topic: str, adopted: Sequence[AdoptedId]) -> Flow[int]:
        ids = [adopted_id_json(each) for each in adopted]
        path = path_of("topics", topic, "dedup_ids")
        # An id that is known already stays as it is.
        answer = yield from self.ask("POST", path, {"ids": ids}, is_repeatable=True)
        count: int = decoded(answer.body)["adopted"]
        return count

    def adopt_dead_letters(
        self, topic: str, frame: Buffer, partition: int, priority: Priority
    ) -> Flow[Put]:
        call = Call(
            "POST",
            path_of("topics", topic, "dead-letters"),
            {"partition": str(partition), "priority": priority},
            bytes(frame),
            FRAME,
            # The broker knows a producer's frame again, should it come twice.
            is_repeatable=bool(parse_header(frame).producer_id),
        )
        return put_of(decoded((yield from asked(call, self.retry)).body))

    def replace_segment(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        frames: Buffer,
        expected: str,
        priority: Priority,
    ) -> Flow[Replaced]:
        call = Call(
            "PUT",
            path_of("topics", topic, "partitions", partition, "segments", base_offset),
            {"priority": priority, "expected": expected},
            bytes(frames),
            FRAME,
            # The broker knows the frames again, should they come twice.
            is_repeatable=True,
        )
        document = decoded((yield from asked(call, self.retry)).body)
        return Replaced(document["bytes_before"], document["bytes_after"])

    def sync(self) -> Flow[None]:
        yield from self.ask("POST", "/v1/sync", is_repeatable=True)

    def stats(self) -> Flow[EngineStats]:
        answer = yield from self.ask("GET", "/v1/stats")
        return engine_stats_of(decoded(answer.body))

    def compact(self, archived: bool) -> Flow[Compacted]:
        query = {"archived": "true"} if archived else None
        answer = yield from self.ask("POST", "/v1/compact", query=query, is_repeatable=True)
        return compacted_of(decoded(answer.body))

    def use_archive(self, directory: str | None) -> Flow[None]:
        yield from self.ask("POST", "/v1/archive", {"directory": directory}, is_repeatable=True)

    def verify(self) -> Flow[Report]:
        answer = yield from self.ask("POST", "/v1/verify", is_repeatable=True)
        return report_of(decoded(answer.body))

    def backup(self, target: str, progress: object = None) -> Flow[Backup]:  # noqa: ARG002 - Nobody tells.
        body = encoded({"target": target})
        call = Call("POST", "/v1/backups", body=body, wait_s=_BACKUP_S)
        return backup_of(decoded((yield from asked(call, self.retry)).body))

    def _document(self, name: str) -> Flow[Mapping[str, Any]]:
        """All that the broker says about one topic. Raises TopicNotFound."""
        answer = yield from self.ask("GET", path_of("topics", name))
        document: Mapping[str, Any] = decoded(answer.body)
        return document


_FLOWS: dict[type[Operation[Any]], Callable[..., Flow[Any]]] = {
    operations.CreateTopic: TopicCalls.create_topic,
    operations.AlterTopic: TopicCalls.alter_topic,
    operations.DeleteTopic: TopicCalls.delete_topic,
    operations.ListTopics: TopicCalls.topics,
    operations.DescribeTopic: TopicCalls.topic,
    operations.GetExtent: TopicCalls.extent,
    operations.ListGroups: TopicCalls.groups,
    operations.DeleteGroup: TopicCalls.delete_group,
    operations.BeginProducer: TopicCalls.begin_producer,
    operations.AdoptProgress: TopicCalls.adopt,
    operations.AdoptIds: TopicCalls.adopt_ids,
    operations.AdoptDeadLetters: TopicCalls.adopt_dead_letters,
    operations.ReplaceSegment: TopicCalls.replace_segment,
    operations.Sync: TopicCalls.sync,
    operations.GetStats: TopicCalls.stats,
    operations.Compact: TopicCalls.compact,
    operations.UseArchive: TopicCalls.use_archive,
    operations.Verify: TopicCalls.verify,
    operations.MakeBackup: TopicCalls.backup,
}
