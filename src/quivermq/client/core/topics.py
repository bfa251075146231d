"""The calls of a connection as a whole: its topics, their groups, and what there is."""

from collections.abc import Mapping
from typing import Any

from quivermq.client.core.call import Answer, Call, Flow
from quivermq.client.core.retry import Retry, asked
from quivermq.client.core.wire import (
    compacted_of,
    decoded,
    encoded,
    engine_stats_of,
    path_of,
    report_of,
    topic_stats_of,
)
from quivermq.clock import Clock, SystemClock
from quivermq.engine import Compacted, TopicInfo
from quivermq.engine.stats import EngineStats, TopicStats
from quivermq.errors import GroupNotFound, TopicNotFound
from quivermq.log import Report
from quivermq.topic.names import check_group_name, check_topic_name
from quivermq.topic.settings import TopicSettings

# Settings that others change are noticed after so long.
_REMEMBERED_S = 10.0


class TopicCalls:
    """Flows for everything that is not about the messages of one topic. Any thread may run them."""

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

    def create_topic(self, name: str, **settings: Any) -> Flow[None]:
        check_topic_name(name)
        yield from self.ask("POST", "/v1/topics", {**settings, "name": name})

    def alter_topic(self, name: str, **settings: Any) -> Flow[None]:
        check_topic_name(name)
        self._remembered.pop(name, None)
        yield from self.ask("PATCH", path_of("topics", name), settings, is_repeatable=True)

    def delete_topic(self, name: str) -> Flow[None]:
        check_topic_name(name)
        self._remembered.pop(name, None)
        yield from self.ask("DELETE", path_of("topics", name))

    def topics(self) -> Flow[list[str]]:
        answer = yield from self.ask("GET", "/v1/topics")
        return sorted(topic["name"] for topic in decoded(answer.body)["topics"])

    def topic(self, name: str) -> Flow[TopicInfo]:
        told = yield from self._told(name)
        settings = TopicSettings.from_json(told["settings"])
        info = TopicInfo(name, settings.partitions, settings)
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
            self._remembered.pop(name, None)
            return None

    def topic_stats(self, name: str) -> Flow[TopicStats]:
        """What there is in one topic. Raises TopicNotFound."""
        return topic_stats_of(name, (yield from self._told(name)))

    def groups(self, topic: str) -> Flow[list[str]]:
        told = yield from self._told(topic)
        return sorted(told["groups"])

    def delete_group(self, topic: str, group: str) -> Flow[bool]:
        check_group_name(group)
        check_topic_name(topic)
        try:
            yield from self.ask("DELETE", path_of("topics", topic, "groups", group))
        except GroupNotFound:
            return False
        return True

    def stats(self) -> Flow[EngineStats]:
        answer = yield from self.ask("GET", "/v1/stats")
        return engine_stats_of(decoded(answer.body))

    def compact(self) -> Flow[Compacted]:
        answer = yield from self.ask("POST", "/v1/compact", is_repeatable=True)
        return compacted_of(decoded(answer.body))

    def verify(self) -> Flow[Report]:
        answer = yield from self.ask("POST", "/v1/verify", is_repeatable=True)
        return report_of(decoded(answer.body))

    def _told(self, name: str) -> Flow[Mapping[str, Any]]:
        check_topic_name(name)
        answer = yield from self.ask("GET", path_of("topics", name))
        told: Mapping[str, Any] = decoded(answer.body)
        return told
