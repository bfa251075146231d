"""SourceOptions: known by name, checked, and refused by name."""

import pickle
import time

import pytest

from quivermq.errors import InvalidRequest
from quivermq.reading.broker import BrokerReader
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.options import SourceOptions


def test_names_are_taken_in_any_case_and_sparks_own_are_let_through() -> None:
    options = SourceOptions.parse({"Subscribe": " orders ", "checkpointlocation": "x", "__source": "y"})
    assert options.text("subscribe") == "orders"
    assert options.text("startingOffsets") is None
    assert pickle.loads(pickle.dumps(options)) == options


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"`ofset`: there are path, data"):
        SourceOptions.parse({"ofset": "1"})
    with pytest.raises(InvalidRequest, match="did you mean `maxOffsetsPerTrigger`"):
        SourceOptions.parse({"maxoffsetpertrigger": "1"})


def test_flags_and_numbers() -> None:
    options = SourceOptions.parse(
        {"failondataloss": "FALSE", "minpartitions": "7", "includeheaders": "yes"}
    )
    assert options.flag("failOnDataLoss", default=True) is False
    assert options.number("minPartitions") == 7
    assert options.number("maxOffsetsPerTrigger") is None
    with pytest.raises(InvalidRequest, match="includeHeaders"):
        options.flag("includeHeaders", default=True)
    for wrong in ("0", "-1", "many", "1.5", "9" * 19, "9" * 5000, "²", "٣"):
        with pytest.raises(InvalidRequest, match="minPartitions"):
            SourceOptions.parse({"minpartitions": wrong}).number("minPartitions")


@pytest.mark.parametrize(
    ("text", "moment_us"),
    [
        ("1000", 1_000_000),
        ("-1000", -1_000_000),
        ("1970-01-01T00:00:01.5", 1_500_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-02", 86_400_000_000),
    ],
)
def test_moments(text: str, moment_us: int) -> None:
    assert SourceOptions.parse({"startingtimestamp": text}).moment_us("startingTimestamp") == moment_us


@pytest.mark.parametrize("text", ["yesterday", "1767225600000000", "9" * 5000, "٣"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(InvalidRequest, match="startingTimestamp"):
        SourceOptions.parse({"startingtimestamp": text}).moment_us("startingTimestamp")


def test_a_moment_without_a_zone_is_in_utc_wherever_this_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-9")
    time.tzset()
    try:
        moment_us = SourceOptions.parse({"startingtimestamp": "1970-01-02"}).moment_us("startingTimestamp")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert moment_us == 86_400_000_000


def test_whoever_says_no_place_is_told_of_tables_that_spark_forgets() -> None:
    with pytest.raises(InvalidRequest, match="use CREATE TEMPORARY VIEW"):
        SourceOptions.parse({"subscribe": "orders"}).reader()


def test_the_place() -> None:
    assert SourceOptions.parse({"data": "/a"}).reader() == DirectoryReader("/a")
    assert SourceOptions.parse({"path": "/a", "data": "/a"}).reader() == DirectoryReader("/a")
    server = SourceOptions.parse({"server": "http://h:1", "key": "k"}).reader()
    assert server == BrokerReader("http://h:1", "k")
    with pytest.raises(InvalidRequest, match="another name"):
        SourceOptions.parse({"path": "/a", "data": "/b"}).reader()
    with pytest.raises(InvalidRequest, match="`server` for a broker, not both"):
        SourceOptions.parse({"path": "/a", "server": "http://h:1"}).reader()
    with pytest.raises(InvalidRequest, match="say where the queue is"):
        SourceOptions.parse({"subscribe": "orders"}).reader()


def test_what_spark_says_of_a_table_is_no_option() -> None:
    told = {"provider": "quiver", "owner": "o", "comment": "c", "location": "file:/a", "path": "file:/a"}
    told |= {"subscribe": "orders", "option.subscribe": "orders", "my.own": "property"}
    options = SourceOptions.parse(told)
    assert options == SourceOptions({"path": "file:/a", "subscribe": "orders"}, makes_table=True)
    with pytest.raises(InvalidRequest, match="did you mean `subscribe`"):
        SourceOptions.parse(told | {"subscrib": "x", "option.subscrib": "x"})
    with pytest.raises(InvalidRequest, match="no option `provider`"):
        SourceOptions.parse({"provider": "quiver"})
