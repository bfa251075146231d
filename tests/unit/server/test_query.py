"""Parameters are taken only as they are documented."""

import pytest

import quivermq
from quivermq.server.http import Request
from quivermq.server.routing import (
    PRIORITY,
    choice_of,
    number_given,
    number_of,
    number_parameter,
    partition_of,
)

SIZE = number_parameter("size", "How much.", -5, 100, default=7)
AGE = number_parameter("age", "How old.", 0, 2**63 - 1)


def asked(query: str) -> Request:
    return Request("GET", "/", query)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("-5", -5), ("100", 100), ("007", 7)])
def test_a_number_in_its_range_is_taken(text: str, number: int) -> None:
    assert number_of(asked(f"size={text}"), SIZE) == number


@pytest.mark.parametrize(
    "text", ["", "x", "1.0", "+1", "1_0", "%20 1", "1%0A", "%D9%A1", "-6", "101", "9" * 20, "--1", "0x1"]
)
def test_anything_else_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(quivermq.InvalidRequest, match="size is a whole number from -5 to 100"):
        number_of(asked(f"size={text}"), SIZE)


def test_what_is_not_given_has_its_default() -> None:
    assert number_of(asked(""), SIZE) == 7
    assert number_given(asked(""), AGE) is None
    assert number_given(asked(f"age={2**63 - 1}"), AGE) == 2**63 - 1
    assert choice_of(asked(""), PRIORITY) == "normal"


def test_a_word_is_one_of_those_there_are() -> None:
    assert choice_of(asked("priority=low"), PRIORITY) == "low"
    with pytest.raises(quivermq.InvalidRequest, match="one of high, normal, low"):
        choice_of(asked("priority=LOW"), PRIORITY)


def test_a_parameter_describes_itself() -> None:
    assert SIZE.schema == {"type": "integer", "minimum": -5, "maximum": 100, "default": 7}
    assert "default" not in AGE.schema


@pytest.mark.parametrize("text", ["3", "-1", "x", "", "1.0", "9" * 30])
def test_a_partition_that_is_not_there_is_not_found(text: str) -> None:
    request = asked("")
    request.params = {"partition": text}
    with pytest.raises(quivermq.NotFound, match="the topic has 3"):
        partition_of(request, 3)
    request.params = {"partition": "2"}
    assert partition_of(request, 3) == 2
