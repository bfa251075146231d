"""What Spark raises, as the errors of this library, for people and for exit codes.

An error of ours that was raised in an executor, or below the Java side of the driver, comes back as the
text of a traceback inside of an error of Spark's.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from quivermq import errors
from quivermq.errors import InvalidRequest, NotFound, QuiverError
from quivermq.spark.shipping import ADVICE, NEEDED

# The last line of a Python traceback. What Java adds to it is on lines of its own.
_OURS = re.compile(r"^(?:\w+\.)*quivermq\.errors\.(\w+): (.*)$", re.MULTILINE)
_IN_PYTHON = "Traceback (most recent call last)"
# A failure of SQL at work: wrong data (classes 21 and 22 of SQLSTATE), or a wrong statement (42). Others
# may stand around it; the innermost has no other in between.
_OF_SQL = re.compile(
    r"\[[A-Z][A-Z0-9_.]+\] (?:(?!\[[A-Z][A-Z0-9_]+[\].])[^\n])*?(?= SQLSTATE: (?:21|22|42)\w{3}\b)"
)
_NOT_FOUND = re.compile(r"\[DATA_SOURCE_NOT_FOUND\][^\n]*: quiver\b")
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)
_CANNOT_BE_SENT = {*NEEDED, "quivermq", "pyspark_quiver"}
# The last line of a traceback, and the line of the program before it.
_FAILED = re.compile(
    r"^(?!\s|Traceback )([\w.]*(?:Error|Exception|Warning|Interrupt|Exit)\b.*)$", re.MULTILINE
)
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_POSITION = re.compile(r"\s*(?:;|== SQL).*", re.DOTALL)


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of Spark's as errors of ours. What nobody foresaw stays what it is."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        ours = our_error(error)
        if ours is None:
            raise
        raise ours from error


def our_error(error: BaseException) -> QuiverError | None:
    """The error of this library that is meant by one of Spark's; None when it means none."""
    from pyspark.errors import AnalysisException, ParseException

    if (found := error_in(str(error))) is not None:
        return found
    if (lacking := _lacking(str(error))) is not None:
        return lacking
    # A failure inside of the data source comes as an analysis that failed, too, and is nobody's wrong SQL.
    if isinstance(error, ParseException | AnalysisException) and _IN_PYTHON not in str(error):
        return InvalidRequest(_POSITION.sub("", str(error)).strip())
    if (of_sql := _OF_SQL.search(str(error))) is not None:
        return InvalidRequest(of_sql.group())
    return None


def _lacking(text: str) -> NotFound | None:
    """The error of a Python that was started without what it needs."""
    if _NOT_FOUND.search(text):
        return NotFound(
            "Spark finds no data source quiver, because the Python that it starts for it ($PYSPARK_PYTHON,"
            f" or else python3 of PATH) has no quivermq: {ADVICE}, or let quivermq.spark.session() start it"
        )
    missing = _MISSING.search(text)
    if missing is None or missing[1] not in _CANNOT_BE_SENT:
        return None
    return NotFound(f"the Python of a worker of Spark's has no {missing[1]}: {ADVICE}")


def in_users_code(text: str) -> InvalidRequest | None:
    """What a function that was given to Spark failed with, on one line; None when it did not."""
    begin = text.find(_IN_PYTHON)
    if begin < 0:
        return None
    failed = _FAILED.search(text, begin)
    if failed is None:
        return None
    places = _PLACE.findall(text, begin, failed.start())
    where = f" (line {places[-1][1]} of {places[-1][0]})" if places else ""
    return InvalidRequest(f"{failed[1].strip()}{where}")


def one_line(error: BaseException) -> str:
    """The first line of what Spark says, without its Java."""
    text = str(error).strip() or type(error).__name__
    return text.partition("\n")[0].strip()


def error_in(text: str) -> QuiverError | None:
    """The first error of ours that a traceback tells of."""
    for name, message in _OURS.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, QuiverError):
            # Without its fields, which a traceback does not tell.
            return kind.__new__(kind, message)
    return None


def reworded(error: QuiverError, message: str) -> QuiverError:
    """The same error with another text."""
    other = type(error).__new__(type(error), message)
    other.__dict__.update(error.__dict__)
    return other
