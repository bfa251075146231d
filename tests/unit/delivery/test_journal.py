"""The delivery journal: what each change means, and that a snapshot means the same."""

from hypothesis import given
from hypothesis import strategies as st

from quivermq.delivery import journal
from quivermq.delivery.journal import Replay
from quivermq.delivery.state import DeliveryTimes, LaneState, Wait
from quivermq.model.deliveries import Lease
from quivermq.topic.offsets import runs
from quivermq.topic.records import unpack

Told = tuple[int, dict[int, tuple[int, int, int]], dict[int, Wait]]


def replayed(*records: bytes) -> Replay:
    replay = Replay([LaneState() for _ in range(3)])
    for change in unpack(b"".join(records)):
        replay.apply(change)
    return replay


def told(state: LaneState) -> Told:
    leases = {o: (lease.attempt, lease.deadline, lease.token) for o, lease in state.leases.items()}
    return state.next, leases, state.waiting


def told_of_delivery(state: LaneState) -> object:
    return {o: (lease.holder, lease.since) for o, lease in state.leases.items()}, state.times


LEASE = Lease(1, 100, 77)


def test_messages_are_granted_and_finished() -> None:
    state = replayed(journal.granted(1, 5, LEASE, [0, 2, 3, 5]), journal.finished(1, [1, 2, 4, 5])).lanes[1]
    assert told(state) == (5, {0: (1, 100, 77), 3: (1, 100, 77)}, {})


def test_the_short_forms_are_the_same_bytes() -> None:
    lease = Lease(1, 100, 77, since=40)
    assert journal.granted_one(2, 8, 77, 100, 40, 3, 7) == journal.granted(2, 8, lease, [7, 8], 3)
    assert journal.finished_one(2, 7) == journal.finished(2, [7, 8])


def held(replay: Replay, offset: int) -> tuple[str | None, int]:
    lease = replay.lanes[1].leases[offset]
    return lease.holder, lease.since


def test_who_has_a_message_and_since_when_is_told_by_number() -> None:
    records = [journal.holder_named(1, "blue"), journal.holder_named(2, "grün")]
    records.append(journal.granted(1, 1, Lease(1, 100, 7, since=40), [0, 1], 2))
    records.append(journal.granted(1, 3, Lease(1, 100, 8, since=50), [1, 3], 1))
    replay = replayed(*records, journal.extended(1, Lease(1, 900, 8), [2, 3]))
    assert [held(replay, offset) for offset in range(3)] == [("grün", 40), ("blue", 50), ("blue", 50)]
    assert replay.lanes[1].leases[2].deadline == 900


def test_one_message_is_replayed_as_many_are() -> None:
    replay = Replay([LaneState() for _ in range(3)])
    replay.apply_record(journal.holder_named(4, "blue"))
    replay.apply_record(journal.granted_one(1, 1, 77, 100, 40, 4, 0))
    assert held(replay, 0) == ("blue", 40)
    # That a lease ended by itself is told by the next one alone.
    again = Lease(2, 300, 78, since=200)
    replay.apply_record(journal.granted(1, 1, again, [0, 1], 4))
    assert replay.lanes[1].times == {0: (40, 40)}
    replay.apply_record(journal.waiting(1, Wait(2, 500), [0, 1]))
    assert replay.lanes[1].times == {0: (40, 200)}


def test_a_name_that_is_too_long_is_cut() -> None:
    replay = replayed(
        journal.holder_named(1, "é" * 100_000), journal.granted(1, 1, Lease(1, 100, 7, since=40), [0, 1], 1)
    )
    name, _ = held(replay, 0)
    assert (name or "").startswith("é" * 500)
    assert len(name or "") < 600


def test_every_lane_is_on_its_own() -> None:
    replay = replayed(journal.granted(0, 1, LEASE, [0, 1]), journal.moved(2, 7))
    assert [state.next for state in replay.lanes] == [1, 0, 7]


