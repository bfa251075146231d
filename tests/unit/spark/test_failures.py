import pytest
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ParseException,
    PySparkException,
    PythonException,
    StreamingQueryException,
)

from quivermq.errors import Corruption, InvalidRequest, NotFound, OffsetOutOfRange
from quivermq.spark.execution import error_in, in_users_code, one_line, translated

TRACEBACK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "batches.py", line 7, in frames
quivermq.errors.Corruption: /data/0.log is damaged at byte 8, offsets [0, ?): body checksum
\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_an_error_of_an_executor_comes_back() -> None:
    with (
        pytest.raises(Corruption, match=r"^/data/0\.log is damaged at byte 8, offsets \[0, \?\): body"),
        translated(),
    ):
        raise PythonException(TRACEBACK)


@pytest.mark.parametrize("kind", [AnalysisException, ParseException])
def test_a_wrong_statement_is_a_wrong_request(kind: type[PySparkException]) -> None:
    text = "[TABLE_OR_VIEW_NOT_FOUND] The table `orders` cannot be found.; line 1 pos 14;\n'Project [*]"
    with pytest.raises(InvalidRequest, match=r"`orders` cannot be found\.$"), translated():
        raise kind(text)


def test_what_nobody_foresaw_stays_what_it_is() -> None:
    with pytest.raises(PythonException), translated():
        raise PythonException("ZeroDivisionError: division by zero")
    with pytest.raises(OffsetOutOfRange), translated():
        raise OffsetOutOfRange(1, start=2, end=3)


def test_only_errors_of_ours_are_taken_for_one() -> None:
    assert error_in("quivermq.errors.Sequence: no") is None
    assert error_in("") is None


def test_data_that_sql_fails_on_is_a_wrong_request() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted: Lost task 0.0:"
        " org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'x' of the type"
        ' "STRING" cannot be cast to "INT". Use `try_cast`. SQLSTATE: 22018\n== SQL ==\nint(value)\n'
        "\tat org.apache.spark.sql SQLSTATE: XXKST"
    )
    with (
        pytest.raises(InvalidRequest, match=r"^\[CAST_INVALID_INPUT\] The value .* Use `try_cast`\.$"),
        translated(),
    ):
        raise StreamingQueryException(text)
    with pytest.raises(ArithmeticException), translated():
        raise ArithmeticException("[INTERNAL_ERROR] A bug. SQLSTATE: XX000")
    with pytest.raises(InvalidRequest, match=r"^\[DIVIDE_BY_ZERO\] Division by zero\.$"), translated():
        raise ArithmeticException("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            AnalysisException(
                "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: quiver. Make sure the provider"
                " name is correct. SQLSTATE: 42K02"
            ),
            "Spark finds no data source quiver",
        ),
        (
            PythonException(
                'Traceback (most recent call last):\n  File "a.py", line 1\n'
                "ModuleNotFoundError: No module named 'crc32c'\n\tat org.apache.spark"
            ),
            "has no crc32c",
        ),
    ],
)
def test_a_worker_without_the_package_is_told_what_to_do(error: PySparkException, reason: str) -> None:
    with (
        pytest.raises(NotFound, match=rf"{reason}.*install quivermq\[spark\] .*PYSPARK_PYTHON"),
        translated(),
    ):
        raise error


def test_a_failing_function_is_one_line() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: Traceback (most recent call"
        ' last):\n  File "/home/me/steps.py", line 7, in f\n    return {}[n]\nKeyError: 5\n\tat org.apache'
    )
    assert str(in_users_code(text)) == "KeyError: 5 (line 7 of /home/me/steps.py)"
    assert in_users_code("[SOMETHING] else\n\tat org.apache") is None
    assert one_line(PythonException("first\n\tat org.apache")) == "first"
