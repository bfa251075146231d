"""The queues that requests are about: those that were asked for lately are at hand."""

from quivermq.engine import Queue
from quivermq.server.broker import Broker
from quivermq.server.http import Request
from quivermq.topic.names import is_pattern

_QUEUES_MAX = 10_000


class Queues:
    """By topic, or pattern, and group."""

    def __init__(self, broker: Broker) -> None:
        self._engine = broker.engine
        self._queues: dict[tuple[str, str], Queue] = {}

    def get(self, topic: str, group: str) -> Queue:
        """The queue of a topic and a group. Raises InvalidName."""
        queue = self._queues.get((topic, group))
        if queue is None:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues.clear()
            queue = self._queues[topic, group] = self._engine.queue(topic, group)
        return queue


def queue_of(broker: Broker, request: Request) -> Queue:
    """The queue that a path names."""
    return broker.part(Queues).get(request.params["topic"], request.params["group"])


def may_wait(broker: Broker, queue: Queue) -> bool:
    """Whether taking or acknowledging messages has to go to a thread, because the disk may be waited for.

    That is so, too, for a group that is new, one that has come no further than the archive, and where a
    lease is over: its message may have to be buried.
    """
    if is_pattern(queue.topic) or broker.may_wait_for_disk(queue.topic):
        return True
    hosted = broker.engine.find(queue.topic)
    group = None if hosted is None else hosted.groups.get(queue.group)
    if group is None or (broker.engine.archive.is_named and group.is_behind_logs()):
        return True
    return group.has_overdue(broker.engine.clock.now_us())