def test_a_message_that_waits_is_not_leased_and_one_that_is_leased_does_not_wait() -> None:
    records = [journal.granted(1, 2, LEASE, [0, 2]), journal.waiting(1, Wait(1, 50), [0, 1])]
    assert told(replayed(*records).lanes[1]) == (2, {1: (1, 100, 77)}, {0: Wait(1, 50)})
    records.append(journal.granted(1, 2, Lease(2, 200, 78), [0, 1]))
    assert told(replayed(*records).lanes[1]) == (2, {0: (2, 200, 78), 1: (1, 100, 77)}, {})


def test_a_lease_is_extended_for_some() -> None:
    records = [journal.granted(1, 2, LEASE, [0, 2]), journal.extended(1, Lease(1, 900, 77), [1, 2])]
    assert told(replayed(*records).lanes[1])[1] == {0: (1, 100, 77), 1: (1, 900, 77)}


def test_the_next_message_moves_only_forwards_but_for_a_seek() -> None:
    moved = [journal.moved(1, 5), journal.moved(1, 3), journal.granted(1, 2, LEASE, [1, 2])]
    assert replayed(*moved).lanes[1].next == 5
    assert told(replayed(*moved, journal.sought(1, 2)).lanes[1]) == (2, {}, {})


def test_a_cut_takes_what_lies_behind_it() -> None:
    records = [journal.granted(1, 5, LEASE, [0, 5]), journal.waiting(1, Wait(1, 0), [4, 5])]
    assert told(replayed(*records, journal.cut(1, 2)).lanes[1]) == (
        2,
        {0: (1, 100, 77), 1: (1, 100, 77)},
        {},
    )


def test_a_transfer_is_unfinished_until_all_its_messages_are() -> None:
    begun = journal.dead_lettering(1, 77, (3, 12), [0, 2, 4, 5])
    [intent] = replayed(begun).intents
    assert (intent.lane, intent.transfer, intent.target_partition, intent.target_end) == (
        1,
        77,
        3,
        12,
    )
    assert intent.offsets == {0, 1, 4}
    [intent] = replayed(begun, journal.finished(1, [0, 2]), journal.finished(0, [4, 5])).intents
    assert intent.offsets == {4}
    assert replayed(begun, journal.finished(1, [0, 5])).intents == []


@st.composite
def states(draw: st.DrawFn) -> list[LaneState]:
    lanes = []
    for _ in range(3):
        state = LaneState()
        state.next = draw(st.integers(0, 10_000))
        pool = list(range(state.next))
        free = draw(st.permutations(pool)) if len(pool) < 50 else pool
        for token in range(draw(st.integers(0, 3))):
            count = draw(st.integers(0, 20))
            taken, free = free[:count], free[count:]
            attempt, since = draw(st.integers(1, 9)), draw(st.integers(1, 9))
            deadline = draw(st.integers(0, 2**60))
            holder = draw(st.sampled_from([None, "blue", "grün"]))
            state.grant(Lease(attempt, deadline, token, holder, since), taken)
            state.times.update(dict.fromkeys(taken[:2], DeliveryTimes(since - 1, since)))
        for offset in free[: draw(st.integers(0, 20))]:
            state.waiting[offset] = Wait(draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        lanes.append(state)
    return lanes


@given(states())
def test_a_snapshot_brings_the_same_state_about(lanes: list[LaneState]) -> None:
    replay = replayed(*journal.snapshot(lanes))
    assert [told(state) for state in replay.lanes] == [told(state) for state in lanes]
    assert list(map(told_of_delivery, replay.lanes)) == list(map(told_of_delivery, lanes))


def test_a_snapshot_of_many_runs_is_in_small_changes() -> None:
    state = LaneState()
    state.next = 20_000
    state.grant(LEASE, range(0, 10_000, 2))
    for offset in range(10_000, 20_000, 2):
        state.waiting[offset] = Wait(1, 5)
    changes = list(journal.snapshot([state]))
    assert max(map(len, changes)) < 10_000
    assert told(replayed(*changes).lanes[0]) == told(state)
    assert len(runs(state.leases)) == 10_000


def test_a_snapshot_tells_a_seek_to_the_beginning_from_a_lane_where_nobody_was() -> None:
    lanes = [LaneState() for _ in range(3)]
    lanes[1].seek(0)
    again = replayed(*journal.snapshot(lanes))
    assert [state.has_begun for state in again.lanes] == [False, True, False]
