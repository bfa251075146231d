"""What a redrive asks Spark, without Spark."""

import pytest

from quivermq.errors import InvalidRequest
from quivermq.spark.jobs.redrive import redrive_statement


def test_a_comment_in_the_condition_does_not_swallow_the_limit() -> None:
    *condition, limit = redrive_statement("reason = 'x' -- note", None, 5).splitlines()
    assert condition == ["SELECT * FROM dead_letters WHERE reason = 'x' -- note"]
    assert limit.startswith("ORDER BY died_at")
    assert limit.endswith("LIMIT 5")


def test_a_whole_statement_is_taken_as_it_is() -> None:
    assert redrive_statement(None, "SELECT 1", None) == "SELECT 1"
    assert redrive_statement(None, None, None) == "SELECT * FROM dead_letters"
    with pytest.raises(InvalidRequest, match="at least 1"):
        redrive_statement(None, None, 0)
    with pytest.raises(InvalidRequest, match="its own WHERE"):
        redrive_statement("true", "SELECT 1", None)
