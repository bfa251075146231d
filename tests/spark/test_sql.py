import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.command_inside import quiver

import quivermq
from quivermq.errors import InvalidRequest, TopicNotFound
from quivermq.spark import sql


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        mq.create_topic("orders", partitions=2)
        orders = mq.queue("orders")
        for number in range(6):
            orders.put(json.dumps({"amount": number}).encode(), key=b"k%d" % (number % 2))
        orders.put(b"\xff\xfe", priority="high")
        mq.queue("orders.eu-1").put(b"tea")
        mq.create_topic("Empty")
    return path


def rows(frame: object) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.collect()]  # type: ignore[attr-defined]


def test_topics_are_tables(spark: SparkSession, data: Path) -> None:
    statement = """
        SELECT key, count(*), sum(cast(get_json_object(value, '$.amount') AS int)) FROM orders
        WHERE priority = 'normal' GROUP BY key ORDER BY key
    """
    assert rows(sql(statement, path=str(data), spark=spark)) == [("k0", 3, 6), ("k1", 3, 9)]


def test_a_name_may_have_dots_and_dashes(spark: SparkSession, data: Path) -> None:
    for name in ("orders.eu-1", "`orders.eu-1`"):
        assert rows(sql(f"SELECT value FROM {name}", path=str(data), spark=spark)) == [("tea",)]
    joined = "SELECT count(*) FROM orders JOIN orders.eu-1 e JOIN empty"
    assert rows(sql(joined, path=str(data), spark=spark)) == [(0,)]


def test_values_are_the_bytes_that_were_stored(spark: SparkSession, data: Path) -> None:
    statement = "SELECT cast(value AS binary) FROM orders WHERE priority = 'high'"
    assert rows(sql(statement, path=str(data), spark=spark)) == [(b"\xff\xfe",)]
    statement = "SELECT value FROM orders WHERE priority = 'high'"
    assert rows(sql(statement, path=str(data), spark=spark, binary=True)) == [(b"\xff\xfe",)]


def test_views_of_the_caller_stay(spark: SparkSession, data: Path) -> None:
    spark.range(1).createOrReplaceTempView("orders")
    assert rows(sql("SELECT count(*) FROM orders", path=str(data), spark=spark)) == [(7,)]
    assert rows(spark.sql("SELECT count(*) FROM orders")) == [(1,)]
    spark.catalog.dropTempView("orders")


def test_a_statement_that_is_wrong_is_told(spark: SparkSession, data: Path) -> None:
    with pytest.raises(TopicNotFound, match="there is no topic order: "):
        sql("SELECT * FROM order", path=str(data), spark=spark)
    with pytest.raises(InvalidRequest, match="amount"):
        sql("SELECT amount FROM orders", path=str(data), spark=spark)
    with pytest.raises(InvalidRequest, match="PARSE_SYNTAX_ERROR"):
        sql("SELECT (1", path=str(data), spark=spark)


def test_only_the_topics_that_are_named_are_looked_at(spark: SparkSession, data: Path) -> None:
    with quivermq.open(data) as mq:
        for number in range(200):
            mq.create_topic(f"t{number}")
    frame = sql("SELECT count(*) FROM t7", path=str(data), spark=spark)
    views = frame.sparkSession.catalog.listTables()
    assert [view.name for view in views] == ["t7"]
    assert rows(frame) == [(0,)]


def test_the_state_of_the_queue_is_there_as_well(spark: SparkSession, data: Path) -> None:
    with quivermq.open(data) as mq:
        mq.queue("orders", group="billing").get()
    statement = "SELECT DISTINCT `group` FROM quiver_groups"
    assert rows(sql(statement, path=str(data), spark=spark)) == [("billing",)]


def test_the_command_prints_a_table(spark: SparkSession, data: Path) -> None:
    ran = quiver(
        "pipeline", "sql", "SELECT key, value FROM orders ORDER BY priority, value", "--data", data
    )
    assert ran.code == 0, ran.err
    lines = ran.text.strip().splitlines()
    assert lines[0].split() == ["key", "value"]
    assert [line.split()[0] for line in lines[2:9]] == ["-", "k0", "k1", "k0", "k1", "k0", "k1"]


def test_the_command_limits_and_speaks_json(spark: SparkSession, data: Path) -> None:
    statement = "SELECT offset, timestamp, value, headers FROM orders ORDER BY priority, value"
    ran = quiver("pipeline", "sql", statement, "--data", data, "--json", "--limit", "2", "--binary")
    assert ran.code == 0, ran.err
    first, second = map(json.loads, ran.text.splitlines())
    assert first["value"] == {"base64": "//4="}
    assert first["timestamp"].endswith("Z")
    assert second == {**second, "value": '{"amount": 0}', "headers": []}


