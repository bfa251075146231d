"""Single messages that arrive together become one frame, and share one sync.

What arrives while the event loop goes once round its sockets is stored in one go. Where that has to wait
for the disk, a thread does it, and what arrives meanwhile is the next batch: nobody waits for company.
"""

import asyncio
import logging
from collections.abc import Sequence

from quivermq.engine import Queue
from quivermq.errors import InvalidRequest, Overloaded, QuiverError
from quivermq.server.app import error_response
from quivermq.server.broker import Broker
from quivermq.server.http import Later, Response, json_response
from quivermq.settings import Durability
from quivermq.topic.incoming import Message
from quivermq.topic.put import Put

logger = logging.getLogger(__name__)

# So many topics keep their queue at hand; one more, and all are made anew when they are asked for.
_QUEUES_MAX = 10_000
# As large as a batch may get; the next one follows at once.
_BATCH_MESSAGES = 10_000

_PLAIN = b'{"topic":"%b","partition":%d,"priority":"%b","offset":%d,"duplicate":false,"scheduled_id":null}'


class Publishing:
    """Takes messages on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._lines: dict[tuple[str, Durability | None], _Line] = {}

    def publish(self, topic: str, message: bytes | Message, durability: Durability | None) -> Later:
        """Store a message that was checked, soon, together with others."""
        line = self._lines.get((topic, durability)) or self._open(topic, durability)
        answer = Later()
        line.add(message, answer)
        return answer

    def _open(self, topic: str, durability: Durability | None) -> "_Line":
        if len(self._lines) >= _QUEUES_MAX:
            # Those who wait in a line keep it alive until they are served.
            self._lines.clear()
        queue = self._broker.engine.queue(topic)
        line = self._lines[topic, durability] = _Line(self._broker, self._loop, queue, durability)
        return line


class _Line:
    """The messages of one topic that wait to be stored with the same durability."""

    def __init__(
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        queue: Queue,
        durability: Durability | None,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._queue = queue
        self._durability = durability
        self._messages: list[bytes | Message] = []
        self._answers: list[Later] = []
        self._is_planned = False

    def add(self, message: bytes | Message, answer: Later) -> None:
        self._messages.append(message)
        self._answers.append(answer)
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._store)

    def _store(self) -> None:
        """Store what has gathered: here when that only copies memory, otherwise in a thread."""
        messages, answers = self._messages[:_BATCH_MESSAGES], self._answers[:_BATCH_MESSAGES]
        del self._messages[:_BATCH_MESSAGES], self._answers[:_BATCH_MESSAGES]
        if self._broker.may_wait_for_disk(self._queue.topic, self._durability):
            storing = self._loop.run_in_executor(self._broker.threads, self._stored, messages)
            storing.add_done_callback(lambda done: self._done(done.result(), answers))
        else:
            self._done(self._stored(messages), answers)

    def _stored(self, messages: list[bytes | Message]) -> Sequence[Response]:
        """Answers for messages of as many callers: each is stored, or refused and not there."""
        waiting = [place for place, message in enumerate(messages) if _is_delayed(message)]
        if not waiting or len(waiting) == len(messages):
            return self._put(messages)
        # What waits lies elsewhere: one may have room where the other has none.
        others = [place for place, message in enumerate(messages) if not _is_delayed(message)]
        found: dict[int, Response] = {}
        for places in (waiting, others):
            found |= zip(places, self._put([messages[place] for place in places]), strict=True)
        return [found[place] for place in range(len(messages))]

    def _put(self, messages: list[bytes | Message]) -> Sequence[Response]:
        """Store messages, all or none of them."""
        try:
            return list(map(put_response, self._queue.put_many(messages, durability=self._durability)))
        except (Overloaded, InvalidRequest) as error:
            if len(messages) == 1:
                return [error_response(error, self._broker.hiding)]
            # Nothing was stored; one of them may be the reason, and the others must not suffer for it.
            return [response for message in messages for response in self._put([message])]
        except QuiverError as error:
            self._broker.note(error)
            return [error_response(error, self._broker.hiding)] * len(messages)
        except Exception:
            logger.exception("storing %d messages of %s failed", len(messages), self._queue.topic)
            return [error_response(QuiverError("the broker failed: its log has the details"))] * len(
                messages
            )

    def _done(self, responses: Sequence[Response], answers: list[Later]) -> None:
        if self._messages:
            self._loop.call_soon(self._store)
        else:
            self._is_planned = False
        for answer, response in zip(answers, responses, strict=True):
            try:
                answer.set(response)
            except Exception:
                # The others have to be told all the same.
                logger.exception("an answer could not be sent")


def _is_delayed(message: bytes | Message) -> bool:
    return isinstance(message, Message) and (message.delay is not None or message.deliver_at is not None)


def put_response(put: Put) -> Response:
    """Where a message is."""
    if put.offset is None or put.duplicate:
        return json_response(put._asdict())
    return Response(200, _PLAIN % (put.topic.encode(), put.partition, put.priority.encode(), put.offset))
