"""What requests cost."""

from pathlib import Path

import pytest

from quivermq.shared.cost import DOLLARS, MONTH_S, dollars_a_month
from quivermq.shared.counting import KINDS, RequestKind, Requests

TOOL = Path(__file__).parents[3] / "tools" / "cluster_scale.py"


def test_a_month_is_as_the_time_before() -> None:
    requests: dict[RequestKind, Requests] = {
        "put": Requests(60),
        "get": Requests(60),
        "delete": Requests(1000),
    }
    assert dollars_a_month(requests, 60) == pytest.approx((0.005 + 0.0004) * MONTH_S / 1000)
    assert dollars_a_month({}, 60) == 0


def test_of_the_first_minute_nothing_is_said() -> None:
    assert dollars_a_month({"put": Requests(1)}, 59.9) is None


def test_every_kind_has_a_price() -> None:
    assert set(DOLLARS) == set(KINDS)


def test_the_calculation_on_paper_has_the_same_prices() -> None:
    text = TOOL.read_text()
    assert "put_dollars: float = 0.005 / 1000" in text
    assert "get_dollars: float = 0.0004 / 1000" in text
    assert (DOLLARS["put"], DOLLARS["get"]) == (0.005 / 1000, 0.0004 / 1000)
