"""Who should read which partition. Pure functions: the same members and topics give the same answer.

Each topic is shared out evenly among those who want it: nobody has two partitions of it more than
somebody else. `range` gives each a run of neighbouring partitions, the same numbers of every topic, so
that topics that are partitioned alike meet. The other strategies leave where it is whatever may stay.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Strategy = Literal["range", "sticky", "cooperative"]
STRATEGIES: tuple[Strategy, ...] = ("range", "sticky", "cooperative")


class TopicPartition(NamedTuple):
    """One partition of one topic: what a member reads."""

    topic: str
    partition: int


Assignment = dict[str, set[TopicPartition]]  # By member.
Wishes = Mapping[str, frozenset[str]]  # By member, in the order in which they joined: the topics it wants.


def assign(
    strategy: Strategy,
    wishes: Wishes,
    partitions: Mapping[str, range],
    owners: Mapping[TopicPartition, str],
) -> Assignment:
    """Share out the partitions of each topic among the members that want it.

    `owners` says who has a partition, or was to have it, up to now.
    """
    assignment: Assignment = {member: set() for member in wishes}
    readers = {
        topic: members
        for topic in sorted(partitions)
        if (members := [member for member, topics in wishes.items() if topic in topics])
    }
    if strategy == "range":
        for topic, members in readers.items():
            _assign_ranges(topic, partitions[topic], members, assignment)
        return assignment
    kept = {topic: _kept(topic, partitions[topic], members, owners) for topic, members in readers.items()}
    favoured = _favoured(kept, partitions)
    for topic, have in kept.items():
        _assign_sticky(topic, partitions[topic], have, favoured[topic], assignment)
    return assignment


def _assign_ranges(topic: str, numbers: range, members: Sequence[str], assignment: Assignment) -> None:
    share, extra = divmod(len(numbers), len(members))
    start = 0
    for index, member in enumerate(members):
        end = start + share + (index < extra)
        assignment[member].update(TopicPartition(topic, number) for number in numbers[start:end])
        start = end


def _kept(
    topic: str, numbers: range, members: Sequence[str], owners: Mapping[TopicPartition, str]
) -> dict[str, list[int]]:
    """The partitions of a topic that each of its readers has had up to now."""
    have: dict[str, list[int]] = {member: [] for member in members}
    for number in numbers:
        owner = owners.get(TopicPartition(topic, number))
        if owner in have:
            have[owner].append(number)
    return have


def _favoured(
    kept: Mapping[str, dict[str, list[int]]], partitions: Mapping[str, range]
) -> dict[str, set[str]]:
    """Who gets one partition more than the others, of each topic that does not divide evenly.

    First those who have so many already, so that they keep them; then the topics are balanced against
    each other, for the sake of many small ones: who has most hands one over to who has least.
    """
    loads: dict[str, int] = {}
    shares: dict[str, tuple[int, int]] = {}
    for topic, have in kept.items():
        shares[topic] = divmod(len(partitions[topic]), len(have))
        for member in have:
            loads[member] = loads.get(member, 0) + shares[topic][0]
    favoured: dict[str, set[str]] = {}
    for topic, have in kept.items():
        share, extra = shares[topic]
        # Sorting is stable: otherwise equal members come in the order in which they joined.
        order = sorted(have, key=lambda member: (len(have[member]) <= share, loads[member]))
        favoured[topic] = set(order[:extra])
        for member in favoured[topic]:
            loads[member] += 1
    _even_out(favoured, kept, shares, loads)
    return favoured


def _even_out(
    favoured: dict[str, set[str]],
    kept: Mapping[str, dict[str, list[int]]],
    shares: Mapping[str, tuple[int, int]],
    loads: dict[str, int],
) -> None:
    """Let members with less in total be favoured instead. Each step makes two loads more alike: it ends."""
    if not loads:
        return
    while max(loads.values()) - min(loads.values()) > 1:
        steps = (
            (is_kept, loads[poor] - loads[rich], topic, rich, poor)
            for topic, members in favoured.items()
            if members and len(members) < len(kept[topic])
            for poor in [min((m for m in kept[topic] if m not in members), key=loads.__getitem__)]
            for rich in members
            if loads[rich] - loads[poor] > 1
            for is_kept in [len(kept[topic][rich]) > shares[topic][0]]
        )
        # Best is one that takes nothing away from anybody who has it.
        step = min(steps, default=None)
        if step is None:
            return
        _, _, topic, rich, poor = step
        favoured[topic].remove(rich)
        favoured[topic].add(poor)
        loads[rich] -= 1
        loads[poor] += 1


def _assign_sticky(
    topic: str, numbers: range, have: Mapping[str, list[int]], favoured: set[str], assignment: Assignment
) -> None:
    """Everybody keeps what it has up to its share; the rest goes to those who have less."""
    share = len(numbers) // len(have)
    rooms = {member: share + (member in favoured) for member in have}
    taken = {number for member, had in have.items() for number in had[: rooms[member]]}
    left = (number for number in numbers if number not in taken)
    for member, had in have.items():
        mine = had[: rooms[member]]
        mine += [next(left) for _ in range(rooms[member] - len(mine))]
        assignment[member].update(TopicPartition(topic, number) for number in mine)
