"""The calls of a member of a group, as flows."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from quivermq.client.core.call import Call, Flow
from quivermq.client.core.received import frames_of
from quivermq.client.core.retry import asked
from quivermq.client.core.topics import TopicCalls
from quivermq.client.core.wire import decoded, path_of
from quivermq.group.assignment import TopicPartition
from quivermq.model.json import FRAME, milliseconds
from quivermq.model.lanes import Lane
from quivermq.model.messages import StoredMessage


def partition_of(lane: Lane) -> TopicPartition:
    """What a member has when it reads a lane."""
    return TopicPartition(lane.topic, lane.partition)


class GroupBounds(NamedTuple):
    """Where a group is in a lane, None where it has never been, and what the lane holds."""

    committed: int | None
    start: int
    end: int


class Synced(NamedTuple):
    """What a member has, and what it must give up before it gets more."""

    generation: int
    assignment: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]


class Page(NamedTuple):
    """A part of a lane, and where to go on."""

    messages: list[StoredMessage]
    next: int


class MemberCalls:
    """Flows for one group."""

    def __init__(self, topics: TopicCalls, group: str) -> None:
        self._topics = topics
        self._path = path_of("groups", group)

    def join(self, topics: Sequence[str], strategy: str, session_timeout_ms: int) -> Flow[tuple[str, int]]:
        """Become a member: its id and the generation. One whose answer was lost leaves by itself."""
        wish = {"topics": list(topics), "strategy": strategy, "session_timeout_ms": session_timeout_ms}
        answer = yield from self._topics.ask("POST", f"{self._path}/join", wish, is_repeatable=True)
        document = decoded(answer.body)
        return document["member_id"], document["generation"]

    def sync(self, member_id: str, generation: int, owned: Collection[TopicPartition]) -> Flow[Synced]:
        """Say what is read, learn what is to be read. Raises Fenced."""
        wish = {
            "member_id": member_id,
            "generation": generation,
            "owned": [{"topic": topic, "partition": partition} for topic, partition in sorted(owned)],
        }
        answer = yield from self._topics.ask("POST", f"{self._path}/sync", wish, is_repeatable=True)
        document = decoded(answer.body)
        return Synced(
            document["generation"], _partitions(document["assignment"]), _partitions(document["revoked"])
        )

    def heartbeat(self, member_id: str, generation: int) -> Flow[str]:
        """Live on: "stable", or "rebalancing" when there is a reason to sync. Raises Fenced."""
        wish = {"member_id": member_id, "generation": generation}
        answer = yield from self._topics.ask("POST", f"{self._path}/heartbeat", wish, is_repeatable=True)
        state: str = decoded(answer.body)["state"]
        return state

    def leave(self, member_id: str) -> Flow[None]:
        """Go at once."""
        wish = {"member_id": member_id}
        yield from self._topics.ask("POST", f"{self._path}/leave", wish, is_repeatable=True)

    def offsets(self, topic: str) -> Flow[dict[Lane, GroupBounds]]:
        """Where the group is in every lane of a topic that is in use. Raises TopicNotFound."""
        answer = yield from self._topics.ask("GET", f"{self._path}/offsets", query={"topic": topic})
        return {
            Lane(each["topic"], each["partition"], each["priority"]): GroupBounds(
                each["offset"], each["start"], each["end"]
            )
            for each in decoded(answer.body)["offsets"]
        }

    def commit(self, positions: Mapping[Lane, int], member_id: str, generation: int) -> Flow[None]:
        """Let the group go on from there. Raises Fenced when a partition is not the member's any more."""
        wish: dict[str, Any] = {
            "offsets": [{**lane._asdict(), "offset": offset} for lane, offset in positions.items()],
            "member_id": member_id,
            "generation": generation,
        }
        yield from self._topics.ask("PUT", f"{self._path}/offsets", wish, is_repeatable=True)

    def fetch(self, lane: Lane, offset: int, limit: int, wait_s: float) -> Flow[Page]:
        """Frames of a lane from an offset on, as they are stored. Raises OffsetOutOfRange."""
        call = Call(
            "GET",
            path_of("topics", lane.topic, "partitions", lane.partition, "messages"),
            {
                "offset": str(offset),
                "limit": str(limit),
                "priority": lane.priority,
                "wait_ms": str(milliseconds(wait_s)),
            },
            accept=FRAME,
            is_repeatable=True,
            wait_s=wait_s,
        )
        answer = yield from asked(call, self._topics.retry)
        now_us = self._topics.clock.now_us()
        messages = [
            StoredMessage._make((*lane, *record))
            for frame in frames_of(answer.body)
            if not frame.is_control
            for record in frame.records()
            # A frame begins where it begins; and what has expired is delivered to nobody.
            if record.offset >= offset and (record.expires_at is None or record.expires_at > now_us)
        ]
        return Page(messages, max(offset, int(answer.headers.get("quiver-next", offset))))


def _partitions(documents: Sequence[Mapping[str, Any]]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each["topic"], each["partition"]) for each in documents)
