"""The calls of whoever reads logs in bulk, as flows: frames as they are stored, times, commits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quivermq.client.core.call import Call, Flow
from quivermq.client.core.received import frames_of
from quivermq.client.core.retry import asked
from quivermq.client.core.topics import TopicCalls
from quivermq.client.core.wire import decoded, path_of
from quivermq.frame import Frame
from quivermq.model.json import FRAME

# As many as a broker sends at once; long before that an answer is as large as it gets.
FRAME_MESSAGES_MAX = 100_000


class FramePage(NamedTuple):
    """Frames of a lane, where to go on, and what the lane held at that moment."""

    frames: list[Frame]
    next: int
    start: int
    end: int


class LogCalls:
    """Flows for the logs of a broker. Any thread may run them."""

    def __init__(self, topics: TopicCalls) -> None:
        self._topics = topics

    def frames(
        self, topic: str, partition: int, priority: str, offset: int, limit: int = FRAME_MESSAGES_MAX
    ) -> Flow[FramePage]:
        """Whole frames of about `limit` messages from an offset on, or as many as one answer holds.

        Raises OffsetOutOfRange.
        """
        call = Call(
            "GET",
            path_of("topics", topic, "partitions", partition, "messages"),
            {"offset": str(offset), "limit": str(min(limit, FRAME_MESSAGES_MAX)), "priority": priority},
            accept=FRAME,
            is_repeatable=True,
        )
        answer = yield from asked(call, self._topics.retry)
        following, start, end = (
            int(answer.headers[name]) for name in ("quiver-next", "quiver-start", "quiver-end")
        )
        return FramePage(list(frames_of(answer.body)), following, start, end)

    def find_time(self, topic: str, partition: int, priority: str, timestamp_us: int) -> Flow[int]:
        """The first offset whose message is not older; the end when all are."""
        query = {"timestamp": str(timestamp_us), "limit": "1", "priority": priority}
        path = path_of("topics", topic, "partitions", partition, "messages")
        answer = yield from self._topics.ask("GET", path, query=query)
        document: Mapping[str, Any] = decoded(answer.body)
        offset: int = document["messages"][0]["offset"] if document["messages"] else document["next"]
        return offset

    def commit(self, group: str, offsets: list[dict[str, Any]]) -> Flow[None]:
        """Let a group without members go on from there. Raises Conflict, OffsetOutOfRange."""
        path = f"{path_of('groups', group)}/offsets"
        yield from self._topics.ask("PUT", path, {"offsets": offsets}, is_repeatable=True)