def test_the_command_writes_files(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    statement = "SELECT key, value FROM orders WHERE priority = 'normal' ORDER BY value"
    for name in ("a.parquet", "a.csv", "a.json"):
        ran = quiver("pipeline", "sql", statement, "--data", data, "--to", tmp_path / name)
        assert (ran.code, ran.err) == (0, f"wrote {tmp_path / name}\n")
    assert pq.read_table(tmp_path / "a.parquet").column("key").to_pylist() == [b"k0", b"k1"] * 3
    assert (tmp_path / "a.csv").read_text().splitlines()[0] == "key,value"
    assert json.loads((tmp_path / "a.json").read_text().splitlines()[5])["value"] == '{"amount": 5}'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.json", "a.parquet", "data"]


def test_the_command_refuses_what_it_cannot_do(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    ran = quiver("pipeline", "sql", "SELECT 1", "--data", data, "--to", tmp_path / "a.txt")
    assert (ran.code, "has to end with" in ran.err) == (2, True)
    ran = quiver("pipeline", "sql", "SELECT * FROM nothing", "--data", data)
    assert (ran.code, ran.err) == (
        3,
        "error: there is no topic nothing: `quiver topic list` shows those there are\n",
    )


def test_bytes_stay_bytes_in_parquet(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    statement = (
        "SELECT value AS v, key, CAST(key AS string) AS name, length(value) AS n FROM orders"
        " WHERE priority = 'high' OR key = 'k0' ORDER BY offset, priority LIMIT 2"
    )
    ran = quiver("pipeline", "sql", statement, "--data", data, "--to", file)
    assert ran.code == 0, ran.err
    table = pq.read_table(file)
    assert [str(kind) for kind in table.schema.types] == ["binary", "binary", "string", "int32"]
    assert table.column("v").to_pylist() == [b"\xff\xfe", b'{"amount": 0}']
    assert table.column("name").to_pylist() == [None, "k0"]


@pytest.mark.parametrize(
    ("column", "ending"), [("value", "csv"), ("value", "json"), ("concat(value, 'x') AS v", "parquet")]
)
def test_text_that_is_none_is_not_written(
    spark: SparkSession, data: Path, tmp_path: Path, column: str, ending: str
) -> None:
    file = tmp_path / f"a.{ending}"
    statement = f"SELECT {column} FROM orders"
    ran = quiver("pipeline", "sql", statement, "--data", data, "--to", file)
    assert (ran.code, "not valid UTF-8: select base64(value)" in ran.err) == (2, True), ran.err
    assert not file.exists()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT 1/0", "[DIVIDE_BY_ZERO]"),
        ("SELECT int('x')", "[CAST_INVALID_INPUT]"),
        ("SELECT int(value) FROM orders", "[CAST_INVALID_INPUT]"),
    ],
)
def test_what_fails_at_work_is_one_line(
    spark: SparkSession, data: Path, statement: str, words: str
) -> None:
    for more in ((), ("--json",)):
        ran = quiver("pipeline", "sql", statement, "--data", data, *more)
        assert (ran.code, words in ran.err, len(ran.err.splitlines())) == (2, True, 1), ran.err


def test_two_columns_of_one_name_are_refused(spark: SparkSession, data: Path) -> None:
    ran = quiver("pipeline", "sql", "SELECT 1 AS a, 2 AS a", "--data", data, "--json")
    assert (ran.code, "there are two columns a" in ran.err) == (2, True)
    assert quiver("pipeline", "sql", "SELECT 1 AS a, 2 AS a", "--data", data).code == 0


def test_a_table_without_rows_is_empty(spark: SparkSession, data: Path) -> None:
    for table in ("groups", "deliveries", "dead_letters"):
        assert rows(sql(f"SELECT * FROM quiver_{table}", path=data, spark=spark)) == []


def test_files_keep_time_zones_and_bytes(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with quivermq.open(path) as mq:
        mq.queue("orders").put(b"v", headers={"a": b"text", "b": b"\xff"}, timestamp=1_700_000_000_123_456)
    statement = "SELECT timestamp, headers FROM orders"
    shown = quiver("pipeline", "sql", statement, "--data", path, "--json")
    for name in ("a.json", "a.parquet"):
        ran = quiver("pipeline", "sql", statement, "--data", path, "--to", tmp_path / name)
        assert ran.code == 0, ran.err
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(shown.out)
    assert json.loads(shown.out) == {
        "timestamp": "2023-11-14T22:13:20.123456Z",
        "headers": [{"key": "a", "value": "text"}, {"key": "b", "value": {"base64": "/w=="}}],
    }
    assert str(pq.read_schema(tmp_path / "a.parquet").field("timestamp").type) == "timestamp[us, tz=UTC]"
