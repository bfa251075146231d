"""A request as handlers see it."""

import pytest

from quivermq.errors import InvalidRequest
from quivermq.server.http import Request


def test_the_query_is_decoded_once() -> None:
    request = Request("GET", "/", "key=a%20b&empty=&x=%C3%A4")
    assert request.query == {"key": "a b", "empty": "", "x": "ä"}
    assert request.query is request.query


@pytest.mark.parametrize("query", ["a=1&a=2", "&".join(f"p{number}=1" for number in range(101))])
def test_a_query_that_nobody_means_is_an_error(query: str) -> None:
    with pytest.raises(InvalidRequest):
        _ = Request("GET", "/", query).query


def test_the_content_type_comes_without_its_parameters() -> None:
    assert (
        Request("POST", "/", headers={"content-type": "Text/Plain; charset=utf-8"}).content_type
        == "text/plain"
    )
    assert Request("POST", "/").content_type == ""
