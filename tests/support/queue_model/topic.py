"""What was sent to a topic, where it has to be found, and where it may have gone."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from support.queue_model.group import GroupModel
from support.queue_model.messages import (
    DeadRecord,
    LaneRecord,
    Place,
    Priority,
    Sent,
    Shown,
    number_in,
)
from support.queue_model.states import Rules


@dataclass(slots=True)
class Remembered:
    """The first message with a deduplication id."""

    sent: Sent
    at: int
    is_certain: bool = True


class TopicModel:
    """A topic and its groups. A message is in a lane, delayed, or a dead letter, and nowhere twice."""

    def __init__(self, groups: Iterable[str], rules: Rules) -> None:
        self.rules = rules
        self.sent: dict[int, Sent] = {}
        self.log: dict[Place, Sent] = {}
        self.starts: dict[tuple[int, Priority], int] = {}
        self.ends: dict[tuple[int, Priority], int] = defaultdict(int)
        self.delayed: dict[str, Sent] = {}
        self.dead: dict[tuple[int, int], DeadRecord] = {}
        self.groups = {name: GroupModel(name, self.log, rules) for name in groups}
        self.is_redriving = False
        self._dedup: dict[str, Remembered] = {}
        self._promised: dict[Place, Sent] = {}
        self._originals: dict[int, Place] = {}
        self._endless: set[tuple[int, Priority]] = set()
        self._maybe: dict[int, Sent] = {}
        self._interrupted_at = 0
        self._died_at = 0
        self._maybe_cancelled: set[str] = set()

    def first_with(self, dedup_id: str | None, now: int) -> tuple[Sent | None, bool]:
        """The message that a new one with this id repeats, and whether that is certain."""
        remembered = self._dedup.get(dedup_id) if dedup_id else None
        if remembered is None:
            return None, True
        age = now - remembered.at
        if age <= self.rules.dedup_window:
            # On the last microsecond it may be either.
            return remembered.sent, remembered.is_certain and age < self.rules.dedup_window
        # A delayed message may count from when it was put or from when it was due.
        is_over = remembered.is_certain and remembered.sent.due_at is None
        return (None, True) if is_over else (remembered.sent, False)

    def was_put(self, sent: Sent, now: int, place: Place | None, scheduled_id: str | None) -> None:
        """The queue acknowledged a new message: it is there from now on."""
        self.sent[sent.number] = sent
        assert (place is None) == (sent.due_at is not None), f"a delay decides where it goes: {sent}"
        if place is None:
            assert scheduled_id is not None
            assert scheduled_id not in self.delayed, f"{scheduled_id} was given away already"
            self.delayed[scheduled_id] = sent
        else:
            assert place.offset >= self.ends[place.lane], f"{place} was given away already"
            self._promised[place] = sent
            self._originals[sent.number] = place
        self._remember(sent, now)

    def was_duplicate(self, first: Sent, place: Place | None, scheduled_id: str | None) -> None:
        """The queue said that it had the message already, and where."""
        # It may be gone meanwhile, but what was told once is told again.
        original = self._originals.get(first.number)
        assert place is None or original in (None, place), f"{place} is not {original}, of {first}"
        waiting = [known for known, sent in self.delayed.items() if sent.number == first.number]
        if waiting and place is None:
            assert scheduled_id in waiting, f"{scheduled_id} is not {first}"

    def interrupted_put(self, batch: list[Sent], now: int) -> None:
        """A crash came while these were put: each is where it belongs, or nowhere, whoever looks next."""
        for sent in batch:
            self.sent[sent.number] = sent
            first, is_certain = self.first_with(sent.dedup_id, now)
            if first is None or not is_certain:
                self._maybe[sent.number] = sent
        self._interrupted_at = now

    def _found(self, number: int) -> Sent:
        """An interrupted put did happen, and its deduplication id counts like any other."""
        sent = self._maybe.pop(number)
        self._remember(sent, self._interrupted_at)
        return sent

    def _remember(self, sent: Sent, now: int) -> None:
        if sent.dedup_id:
            self._dedup[sent.dedup_id] = Remembered(sent, now)

    def places_of(self, value: bytes) -> list[Place]:
        """Where a message is: in more than one place once it was redriven."""
        return [place for place, sent in self.log.items() if sent.value == value]

    def cancelled(self, scheduled_id: str) -> None:
        """The queue said that a delayed message will never come."""
        self._doubt(self.delayed.pop(scheduled_id))

    def is_late(self, scheduled_id: str, now: int) -> bool:
        """Whether a delayed message ought to be in its lane by now."""
        due_at = self.delayed[scheduled_id].due_at
        return due_at is not None and due_at <= now

    def interrupted_cancel(self, scheduled_id: str) -> None:
        self._maybe_cancelled.add(scheduled_id)

    def _doubt(self, sent: Sent) -> None:
        """The id of a message that is gone may or may not be free again."""
        if sent.dedup_id in self._dedup:
            self._dedup[sent.dedup_id].is_certain = False

    def show(self, shown: Shown, now: int, *, is_settled: bool) -> None:
        """Hold everything that can be seen against what was promised.

        `is_settled` says that the queue had the time to do what is due, so that nothing may be late.
        """
        redriven = self._see_redriven(shown)
        arrived = [self._see_record(record, redriven, now) for record in shown.records]
        assert not self._promised, f"acknowledged, but not in the log: {self._promised}"
        assert not +redriven, f"neither among the dead letters nor sent back: {redriven}"
        self._check_due_order(arrived)
        self._see_delayed(shown, {sent.number for _, sent in arrived}, now, is_settled=is_settled)
        self._check_batches(arrived)
        self._maybe.clear()
        self._see_dead(shown, now, is_settled=is_settled)
        self._see_starts(shown, now)
        self._died_at = 0

    def _see_redriven(self, shown: Shown) -> Counter[int]:
        there = {record.name for record in shown.dead}
        gone = [name for name in self.dead if name not in there]
        assert self.is_redriving or not gone, f"dead letters are gone: {gone}"
        return Counter(number_in(self.dead.pop(name).value) for name in gone)

    def _see_record(self, record: LaneRecord, redriven: Counter[int], now: int) -> tuple[Place, Sent]:
        place, number = record.place, number_in(record.value)
        if place.lane in self._endless:
            self._endless.remove(place.lane)
            self.ends[place.lane] = place.offset
        assert place.offset == self.ends[place.lane], f"{place} does not follow on the one before"
        sent = self.sent[number]
        sent.check(record.value, record.key, record.headers)
        if place in self._promised:
            assert self._promised.pop(place) == sent, f"{place} was promised to another"
        elif number in self._maybe and sent.due_at is None:
            self._found(number)
        elif redriven[number]:
            redriven.subtract([number])
            sent = self._as_redriven(sent)
        else:
            self._fall_due(sent, now)
        assert sent.priority == place.priority
        assert sent.partition in (None, place.partition)
        self.log[place] = sent
        self.ends[place.lane] += 1
        return place, sent

    def _as_redriven(self, sent: Sent) -> Sent:
        """A dead letter that goes back has had its time to live already, and starts anew without one."""
        return Sent(sent.number, sent.key, sent.headers, sent.priority, sent.partition)

    def _fall_due(self, sent: Sent, now: int) -> None:
        scheduled_id = next((name for name, delayed in self.delayed.items() if delayed == sent), None)
        is_maybe = sent.number in self._maybe
        assert scheduled_id or is_maybe, f"nobody sent this, or it is there twice: {sent}"
        assert sent.due_at is not None
        # Before a crash it may have been later than it is now.
        assert sent.due_at <= max(now, self._died_at), f"too early: {sent}"
        if scheduled_id:
            del self.delayed[scheduled_id]
        else:
            self._found(sent.number)

    def _check_due_order(self, arrived: list[tuple[Place, Sent]]) -> None:
        """Delayed messages that arrived together did so in the order in which they were due."""
        latest: dict[tuple[int, Priority], int] = {}
        for place, sent in arrived:
            if sent.due_at is not None:
                assert latest.get(place.lane, 0) <= sent.due_at, f"overtaken by one due later: {sent}"
                latest[place.lane] = sent.due_at

    def _see_delayed(self, shown: Shown, arrived: set[int], now: int, *, is_settled: bool) -> None:
        for scheduled_id, number in shown.scheduled.items():
            assert number not in arrived, f"{number} was appended, and is still waiting"
            if number in self._maybe:
                self.delayed[scheduled_id] = self._found(number)
        missing = set(self.delayed) - set(shown.scheduled)
        assert missing <= self._maybe_cancelled, f"delayed messages are gone: {missing}"
        for scheduled_id in missing:
            self._doubt(self.delayed.pop(scheduled_id))
        self._maybe_cancelled.clear()
        assert {name: sent.number for name, sent in self.delayed.items()} == shown.scheduled
        late = [sent for scheduled_id, sent in self.delayed.items() if self.is_late(scheduled_id, now)]
        assert not (is_settled and late), f"due, but still waiting: {late}"

    def _check_batches(self, arrived: list[tuple[Place, Sent]]) -> None:
        """Of a batch for one lane that a crash interrupted, nothing may be missing if anything is there.

        Only where every message says where it goes: elsewhere nobody knows which of them share a lane.
        """
        put = [sent for _, sent in arrived if sent.batch and sent.due_at is None]
        there = {(sent.batch, sent.partition, sent.priority) for sent in put}
        for sent in self._maybe.values():
            is_known = sent.partition is not None and sent.due_at is None and sent.dedup_id is None
            if is_known:
                assert (sent.batch, sent.partition, sent.priority) not in there, (
                    f"a part of a batch: {sent}"
                )

    def _see_dead(self, shown: Shown, now: int, *, is_settled: bool) -> None:
        for record in shown.dead:
            if record.name not in self.dead:
                # Before a crash it may have been later than it is now.
                self.groups[record.group].died(record, max(now, self._died_at))
                self.dead[record.name] = record
        if is_settled:
            for group in self.groups.values():
                group.nothing_else_died(now)

    def _see_starts(self, shown: Shown, now: int) -> None:
        self.starts = shown.starts
        gone = [place for place in self.log if place.offset < shown.starts.get(place.lane, 0)]
        assert not gone or any(group.may_exist for group in self.groups.values()), (
            "removed before anybody came"
        )
        for group in self.groups.values():
            group.forget(gone, now)
        for place in gone:
            del self.log[place]

    def opened_again(self, then: int, now: int) -> None:
        """The queue was closed or died at `then`, and reads its clock anew. What it knows by time it
        may see in another light."""
        self._died_at = then
        if now == then:
            return
        for remembered in self._dedup.values():
            remembered.is_certain = False
        if now < then:
            for group in self.groups.values():
                group.time_went_back(then)

    def lost_certainty(self, shown: Shown) -> None:
        """The power went, and with it what was not synced: take what is left, if it is ours."""
        known = dict(self.log)
        waited = {sent.number for sent in self.delayed.values()}
        self.log.clear()
        # Where nothing is left, nobody knows how much there was.
        self._endless |= set(self.ends)
        self.ends.clear()
        self._promised.clear()
        self._originals.clear()
        for record in shown.records:
            sent = self.sent[number_in(record.value)]
            sent.check(record.value, record.key, record.headers)
            if self.is_redriving and record.place not in known and sent.number not in waited:
                sent = self._as_redriven(sent)
            before = known.get(record.place, sent)
            # What was lost may have made room, before anybody looked, for a delayed message that is due.
            self.log[record.place] = before if before.number == sent.number else sent
            self.ends[record.place.lane] = record.place.offset + 1
            self._endless.discard(record.place.lane)
        self.delayed = {name: self.sent[number] for name, number in shown.scheduled.items()}
        self.dead = {record.name: record for record in shown.dead}
        for sent in self._maybe.values():
            self._remember(sent, self._interrupted_at)
        self._maybe.clear()
        self._maybe_cancelled.clear()
        for remembered in self._dedup.values():
            remembered.is_certain = False
        for group in self.groups.values():
            group.lost_certainty()
