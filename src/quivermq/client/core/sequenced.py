"""Putting messages so that every call may be repeated: as frames of a producer, which are known again.

A call whose answer was lost, because its broker died, is made again at the next owner of the shard. Whoever
puts has a producer id for as long as that takes, so threads do not wait for each other's sequence.
"""

from collections.abc import Sequence
from dataclasses import replace

from quivermq.client.core.call import Flow
from quivermq.client.core.publishing import FRAME_LIMITS, Publishing
from quivermq.client.core.topics import TopicCalls
from quivermq.client.core.wire import checked
from quivermq.client.producing.identity import Identity
from quivermq.errors import Conflict, InvalidRequest
from quivermq.frame import compression_of, encode
from quivermq.model.checks import check_partition
from quivermq.model.json import FRAME
from quivermq.model.lanes import NORMAL, PRIORITIES, PartitionLane
from quivermq.model.messages import Message, Put, Puts, note_run
from quivermq.model.stats import TopicInfo
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.incoming import Batch, check_sizes
from quivermq.topic.routing import Router

_IDENTITIES_MAX = 64


class SequencedPublishing(Publishing):
    """Flows that put messages into one topic of a shard.

    What is delayed, has a `dedup_id`, or may find a full backlog, goes as to any broker: the shard has to
    look at all of it first. So without an id that is not sent again once it may have arrived.
    """

    def __init__(self, topics: TopicCalls, topic: str) -> None:
        super().__init__(topics, topic)
        # Those that nobody uses now. To take and to give back is one step of the interpreter each.
        self._identities: list[Identity] = []

    def put(self, message: Message, durability: Durability | None) -> Flow[Put]:
        if message.dedup_id is not None or message.delay is not None or message.deliver_at is not None:
            return (yield from super().put(message, durability))
        puts = yield from self._put_frames(checked([message]), durability)
        return puts[0]

    def put_many(self, given: list[bytes | Message], durability: Durability | None) -> Flow[Sequence[Put]]:
        if not given:
            return []
        batch = checked(given)
        if batch.dedup_ids is not None or batch.due is not None:
            return (yield from super().put_many(given, durability))
        info = yield from self._topics.remembered(self._topic)
        if info is not None and info.settings.is_bounded:
            # Of several frames, there might be room for the first only.
            return (yield from super().put_many(given, durability))
        return (yield from self._put_frames(batch, durability))

    def _put_frames(self, batch: Batch, durability: Durability | None) -> Flow[Sequence[Put]]:
        identity = self._identities.pop() if self._identities else Identity()
        try:
            try:
                puts = yield from self._put_by(identity, batch, durability)
            except _AlteredError:
                # The topic was made anew or has more partitions since somebody looked; nothing is stored.
                self._topics.forget(self._topic)
                puts = yield from self._put_by(identity, batch, durability)
        except BaseException as error:
            # Nobody knows what became of its last frame.
            identity.renew()
            if isinstance(error, _AlteredError):
                raise error.reason from None
            raise
        finally:
            if len(self._identities) < _IDENTITIES_MAX:
                self._identities.append(identity)
        return puts

    def _put_by(
        self, identity: Identity, batch: Batch, durability: Durability | None
    ) -> Flow[Sequence[Put]]:
        """A frame for each lane, or more. Raises _AlteredError when the topic does not take the first."""
        info = yield from self._look(identity)
        # All of it, before the first frame is stored.
        check_sizes(batch, info.settings.storage(StorageSettings()))
        for number in set(batch.partitions or ()):
            check_partition(number, info.settings)
        lanes = self._lanes_of(batch, info)
        results: list[Put | None] = [None] * len(batch)
        is_first = True
        for (number, lane), indexes in lanes:
            part = batch.chosen(indexes)
            done = 0
            for piece in part.parts(FRAME_LIMITS):
                try:
                    put = yield from self._put_piece(identity, piece, (number, lane), info, durability)
                except InvalidRequest as error:
                    if is_first:
                        raise _AlteredError(error) from None
                    # No InvalidRequest: that would say that nothing is stored.
                    there = sum(put is not None for put in results)
                    raise Conflict(
                        f"{self._topic} was altered while messages were put into it, and {there} of"
                        f" {len(batch)} are stored: {error}"
                    ) from None
                is_first = False
                if len(lanes) == 1 and len(piece) == len(batch):
                    assert put.offset is not None, "a frame is never delayed"
                    return Puts(put.topic, lane, [(number, put.offset)], len(batch))
                note_run(results, indexes[done : done + len(piece)], put)
                done += len(piece)
        return [put for put in results if put is not None]

    def _look(self, identity: Identity) -> Flow[TopicInfo]:
        """How the topic is set, which is made when it is new."""
        info = yield from self._topics.remembered(self._topic)
        if info is None:
            state = yield from self._topics.begin_producer(self._topic, identity.producer_id)
            identity.epoch = max(identity.epoch, state.epoch)
            info = yield from self._topics.topic(self._topic)
        return info

    def _lanes_of(self, batch: Batch, info: TopicInfo) -> list[tuple[PartitionLane, Sequence[int]]]:
        own = info.settings.own_partitions
        router = self._router
        if (router.partitions, router.own) != (info.partitions, own):
            router = self._router = Router(info.partitions, own)
        if batch.keys is batch.partitions is batch.lanes is None:
            # They may go anywhere: together they are one frame.
            return [((router.partition_of(None), NORMAL), range(len(batch)))]
        return list(batch.by_lane(batch.route(router), range(len(batch))).items())

    def _put_piece(
        self,
        identity: Identity,
        batch: Batch,
        where: PartitionLane,
        info: TopicInfo,
        durability: Durability | None,
    ) -> Flow[Put]:
        settings, lane = info.settings, (where[0], PRIORITIES[where[1]])
        codec = compression_of(settings.codec, settings.compression_level, settings.compression_bytes_min)
        frame = encode(
            **batch.columns(self._topics.clock.now_us()), codec=codec, producer=identity.next_of(lane)
        )
        call = self._call(bytes(frame), FRAME, durability, *lane, is_repeatable=True)
        # Somebody may have added partitions meanwhile, or made the topic anew, with others.
        call = replace(call, query={**call.query, "partitions": str(info.partitions)})
        put = yield from self._ask(call)
        identity.advance(lane, len(batch))
        return put._replace(duplicate=False)


class _AlteredError(Exception):
    """The broker took nothing, because the topic is not as it was."""

    def __init__(self, reason: InvalidRequest) -> None:
        super().__init__(str(reason))
        self.reason = reason
