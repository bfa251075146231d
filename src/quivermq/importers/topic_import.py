"""One topic of a source on its way into one topic here: messages, dead letters, groups, ids."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from quivermq.clock import Clock
from quivermq.delivery.adoption import Progress
from quivermq.errors import Conflict, TopicExists
from quivermq.importers.encoding import item_bytes, stored_bytes
from quivermq.importers.group_progress import Finished, messages_of, progress_in
from quivermq.importers.ledger import Ledger
from quivermq.importers.ledger_book import LedgerBook
from quivermq.importers.model import Item, SeenId, Source, SourceGroup, SourceTopic
from quivermq.importers.naming import own_name
from quivermq.importers.stream import Place, StreamKey, StreamWriter
from quivermq.importers.summary import TopicSummary
from quivermq.importers.target import Lane, Target, View
from quivermq.topic.adopted_ids import ADOPTED_MAX, AdoptedId
from quivermq.topic.names import dead_letter_name
from quivermq.topic.settings import TopicSettings

# What a message takes in its source besides its value, where the reader does not say.
_ITEM_BYTES = 64
_TOLD_BYTES = 1024 * 1024


class Options(NamedTuple):
    """What the caller wants."""

    groups: tuple[str, ...]
    wants_all: bool
    is_dry: bool
    progress: Callable[[int], None]
    clock: Clock


class TopicImport:
    """One run for one topic."""

    def __init__(
        self, source: Source, topic: SourceTopic, name: str, target: Target, options: Options
    ) -> None:
        self._source = source
        self._topic = topic
        self._name = name
        self._target = target
        self._options = options
        self._summary = TopicSummary(topic.name, name)
        # By whether they are dead letters: the topic as it is, and who writes each partition.
        self._views: dict[bool, View | None] = {}
        self._writers: dict[tuple[bool, int], StreamWriter] = {}

    def check(self) -> None:
        """Read everything once, and write nothing: whatever could not be imported becomes a finding."""
        self._look()
        for is_dead, items in self._items():
            for item in items:
                if not self._is_left_out(item):
                    self._size(item, is_dead)
        _ = self._topic.seen_ids

    def run(self, book: LedgerBook) -> TopicSummary:
        """Import the topic."""
        self._ledger = Ledger(self._target, book, self._name, self._options.clock)
        self._import_id = self._known_import()
        self._seen_ids = list(self._topic.seen_ids)
        self._look()
        self._summary = TopicSummary(self._topic.name, self._name)
        for is_dead, items in self._items():
            for item in items:
                self._take(item, is_dead)
        for writer in self._writers.values():
            writer.flush()
        self._adopt_groups()
        self._adopt_ids()
        for writer in self._writers.values():
            writer.finish()
        return self._summary

    def _items(self) -> Iterator[tuple[bool, Iterator[Item]]]:
        """The live ones, and the dead letters."""
        self._groups = list(self._topic.groups)
        self._finished = Finished(self._groups, self._topic.partitions) if self._groups else None
        self._now_us = self._options.clock.now_us()
        yield False, self._watched(self._topic.items())
        yield True, self._watched(self._topic.dead_letters())

    def _watched(self, items: Iterator[Item]) -> Iterator[Item]:
        """The same, telling now and then how far it came."""
        done = 0
        for item in items:
            done += item.size_bytes or len(item.value) + _ITEM_BYTES
            if done >= _TOLD_BYTES:
                self._options.progress(done)
                done = 0
            yield item
        self._options.progress(done)

    def _look(self) -> None:
        names = {False: self._name, True: dead_letter_name(self._name)}
        self._views = {is_dead: self._target.look(name) for is_dead, name in names.items()}
        usual = TopicSettings()
        self._limits_bytes = {
            is_dead: (usual if view is None else view.settings).message_bytes_max
            for is_dead, view in self._views.items()
        }

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
        if writer is None and not self._options.is_dry and self._views[is_dead] is not None:
            writer = self._open_writer(is_dead, item.partition)
        summary = self._summary
        if writer.has(item) if writer is not None else self._was_noted(item, is_dead):
            # Asked first: what is there has to be noted, whatever became of it in the source.
            summary.already_there += 1
            return
        if self._is_left_out(item) or (size_bytes := self._size(item, is_dead)) is None:
            return
        if is_dead:
            summary.dead_letters += 1
        else:
            summary.imported += 1
            summary.retried += item.attempts > 0
            summary.scheduled += (item.deliver_at_us or 0) > self._now_us
        if not self._options.is_dry:
            (writer or self._open_writer(is_dead, item.partition)).add(item, size_bytes)

    def _was_noted(self, item: Item, is_dead: bool) -> bool:
        """Whether the ledger knows of it: all that a dry run can tell."""
        view = self._views[is_dead]
        if view is None:
            return False
        stream = str(self._key(is_dead, item.partition))
        return item.identity in self._ledger.state(stream, view.created_us).done

    def _is_left_out(self, item: Item) -> bool:
        if self._options.wants_all:
            return False
        if item.is_consumed or (self._finished is not None and item.dead is None and self._finished(item)):
            self._summary.consumed += 1
            return True
        if item.expires_at_us is not None and item.dead is None and item.expires_at_us <= self._now_us:
            self._summary.expired += 1
            return True
        return False

    def _size(self, item: Item, is_dead: bool) -> int | None:
        """How much of a chunk an item takes; None when the topic does not let it in, which is told."""
        framed_bytes, limit = item_bytes(item), self._limits_bytes[is_dead]
        if framed_bytes <= limit or (size := stored_bytes(item)) <= limit:
            return framed_bytes
        problem = (
            f"it has {size} bytes, and {self._name} lets in {limit}:"
            " make the topic with a larger message_bytes_max and import again"
        )
        self._refuse(item, problem)
        return None

    def _refuse(self, item: Item, why: str) -> None:
        self._summary.unstorable += 1
        problem = f"message {item.id} of {self._topic.name} cannot be stored: {why}"
        self._source.findings.add(self._source.path, None, problem)

    def _refuse_late(self, item: Item, why: str) -> None:
        """One that was counted as imported already."""
        self._refuse(item, why)
        if item.dead is not None:
            self._summary.dead_letters -= 1
        else:
            self._summary.imported -= 1
            self._summary.retried -= item.attempts > 0

    def _key(self, is_dead: bool, partition: int) -> StreamKey:
        topic = dead_letter_name(self._name) if is_dead else self._name
        return StreamKey(self._import_id, is_dead, partition, topic)

    def _open_writer(self, is_dead: bool, partition: int) -> StreamWriter:
        if not self._writers:
            self._ledger.begin()
            self._import_id = self._known_import()
        # Dead letters can go back only to a topic that is there.
        view = self._made(False)
        view = self._made(True) if is_dead else view
        witnesses = self._topic.witnesses
        source = self._source
        self._ledger.note_source(
            self._import_id, source.kind, str(source.path), self._topic.name, witnesses
        )
        writer = self._writers[is_dead, partition] = StreamWriter(
            self._key(is_dead, partition),
            view,
            self._target,
            self._ledger,
            origin=self._name,
            # Where the source has groups, these tell the attempts.
            groups=() if is_dead or self._groups else self._options.groups,
            clock=self._options.clock,
            refuse=self._refuse_late,
            is_unique=not witnesses,
            wanted=frozenset(each.identity for each in self._seen_ids if each.identity is not None),
        )
        return writer

    def _made(self, is_dead: bool) -> View:
        """The topic, which is created when it is new."""
        view = self._views[is_dead]
        if view is not None:
            return view
        name = dead_letter_name(self._name) if is_dead else self._name
        settings = {} if is_dead else self._new_settings()
        try:
            self._target.create(name, **settings)
        except TopicExists:
            raise Conflict(f"somebody else has just made {name}: import again") from None
        view = self._views[is_dead] = self._target.look(name)
        assert view is not None, "it was made"
        self._limits_bytes[is_dead] = view.settings.message_bytes_max
        return view

    def _new_settings(self) -> dict[str, int]:
        settings = {"partitions": self._topic.partitions}
        now_us = self._options.clock.now_us()
        window_ms = max((each.expires_at_us - now_us for each in self._seen_ids), default=0) // 1000 + 1
        if window_ms > TopicSettings().dedup_window_ms:
            settings["dedup_window_ms"] = window_ms
        return settings

    # What the source knows besides.

    def _adopt_groups(self) -> None:
        if self._options.is_dry:
            self._summary.groups = [own_name(group.name) for group in self._groups]
            return
        view = self._target.look(self._name) if self._groups else None
        if view is not None:
            for group in self._groups:
                self._adopt_group(group, own_name(group.name), view)

    def _adopt_group(self, group: SourceGroup, name: str, view: View) -> None:
        partitions = range(self._topic.partitions)
        producers = {self._key(False, number).producer_id: number for number in partitions}
        is_left = False
        for lane, offsets in view.lanes.items():
            messages = messages_of(self._target, self._name, lane, offsets, producers)
            try:
                is_left |= not self._put_group(
                    name, lane, view, progress_in(messages, group, offsets.start)
                )
            except ValueError as error:
                problem = f"the group {group.name} begins anew in {self._name}: {error}"
                self._source.findings.add(self._source.path, None, problem)
                is_left = True
        (self._summary.groups_left if is_left else self._summary.groups).append(name)

    def _put_group(self, group: str, lane: Lane, view: View, progress: Progress) -> bool:
        """Let a group go on there, unless it has been elsewhere since it was last put somewhere."""
        stream = str(self._key(False, 0))
        known = self._ledger.state(stream, view.created_us).adopted.get((group, lane))
        if progress == known:
            return True
        self._ledger.begin()
        if not self._target.adopt(self._name, group, lane, progress, known):
            return False
        self._ledger.note_adopted(stream, view.created_us, group, lane, progress)
        return True

    def _adopt_ids(self) -> None:
        now_us = self._options.clock.now_us()
        seen = [each for each in self._seen_ids if each.expires_at_us > now_us]
        if self._options.is_dry or not seen:
            self._summary.dedup_ids = len(seen)
            return
        view = self._made(False)
        if max(each.expires_at_us for each in seen) > now_us + view.settings.dedup_window_ms * 1000:
            problem = (
                f"deduplication ids are remembered for longer than {self._name} does:"
                f" {view.settings.dedup_window_ms} ms"
            )
            self._source.findings.add(self._source.path, None, problem, is_damage=False)
        places = self._writers[False, 0].places if (False, 0) in self._writers else {}
        adopted = [_adopted_id(each, places) for each in seen]
        for start in range(0, len(adopted), ADOPTED_MAX):
            self._summary.dedup_ids += self._target.adopt_ids(
                self._name, adopted[start : start + ADOPTED_MAX]
            )


def _adopted_id(seen: SeenId, places: dict[int, Place]) -> AdoptedId:
    place = None if seen.identity is None else places.get(seen.identity)
    if place is None:
        return AdoptedId(seen.dedup_id, seen.expires_at_us)
    return AdoptedId(seen.dedup_id, seen.expires_at_us, *place.lane, place.offset)
