from pathlib import Path, PurePath
from random import Random

import pytest

from quivermq.chaos import Violation
from quivermq.chaos.cases.damage import SampleQueue, byte_ranges, check_damage, kind_of
from quivermq.chaos.cases.facts import Fact, Facts, Lost, compare
from quivermq.chaos.cases.simulated_disk import DATA
from quivermq.errors import Corruption
from quivermq.frame import encode


@pytest.fixture(scope="module")
def sample() -> SampleQueue:
    return SampleQueue("1")


def test_every_kind_of_file_is_in_the_sample(sample: SampleQueue) -> None:
    kinds = {kind_of(path.relative_to(DATA)) for path in sample.disk.files()}
    assert kinds == {
        *("lane", "lane index", "removals", "delayed messages", "delay journal", "seen before"),
        *("index of state", "delivery journal", "topic.json", "keys.json", "lock"),
    }


def test_a_file_that_nobody_knows_is_told() -> None:
    with pytest.raises(Violation, match="nobody knows: topics/t/p0/strange"):
        kind_of(PurePath("topics/t/p0/strange"))


def test_the_classes_of_a_frame_are_all_of_its_header() -> None:
    frame = bytes(encode([b"a"], timestamp=1))
    found = [
        place
        for place in byte_ranges(PurePath("0.log"), frame)
        if "body" not in place.name or "CRC" in place.name
    ]
    covered = [
        position for place in found for position in range(place.position, place.position + place.length)
    ]
    assert covered == list(range(80))


def test_what_changes_without_a_word_is_noticed() -> None:
    messages = ((0, b"a"), (1, b"b"), (2, b"c"))
    before = {("t", "settings"): 3, ("t", "lane", "0", "normal"): messages}
    with pytest.raises(Violation, match="settings"):
        compare(before, {**before, ("t", "settings"): 4}, "here")
    with pytest.raises(Violation, match="2 of 3 messages"):
        compare(before, {**before, ("t", "lane", "0", "normal"): messages[:2]}, "here")


def test_what_is_told_may_be_lost_and_no_more() -> None:
    messages = ((0, b"a"), (1, b"b"), (2, b"c"))
    lane: Fact = ("t", "lane", "0", "normal")
    before: Facts = {lane: messages}
    damage = Corruption("rot", path=Path("0.log"), position=0, offsets=(1, 2))
    assert compare(before, {lane: Lost(damage, messages[:1], is_partial=True)}, "here") == [lane]
    assert compare(before, {lane: messages[:2]}, "here", {lane: [(2, 3)]}) == [lane]
    with pytest.raises(Violation, match="before the damage"):
        compare(before, {lane: Lost(damage, (), is_partial=True)}, "here")
    with pytest.raises(Violation, match="never put"):
        compare(before, {lane: Lost(damage, (*messages[:1], (1, b"x")), is_partial=True)}, "here")


def test_a_damage_of_each_kind_is_done_and_reported(sample: SampleQueue) -> None:
    kinds = {kind_of(damage.path.relative_to(DATA)): damage for damage in sample.damages(Random(2))}
    assert len(kinds) == 10
    for damage in kinds.values():
        assert damage.applied_to(sample.disk).files() != sample.disk.files()
        check_damage(sample, damage)
