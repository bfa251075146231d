"""Where reading begins and ends."""

import pytest

from quivermq.errors import InvalidRequest
from quivermq.model.lanes import Lane
from quivermq.model.operations import LaneBounds
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.snapshot import Positions

HELD = LaneBounds(10, 15, 20, 100)
HIGH, NORMAL, LOW = (Lane("t", 0, priority) for priority in ("high", "normal", "low"))
OTHER = Lane("t", 1, "normal")


def starting(text: str | None = None, **options: str) -> Positions:
    given = options if text is None else {"startingoffsets": text, **options}
    return Positions.of(SourceOptions.parse(given), "starting", default="earliest", unnamed="earliest")


def resolved(positions: Positions, lane: Lane) -> int:
    # Nothing is asked of the place, unless there is a time to find.
    return positions.resolve(DirectoryReader("/nowhere"), lane, HELD)


def test_words() -> None:
    assert resolved(starting(), NORMAL) == 10
    assert resolved(starting("Latest"), NORMAL) == 20
    assert starting().is_word(NORMAL)


def test_offsets_of_partitions_and_priorities() -> None:
    plain = starting('{"t": {"0": 12, "1": -1}}')
    assert [resolved(plain, lane) for lane in (HIGH, NORMAL, LOW, OTHER)] == [10, 12, 10, 20]
    assert not plain.is_word(NORMAL)
    assert plain.is_word(HIGH)
    by_lane = starting('{"t": {"0": {"high": 13, "low": -1}}}')
    assert [resolved(by_lane, lane) for lane in (HIGH, NORMAL, LOW, OTHER)] == [13, 10, 20, 10]
    all_lanes = starting('{"t": {"0": -1}}')
    assert [resolved(all_lanes, lane) for lane in (HIGH, NORMAL, LOW)] == [20, 20, 20]


def test_a_lane_must_be_one_that_is_read() -> None:
    positions = starting('{"t": {"0": {"high": 1}}}')
    positions.check_known([NORMAL])
    with pytest.raises(InvalidRequest, match="partition 0 of t"):
        positions.check_known([OTHER])
    by_moment = starting(startingoffsetsbytimestamp='{"t": {"0": 1000}}')
    by_moment.check_known([NORMAL])
    with pytest.raises(InvalidRequest, match="`startingOffsetsByTimestamp` names partition 0 of t"):
        by_moment.check_known([OTHER])


def test_what_makes_no_sense_is_refused() -> None:
    for text in ("latest", '{"t": {"0": -1}}'):
        with pytest.raises(InvalidRequest, match="cannot be latest"):
            starting(text).refuse("latest", "why")
    starting("earliest").refuse("latest", "why")


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "[]",
        '{"t": 1}',
        '{"t": {"x": 1}}',
        '{"t": {"²": 1}}',
        '{"t": {"' + "9" * 5000 + '": 1}}',
        '{"t": {"0": -3}}',
        '{"t": {"0": "1"}}',
        '{"t": {"0": true}}',
        '{"t": {"0": {"urgent": 1}}}',
    ],
)
def test_wrong_offsets_name_their_option(text: str) -> None:
    with pytest.raises(InvalidRequest, match="startingOffsets"):
        starting(text)


class Growing(DirectoryReader):
    """Has more messages than its bounds said, whenever somebody looks for a time."""

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        return HELD.end + 1


def test_a_time_is_found_in_what_was_seen() -> None:
    assert starting(startingtimestamp="5").resolve(Growing("/nowhere"), NORMAL, HELD) == HELD.end


def test_only_a_start_fails_behind_the_last_message() -> None:
    options = SourceOptions.parse({"endingtimestamp": "5", "startingoffsetsbytimestampstrategy": "error"})
    ending = Positions.of(options, "ending", default="latest", unnamed="latest")
    assert ending.resolve(Growing("/nowhere"), NORMAL, HELD) == HELD.end
    late = starting(startingtimestamp="5", startingoffsetsbytimestampstrategy="error")
    with pytest.raises(InvalidRequest, match="as young as the option `startingTimestamp`"):
        late.resolve(Growing("/nowhere"), NORMAL, HELD)
    # Where there is no message at all, none is too old.
    assert late.resolve(Growing("/nowhere"), NORMAL, LaneBounds(10, 10, 10, 0)) == 10


def test_an_offset_or_a_time() -> None:
    with pytest.raises(InvalidRequest, match="give one of `startingOffsets`, `startingTimestamp`"):
        starting("earliest", startingtimestamp="5")
    assert starting(startingtimestamp="5").moment_us == 5000


def test_a_moment_for_each_partition() -> None:
    given = '{"orders": {"0": 1000, "1": {"high": 7}}}'
    positions = starting(startingoffsetsbytimestamp=given)
    assert positions.moment_of(Lane("orders", 0, "normal")) == 1_000_000
    assert positions.moment_of(Lane("orders", 0, "low")) == 1_000_000
    assert positions.moment_of(Lane("orders", 1, "high")) == 7000
    assert positions.is_word(Lane("orders", 1, "normal"))
    for wrong in ("earliest", '{"orders": {"0": -1}}', '{"orders": {"0": "x"}}'):
        with pytest.raises(InvalidRequest, match="startingOffsetsByTimestamp"):
            starting(startingoffsetsbytimestamp=wrong)
    with pytest.raises(InvalidRequest, match="error or latest"):
        starting(startingtimestamp="5", startingoffsetsbytimestampstrategy="first")
