"""One topic of a source on its way into one topic here: messages, dead letters, groups, ids."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.errors import Conflict, Denied, InvalidRequest, InvalidSettings, TopicExists
from quivermq.importers.adopter import Adopter
from quivermq.importers.encoding import item_bytes, stored_bytes
from quivermq.importers.kinds import own_name
from quivermq.importers.ledger import Ledger, LedgerBook
from quivermq.importers.model import (
    MESSAGE_BYTES_MAX,
    MESSAGE_ROOM_BYTES,
    ImportSource,
    Item,
    SourceTopic,
    TopicSummary,
)
from quivermq.importers.stream import StreamImport, StreamKey
from quivermq.importers.target import ImportTarget
from quivermq.model.dead_letters import DLQ_HEADER_BYTES_MAX
from quivermq.model.names import DEAD_LETTER_SUFFIX
from quivermq.model.operations import TopicExtent
from quivermq.model.topic_settings import TopicSettings


class ImportedTopic:
    """A topic here, which need not be there yet, and how large its messages may be.

    What somebody has set is kept to. Only a topic that an import made, and whose limit is still the one
    that an import left, is altered: a message that is whole must not be left behind for a default.
    """

    def __init__(self, target: ImportTarget, ledger: Ledger, name: str) -> None:
        self._target = target
        self._ledger = ledger
        self.name = name
        self._is_dry = True
        self.view: TopicExtent | None = None
        """The topic as it was when somebody looked."""
        self._may_grow = True
        self.message_bytes_max = TopicSettings().message_bytes_max
        """What a message may have now."""

    def look(self, *, is_dry: bool) -> None:
        """Begin anew with the topic as it is, and alter nothing when it is dry."""
        view = self.view = self._target.look(self.name)
        self._is_dry = is_dry
        settings = TopicSettings() if view is None else view.settings
        self.message_bytes_max = settings.message_bytes_max
        self._may_grow = view is None or self.message_bytes_max in self._ledger.limits(view.created_us)

    def made(self, create: Callable[[str], None]) -> TopicExtent:
        """The topic, which is created when it is new."""
        if self.view is not None:
            return self.view
        self._ledger.begin()
        try:
            create(self.name)
        except TopicExists:
            raise Conflict(f"somebody else has just made {self.name}: import again") from None
        view = self.view = self._target.look(self.name)
        assert view is not None, "it was made"
        wanted_bytes, usual_bytes = self.message_bytes_max, view.settings.message_bytes_max
        self.message_bytes_max, self._may_grow = usual_bytes, True
        self._ledger.note_limit(view.created_us, usual_bytes)
        if wanted_bytes > max(usual_bytes, TopicSettings().message_bytes_max):
            self._grow(wanted_bytes)
        return view

    def let_in(self, size_bytes: int) -> bool:
        """Whether a message of that size may come, for which the topic is altered if need be."""
        if size_bytes > self.message_bytes_max and self._may_grow and size_bytes <= MESSAGE_BYTES_MAX:
            self._grow(min(1 << (size_bytes + MESSAGE_ROOM_BYTES).bit_length(), MESSAGE_BYTES_MAX))
        return size_bytes <= self.message_bytes_max

    def _grow(self, limit_bytes: int) -> None:
        if self.view is not None and not self._is_dry:
            self._ledger.begin()
            # Noted first: whatever dies in between, the limit is one that an import left.
            self._ledger.note_limit(self.view.created_us, limit_bytes)
            try:
                self._target.alter_topic(self.name, message_bytes_max=limit_bytes)
            except (InvalidSettings, Denied):
                # The queue was told to have smaller frames than usual, or a key allows only to put.
                self._may_grow = False
                return
        self.message_bytes_max = limit_bytes


# What a message takes in its source besides its value, where the reader does not say.
_ITEM_BYTES = 64
_PROGRESS_BYTES = 1024 * 1024
# A topic's own ttl is for messages that are put from now on, not for those that had none where they were.
_LATE = frozenset(("ttl_ms",))


class ImportOptions(NamedTuple):
    """What the caller wants."""

    groups: tuple[str, ...]
    wants_all: bool
    is_dry: bool
    progress: Callable[[int], None]
    clock: Clock


class TopicImport:
    """One run for one topic."""

    def __init__(
        self,
        source: ImportSource,
        topic: SourceTopic,
        name: str,
        target: ImportTarget,
        book: LedgerBook,
        options: ImportOptions,
    ) -> None:
        self._source = source
        self._topic = topic
        self._name = name
        self._target = target
        self._options = options
        self._summary = TopicSummary(topic.name, name)
        self._ledger = Ledger(target, book, name, options.clock)
        dead_name = name + _dead_letter_suffix(target.look(name), name)
        # By whether they are dead letters: where they go, and who writes each partition.
        self._topics = {
            False: ImportedTopic(target, self._ledger, name),
            True: ImportedTopic(target, self._ledger, dead_name),
        }
        self._writers: dict[tuple[bool, int], StreamImport] = {}
        self._waiting_tried = 0
        # What a topic that was just made gets once its messages are there.
        self._late: dict[str, object] = {}

    def check(self) -> None:
        """Read everything once, and write nothing: whatever could not be imported becomes a finding."""
        self._look(is_dry=True)
        for is_dead, items in self._items():
            for item in items:
                if not self._is_left_out(item):
                    self._size(item, is_dead)
        _ = self._topic.seen_ids

    def run(self) -> TopicSummary:
        """Import the topic."""
        self._import_id = self._known_import()
        self._seen_ids = list(self._topic.seen_ids)
        self._look(is_dry=self._options.is_dry)
        self._summary = TopicSummary(self._topic.name, self._name)
        for is_dead, items in self._items():
            for item in items:
                self._take(item, is_dead)
        for writer in self._writers.values():
            writer.flush()
        if not self._options.is_dry:
            # Also one of which nothing is left: whoever looks for it here finds it, and its partitions.
            self._made(False)
            if self._late:
                self._target.alter_topic(self._name, **self._late)
        self._adopt()
        for writer in self._writers.values():
            writer.finish()
        if self._waiting_tried:
            self._source.report(
                f"messages of {self._topic.name} that were tried before and wait until they are due:"
                f" {self._waiting_tried}. Their attempts begin anew"
            )
        self._summary.passed_over = 0 if self._options.wants_all else self._topic.passed_over
        if self._options.is_dry and self._topics[False].view is None:
            self._summary.settings = dict(self._topic.settings)
        return self._summary

    def _items(self) -> Iterator[tuple[bool, Iterator[Item]]]:
        """The live ones, and the dead letters."""
        self._groups = list(self._topic.groups)
        self._now_us = self._options.clock.now_us()
        yield False, self._watched(self._topic.items())
        yield True, self._watched(self._topic.dead_letters())

    def _watched(self, items: Iterator[Item]) -> Iterator[Item]:
        """The same, saying now and then how far it came."""
        done = 0
        for item in items:
            done += item.size_bytes or len(item.value) + _ITEM_BYTES
            if done >= _PROGRESS_BYTES:
                self._options.progress(done)
                done = 0
            yield item
        self._options.progress(done)

    def _look(self, *, is_dry: bool) -> None:
        """See what is there, and report what of the source it does not take over."""
        for topic in self._topics.values():
            topic.look(is_dry=is_dry)
        view, source = self._topics[False].view, self._topic
        if view is None:
            return
        if view.settings.partitions < source.partitions:
            self._source.report(
                f"{source.name} has {source.partitions} partitions and {self._name}"
                f" {view.settings.partitions}: several go into one"
            )
        others = [
            f"{name}={value}"
            for name, value in source.settings.items()
            if name != "message_bytes_max" and getattr(view.settings, name) != value
        ]
        if others:
            self._source.report(
                f"{self._name} was there, and keeps its settings; {source.name} has {', '.join(others)}"
            )

    def _known_import(self) -> str:
        """By what this source is known in the ledger, or will be."""
        kind, witnesses = self._source.kind, set(self._topic.witnesses)
        for known, others in sorted(self._ledger.witnesses.items()):
            if known.startswith(f"{kind}-") and others & witnesses:
                return known
        # Where every identity is unique in the world, nothing has to be told apart.
        return f"{kind}-{min(witnesses, default='')}"

    # Messages.

    def _take(self, item: Item, is_dead: bool) -> None:
        writer = self._writers.get((is_dead, item.partition))
        if writer is None and not self._options.is_dry and self._topics[is_dead].view is not None:
            writer = self._open_writer(is_dead, item.partition)
        if writer.has(item) if writer is not None else self._was_noted(item, is_dead):
            # Asked first: what is there has to be noted, whatever became of it in the source.
            self._summary.already_there += 1
            return
        if self._is_left_out(item) or (size_bytes := self._size(item, is_dead)) is None:
            return
        self._count(item, 1)
        if not self._options.is_dry:
            if writer is None:
                writer = self._open_writer(is_dead, item.partition)
                # A topic that was just made may have another limit than was expected.
                self._topics[is_dead].let_in(size_bytes)
            writer.add(item, size_bytes)

    def _count(self, item: Item, step: int) -> None:
        """Count an item as imported, or with a step of -1 as one that was not after all."""
        summary = self._summary
        if item.dead is not None:
            summary.dead_letters += step
            return
        is_waiting = (item.deliver_at_us or 0) > self._now_us
        summary.imported += step
        summary.scheduled += step * is_waiting
        if item.attempts > 0:
            # Attempts belong to a place, and it has none before it is due.
            summary.retried += step * (not is_waiting)
            self._waiting_tried += step * is_waiting

    def _was_noted(self, item: Item, is_dead: bool) -> bool:
        """Whether the ledger knows of it: all that a dry run can tell."""
        view = self._topics[is_dead].view
        if view is None:
            return False
        stream = str(self._key(is_dead, item.partition))
        return item.identity in self._ledger.state(stream, view.created_us).done

    def _is_left_out(self, item: Item) -> bool:
        if self._options.wants_all:
            return False
        if item.is_consumed or (item.dead is None and self._is_finished(item)):
            self._summary.consumed += 1
            return True
        if item.expires_at_us is not None and item.dead is None and item.expires_at_us <= self._now_us:
            self._summary.expired += 1
            return True
        return False

    def _is_finished(self, item: Item) -> bool:
        """Whether every group is done with an item; without groups nobody is."""
        for group in self._groups:
            position = group.positions.get(item.partition)
            if position is None or not position.is_finished(item.identity):
                return False
        return bool(self._groups)

    def _size(self, item: Item, is_dead: bool) -> int | None:
        """How much of a chunk an item takes; None when the topic does not let it in, which is reported."""
        framed_bytes, topic = item_bytes(item), self._topics[is_dead]
        if framed_bytes <= topic.message_bytes_max:
            return framed_bytes
        size = stored_bytes(item)
        if is_dead:
            # It may go back one day.
            self._topics[False].let_in(size)
        if topic.let_in(size + DLQ_HEADER_BYTES_MAX if is_dead else size):
            return framed_bytes
        problem = f"it has {size} bytes, and {topic.name} lets in {topic.message_bytes_max}"
        if size <= MESSAGE_BYTES_MAX:
            problem += ": give the topic a larger message_bytes_max and import again"
        self._refuse(item, problem)
        return None

    def _refuse(self, item: Item, why: str) -> None:
        self._summary.unstorable += 1
        problem = f"message {item.id} of {self._topic.name} cannot be stored: {why}"
        self._source.report(problem, is_damage=True)

    def _refuse_late(self, item: Item, why: str) -> None:
        """One that was counted as imported already."""
        self._refuse(item, why)
        self._count(item, -1)

    def _key(self, is_dead: bool, partition: int) -> StreamKey:
        return StreamKey(self._import_id, is_dead, partition, self._topics[is_dead].name)

    def _open_writer(self, is_dead: bool, partition: int) -> StreamImport:
        if not self._writers:
            self._ledger.begin()
            self._import_id = self._known_import()
        # Dead letters can go back only to a topic that is there.
        view = self._made(False)
        view = self._made(True) if is_dead else view
        witnesses, kind, path = self._topic.witnesses, self._source.kind, str(self._source.path)
        self._ledger.note_source(
            self._import_id, witnesses, kind=kind, path=path, source_topic=self._topic.name
        )
        writer = self._writers[is_dead, partition] = StreamImport(
            self._key(is_dead, partition),
            view,
            self._target,
            self._ledger,
            origin=self._name,
            # Where the source has groups, these know the attempts.
            groups=() if is_dead or self._groups else self._options.groups,
            clock=self._options.clock,
            refuse=self._refuse_late,
            is_unique=not witnesses,
            wanted=frozenset(each.identity for each in self._seen_ids if each.identity is not None),
        )
        return writer

    def _made(self, is_dead: bool) -> TopicExtent:
        return self._topics[is_dead].made(self._target.create_topic if is_dead else self._create)

    def _create(self, name: str) -> None:
        """Make the topic with the settings that it had, as far as this queue allows."""
        settings = dict(self._topic.settings)
        needed = {"partitions": self._topic.partitions}
        now_us = self._options.clock.now_us()
        window_ms = max((each.expires_at_us - now_us for each in self._seen_ids), default=0) // 1000 + 1
        if window_ms > TopicSettings().dedup_window_ms:
            needed["dedup_window_ms"] = window_ms
        early = {each: value for each, value in settings.items() if each not in _LATE}
        try:
            self._target.create_topic(name, **{**early, **needed})
        except InvalidSettings as error:
            if not settings:
                raise
            self._source.report(
                f"the settings of {self._topic.name} do not fit here, and are not imported: {error}"
            )
            self._target.create_topic(name, **needed)
        else:
            self._summary.settings = settings
            self._late = {each: value for each, value in settings.items() if each in _LATE}

    def _adopt(self) -> None:
        """Take over what the source knows besides its messages."""
        now_us = self._options.clock.now_us()
        seen = [each for each in self._seen_ids if each.expires_at_us > now_us]
        if self._options.is_dry:
            self._summary.groups = [own_name(group.name) for group in self._groups]
            self._summary.dedup_ids = len(seen)
            return
        keys = [self._key(False, number) for number in range(self._topic.partitions)]
        adopter = Adopter(self._target, self._ledger, self._source, self._name, keys)
        adopter.adopt_groups(self._groups, self._summary)
        if seen:
            places = self._writers[False, 0].places if (False, 0) in self._writers else {}
            self._summary.dedup_ids = adopter.adopt_ids(seen, places, now_us)


def _dead_letter_suffix(view: TopicExtent | None, name: str) -> str:
    """What follows the name of a topic in that of its dead letters. Raises InvalidRequest."""
    if view is None:
        return DEAD_LETTER_SUFFIX
    if view.dead_letters_of is not None:
        raise InvalidRequest(
            f"{name} is where dead letters go: name the topic they are of, {view.dead_letters_of}"
        )
    return view.settings.dead_letter_suffix
