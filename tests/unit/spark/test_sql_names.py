import pytest

from quivermq.errors import InvalidRequest
from quivermq.spark.jobs.sql import check_is_query, named_tables, quoted, with_quotes

TOPICS = ["orders", "orders.dlq", "events-eu", "Events", "events", "2024"]


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select orders.value from ORDERS", ["orders"]),
        ("SELECT * FROM `orders.dlq` WHERE x = 'orders'", ["orders.dlq"]),
        ("SELECT 1 -- FROM orders\n + 2 /* events */", []),
        ("SELECT \"orders\", 'it\\'s orders'", []),
        ("SELECT * FROM orders JOIN `events-eu` USING (key)", ["events-eu", "orders"]),
        ("SELECT * FROM Events", ["Events"]),
        ("SELECT * FROM events", ["events"]),
        ("SELECT * FROM `2024`", ["2024"]),
    ],
)
def test_the_tables_of_a_statement_are_found(statement: str, tables: list[str]) -> None:
    assert named_tables(statement, TOPICS) == tables


def test_names_that_differ_only_in_capitals_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="Events and events differ only in capitals"):
        named_tables("SELECT * FROM events, Events", TOPICS)


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("SELECT a.b FROM orders.dlq", "SELECT a.b FROM `orders.dlq`"),
        ("SELECT * FROM orders o join events-eu e", "SELECT * FROM orders o join `events-eu` e"),
        ("SELECT '-> FROM orders.dlq'", "SELECT '-> FROM orders.dlq'"),
        ("SELECT 1 FROM other.table", "SELECT 1 FROM other.table"),
        ("SELECT * FROM (SELECT 1), `orders.dlq`", "SELECT * FROM (SELECT 1), `orders.dlq`"),
        ("SELECT * FROM orders.dlq--all", "SELECT * FROM `orders.dlq`--all"),
    ],
)
def test_names_behind_from_and_join_get_their_quotes(statement: str, written: str) -> None:
    assert with_quotes(statement, TOPICS) == written


def test_a_name_is_quoted_where_it_has_to_be() -> None:
    assert [quoted(name) for name in ("a_1", "a-b", "1a", "a`b")] == ["a_1", "`a-b`", "`1a`", "`a``b`"]


@pytest.mark.parametrize(
    "statement",
    [
        "select 1",
        "-- why\n (SELECT 'DROP TABLE t')",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "VALUES (1)",
        "SHOW TABLES",
        "DESCRIBE orders",
        "EXPLAIN SELECT 1",
        "SELECT insert FROM orders",
    ],
)
def test_questions_are_queries(statement: str) -> None:
    check_is_query(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "-- SELECT 1",
        "DROP TABLE orders",
        "/* SELECT */ create table t AS SELECT 1",
        "SET spark.x = 1",
        "WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a",
        "FROM orders INSERT OVERWRITE DIRECTORY '/x' SELECT *",
    ],
)
def test_what_changes_something_is_no_query(statement: str) -> None:
    with pytest.raises(InvalidRequest, match="is no query: a statement only asks"):
        check_is_query(statement)
