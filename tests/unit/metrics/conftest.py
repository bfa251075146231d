"""What the tests of metrics share."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def hectic() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
