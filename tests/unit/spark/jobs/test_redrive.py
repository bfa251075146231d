"""What a redrive asks Spark, without Spark."""

from pathlib import Path

import pytest

from quivermq.errors import InvalidRequest
from quivermq.spark.jobs.redrive import BATCH_MESSAGES_MAX, redrive, redrive_statement


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


@pytest.mark.parametrize("batch_messages", [0, BATCH_MESSAGES_MAX + 1])
def test_a_batch_that_no_broker_takes_is_refused_before_anything(
    tmp_path: Path, batch_messages: int
) -> None:
    with pytest.raises(InvalidRequest, match=f"1 to {BATCH_MESSAGES_MAX} messages, not {batch_messages}"):
        redrive(path=tmp_path / "nowhere", batch_messages=batch_messages)
