"""A topic together with its groups, as the engine has it open."""

import logging
import threading
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from quivermq.clock import SteadyClock
from quivermq.delivery.cursor import Cursor
from quivermq.delivery.cursor_state import CursorState, DeliveryMeter
from quivermq.delivery.recovery import KeysUnread
from quivermq.disk import Buffer
from quivermq.engine.backlog import Backlog
from quivermq.engine.limits import Limits, Space
from quivermq.errors import DiskRefused, InvalidRequest, NotFound, StorageFailed, TopicNotFound
from quivermq.frame import Flag, Frame
from quivermq.group.group import Group
from quivermq.group.waiters import Waiters, wake_waited
from quivermq.log import DataDirectory, Replaced
from quivermq.metrics import Metrics
from quivermq.model.adoption import Progress
from quivermq.model.lanes import PRIORITIES
from quivermq.model.messages import ProducerState, Put, Puts, plain_put
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import Durability
from quivermq.topic.delay import FailedDelayStore
from quivermq.topic.incoming import Batch, CheckedMessage
from quivermq.topic.state_log import StateLog
from quivermq.topic.topic import Topic

if TYPE_CHECKING:
    from quivermq.engine.relations import TopicRelations

logger = logging.getLogger(__name__)


class OpenTopic:
    """Puts to the topic and wakes its groups. Thread-safe."""

    def __init__(
        self,
        directory: DataDirectory,
        topic: Topic,
        clock: SteadyClock,
        metrics: Metrics,
        space: Space,
        relations: "TopicRelations",
        limits: Limits,
        wake: "Callable[[OpenTopic], None]",
    ) -> None:
        self.topic = topic
        self.name = topic.name
        self._directory = directory
        self._clock = clock
        self._metrics = metrics
        self._space = space
        self.relations = relations
        self._limits = limits
        self._wake = wake
        self._changing = threading.RLock()
        # Changed in place: whoever walks over it, and may not hold `_changing`, walks over a copy.
        self.groups: dict[str, Group] = {}
        # The groups in which something may fall due, and whether something may in all of the topic: only
        # then maintenance looks at it.
        self._busy: set[Group] = set()
        self.is_busy = False
        # The waiters of groups for which somebody waits.
        self._waited: set[Waiters] = set()
        # Where those wait who read along at the end of a log.
        self.readers = Waiters()
        # Dead letters go back one after the other.
        self.moving = threading.Lock()
        self._broken_groups: dict[str, StorageFailed | DiskRefused] = {}
        self._delay_failure: StorageFailed | None = None
        self.is_gone = False
        self._backlog = Backlog(topic, self.groups, metrics)
        self._published = metrics.counter(
            "quiver_messages_published_total", "Messages that were put.", topic=self.name
        )
        self._put_time = metrics.histogram(
            "quiver_put_seconds", "How long a put of anything but a plain value took.", topic=self.name
        )
        self._is_bounded = topic.settings.is_bounded

    @property
    def settings(self) -> TopicSettings:
        return self.topic.settings

    @property
    def origin(self) -> str | None:
        """The topic whose dead letters are here; None for a topic of its own."""
        return self.topic.origin

    @property
    def dead_letter_name(self) -> str | None:
        """The topic that its dead letters go to; None for one that holds dead letters itself."""
        return None if self.origin is not None else self.name + self.settings.dead_letter_suffix

    @property
    def published(self) -> int:
        """How many messages were put since the queue was opened."""
        return int(self._published.value)

    @property
    def turned_away(self) -> tuple[int, int]:
        """How many messages were refused for a full backlog, and how many dropped for newer ones."""
        return self._backlog.turned_away

    @property
    def broken_groups(self) -> dict[str, StorageFailed | DiskRefused]:
        """The groups that cannot be read, and why, by name."""
        return dict(self._broken_groups)

    def configure(self, settings: TopicSettings) -> None:
        """Go on with other settings, here and in every group."""
        with self._changing:
            # First the partitions, then those who read them, then those who write to them.
            self.topic.grow(settings)
            for group in self.groups.values():
                group.configure(settings)
            self.topic.configure(settings)
            for group in self.groups.values():
                group.waiters.wake_all()
            self._is_bounded = settings.is_bounded

    # The way in.

    def put_one(self, message: CheckedMessage, durability: Durability | None) -> Put:
        """Store a message, straight in its log if nothing has to be asked first."""
        if self._space.shortage is not None or self.is_gone:
            self._check_usable()
        value, rest, lane, partition, due, _, settings = message
        topic = self.topic
        if (
            settings is not topic.settings
            or self._is_bounded
            or due is not None
            or (rest is not None and rest.dedup_id is not None)
        ):
            return self.put_many(Batch.of([message]), durability)[0]
        if partition is None:
            if settings.partitions == 1:
                partition = 0
            else:
                router = topic.router
                partition = router.partition_of(None if rest is None else rest.key)
                if router.is_wide:
                    router.check_own(partition)
        owner = topic.partitions[partition]
        log = owner.logs[lane] or owner.log(lane)
        offset = log.append_entry(value, rest, durability)
        next(self._published.ones)
        if self._waited:
            wake_waited(self._waited, 1)
        if self.readers.waiting:
            self.wake_readers()
        return plain_put((self.name, partition, PRIORITIES[lane], offset, False, None))

    def put_many(self, batch: Batch, durability: Durability | None = None) -> Sequence[Put]:
        """Store messages, unless the backlog or the disk has no room for them."""
        self._check_usable()
        if batch.settings is not self.topic.settings:
            self.topic.rules.check_again(batch)
        start = self._clock.monotonic()
        puts = self._backlog.put(batch, durability)
        if not self.is_busy:
            self.become_busy()
        self._put_time.observe(self._clock.monotonic() - start)
        new = len(puts) if isinstance(puts, Puts) else sum(not put.duplicate for put in puts)
        self._published.add(new)
        self.wake(new)
        return puts

    def put_frame(
        self, frame: Frame, partition: int | None, priority: str, durability: Durability | None
    ) -> Put:
        """Append a frame, which the rules of the topic let in, as it is."""
        self._check_usable()
        put = self._backlog.put_frame(frame, partition, priority, durability)
        if not self.is_busy:
            self.become_busy()
        if not put.duplicate:
            self._published.add(len(frame))
            self.wake(len(frame))
        return put

    def adopt_dead_letters(self, frame: Buffer, partition: int, priority: str) -> Put:
        """Append a frame of messages that another queue gave up, whose headers are believed."""
        self._check_usable()
        parsed = self.topic.rules.parse(frame)
        put = self.topic.put_frame(
            parsed, partition=partition, priority=priority, durability="fsync", flags=Flag.DEAD_LETTERS
        )
        if not put.duplicate:
            self._published.add(len(parsed))
            self.wake(len(parsed))
        return put

    def sync(self) -> None:
        """Return once everything that was put so far is on stable storage."""
        if self.is_gone:
            raise TopicNotFound(f"the topic {self.name} was deleted")
        self.topic.sync_all()

    def begin_producer(self, producer_id: int) -> ProducerState:
        """Give a producer its next epoch."""
        self._check_usable()
        return self.topic.begin_producer(producer_id)

    def replace_segment(
        self, partition: int, lane: int, base_offset: int, frames: Buffer, expected: str
    ) -> Replaced:
        """Put other frames in the place of those of a sealed segment."""
        self._check_usable()
        if self.origin is not None:
            raise InvalidRequest(f"{self.name} holds dead letters: each of them is kept, whatever its key")
        if self.settings.cleanup != "compact":
            raise InvalidRequest(
                f"{self.name} has cleanup={self.settings.cleanup}, so nothing is taken out of it:"
                " set cleanup=compact first"
            )
        log = self.topic.partitions[partition].logs[lane]
        if log is None:
            raise NotFound(f"partition {partition} of {self.name} has no segments of that priority")
        replaced = log.replace(base_offset, frames, expected=expected)
        for group in self.all_groups():
            # What was taken out is not handed out any more.
            group.cursors[partition].read_anew(lane)
        return replaced

    def wake(self, count: int) -> None:
        """Wake as many consumers of each group as there are messages."""
        if count and self._waited:
            wake_waited(self._waited, count)
        if count and self.readers.waiting:
            self.wake_readers()

    def wake_readers(self) -> None:
        """Wake everybody who reads along: each of them has every message."""
        self.readers.wake_all()

    def wake_all(self) -> None:
        """Wake everybody who waits. Takes no lock, so a signal handler may call this at any moment."""
        for group in self.groups.values():
            group.waiters.wake_all()
        self.wake_readers()

    def _check_usable(self) -> None:
        if self.is_gone:
            raise TopicNotFound(f"the topic {self.name} was deleted")
        self._space.check()

    # Groups.

    def open_groups(self, names: list[str]) -> None:
        """Open the groups that have been here before. One that cannot be read stops only itself."""
        for name in names:
            try:
                self._busy.add(self._open_group(name))
            except (StorageFailed, DiskRefused) as error:
                logger.error("group %s of %s cannot be opened: %s", name, self.name, error)
                self._broken_groups[name] = error

    def all_groups(self) -> list[Group]:
        """The groups there are now, for those who walk over them."""
        return list(self.groups.values())

    def group(self, name: str) -> Group:
        """The group of that name, which begins with the earliest message when it is new."""
        group = self.groups.get(name)
        if group is None:
            with self._changing:
                if self.is_gone:
                    raise TopicNotFound(f"the topic {self.name} was deleted")
                broken = self._broken_groups.get(name)
                if isinstance(broken, StorageFailed) and not isinstance(broken, KeysUnread):
                    raise copy(broken)
                group = self.groups.get(name)
                if group is None:
                    self._limits.check_group(self.name, name, len(self.groups))
                    group = self._open_group(name)
                    self._limits.groups += 1
                    # If there was no room for it before, or no archive, there is now.
                    self._broken_groups.pop(name, None)
        return group

    def _open_group(self, name: str) -> Group:
        group = Group(name, self.topic.settings, self._clock, self._open_cursor, self._waited)
        self.groups[name] = group
        return group

    def adopt(
        self, group: str, partition: int, lane: int, progress: Progress, expected: Progress | None
    ) -> bool:
        """Let a group go on where another queue was; False when it has been elsewhere meanwhile."""
        found = self.group(group)
        is_adopted = found.cursors[partition].adopt(lane, progress, expected)
        self.took(found)
        return is_adopted

    def took(self, group: Group) -> None:
        """Messages were handed out, so that something may fall due in a group."""
        if group not in self._busy or not self.is_busy:
            self._busy.add(group)
            self.become_busy()

    def become_busy(self) -> None:
        """Let maintenance look at the topic: something was done that may fall due."""
        if not self.is_busy:
            self.is_busy = True
            self._wake(self)

    def _open_cursor(self, number: int, group: Group) -> Cursor:
        labels = {"topic": self.name, "group": group.name}
        counter = self._metrics.counter
        state = CursorState(
            group.name,
            self.topic.partitions[number],
            StateLog(self._directory, f"groups/{group.name}/{self.name}/p{number}"),
            self.topic.settings,
            clock=self._clock,
            dead_letter_topic=lambda create: self.relations.dead_letter_topic(self.name, create),
            meter=DeliveryMeter(
                delivered=counter("quiver_messages_delivered_total", "Messages handed out.", **labels),
                acked=counter("quiver_messages_acked_total", "Messages acknowledged.", **labels),
                nacked=counter("quiver_messages_nacked_total", "Deliveries that failed.", **labels),
                released=counter(
                    "quiver_messages_released_total", "Deliveries given back, not counted.", **labels
                ),
                refused=counter("quiver_receipts_refused_total", "Receipts that came late.", **labels),
                expired=counter("quiver_messages_expired_total", "Messages past their TTL.", **labels),
                leases_expired=counter("quiver_leases_expired_total", "Leases that ran out.", **labels),
                age=self._metrics.histogram(
                    "quiver_delivery_age_seconds",
                    "How old the first message of a batch was when handed out.",
                    **labels,
                ),
                dead_lettered=counter("quiver_messages_dead_lettered_total", "Dead letters.", **labels),
                dropped=counter(
                    "quiver_messages_given_up_total",
                    "Messages given up and dropped, because dead letters are off.",
                    **labels,
                ),
            ),
            on_ready=group.waiters.wake,
            is_dead_letter_topic=self.origin is not None,
        )
        return Cursor(state)

    def delete_group(self, name: str) -> bool:
        """Forget a group and everything it knows."""
        with self._changing:
            group = self.groups.get(name)
            is_broken = self._broken_groups.pop(name, None) is not None
            if group is None:
                if is_broken:
                    self._directory.remove(f"groups/{name}/{self.name}")
                return is_broken
            del self.groups[name]
            self._busy.discard(group)
            self._limits.groups -= 1
            group.close(is_gone=True)
            self._metrics.forget(topic=self.name, group=name)
            self._directory.remove(f"groups/{name}/{self.name}")
            return True

    # Time.

    def release(self, now_us: int) -> None:
        """Append the delayed messages that are due."""
        if self.is_gone:
            return
        try:
            self.wake(self.topic.release(now_us))
        except DiskRefused as error:
            # They wait for room; what is in the lanes already can be had.
            logger.warning("delayed messages of %s wait: %s", self.name, error, extra={"topic": self.name})
        except StorageFailed as error:
            # Nor does a store that failed keep anybody from what is in the lanes.
            self._note_delay_failure(error)

    def _note_delay_failure(self, error: StorageFailed) -> None:
        logged, self._delay_failure = self._delay_failure, error
        # The same file fails whenever something is due, and needs one line.
        if logged is None or str(logged) != str(error):
            logger.error(
                "delayed messages of %s do not come: %s", self.name, error, extra={"topic": self.name}
            )

    @property
    def delay_failure(self) -> StorageFailed | None:
        """Why delayed messages do not come, until the queue is opened again."""
        delays = self.topic.delays
        return delays.error if isinstance(delays, FailedDelayStore) else self._delay_failure

    def maintain(self, now_us: int) -> None:
        """Do what is due: delayed messages, leases, checkpoints."""
        self.release(now_us)
        for group in tuple(self._busy):
            group.expire(now_us)
            if group.is_quiet:
                self._busy.discard(group)
                # Whoever is handed something says so afterwards, and may have done so before this.
                if not group.is_quiet:
                    self._busy.add(group)
        self.topic.dedup.checkpoint()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing falls due here, unless somebody does something first."""
        return not self._busy and self.topic.delays.next_due is None and not self.topic.dedup.is_kept

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way from here to another topic, or from there."""
        return not any(
            partition.removals.has_open_moves for partition in self.topic.partitions.values()
        ) and not any(
            cursor.has_open_transfers for group in self.all_groups() for cursor in group.cursors.values()
        )

    def deliver(self, scheduled_id: str) -> bool:
        """Let a delayed message come now."""
        self._check_usable()
        if not self.topic.deliver(scheduled_id):
            return False
        self.wake(1)
        return True

    def close(self, *, is_deleted: bool = False) -> None:
        """Serve nobody any more."""
        with self._changing:
            self.is_gone = True
            for group in self.groups.values():
                group.close(is_gone=is_deleted)
            self.wake_readers()
