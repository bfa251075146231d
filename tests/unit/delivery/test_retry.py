"""How long a message that failed waits."""

import pytest

from quivermq.delivery import state
from quivermq.delivery.state import backoff_us, is_last
from quivermq.model.topic_settings import TopicSettings

SETTINGS = TopicSettings(backoff_ms=1000, backoff_ms_max=60_000)


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What chance will say: the first of these, again and again."""
    chance = [1.0]
    monkeypatch.setattr(state, "random", lambda: chance[0])
    return chance


@pytest.mark.parametrize(
    ("attempt", "wait_ms"), [(1, 1000), (2, 2000), (3, 4000), (6, 32_000), (7, 60_000), (10_000, 60_000)]
)
def test_each_wait_is_twice_as_long_up_to_a_limit(chance: list[float], attempt: int, wait_ms: int) -> None:
    assert backoff_us(attempt, SETTINGS) == wait_ms * 1000


def test_half_of_the_wait_is_left_to_chance(chance: list[float]) -> None:
    chance[0] = 0.0
    assert backoff_us(1, SETTINGS) == 500_000
    chance[0] = 0.5
    assert backoff_us(1, SETTINGS) == 750_000
    assert backoff_us(9, SETTINGS) == 45_000_000


def test_messages_that_failed_together_do_not_come_back_together() -> None:
    waits = [backoff_us(1, SETTINGS) for _ in range(200)]
    assert len(set(waits)) > 100
    assert all(500_000 <= wait <= 1_000_000 for wait in waits)


def test_no_backoff_is_no_wait() -> None:
    assert backoff_us(5, TopicSettings(backoff_ms=0, backoff_ms_max=0)) == 0


@pytest.mark.parametrize(("attempt", "last"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_last_attempt(attempt: int, last: bool) -> None:
    assert is_last(attempt, TopicSettings(attempts_max=3)) is last
    assert not is_last(attempt, TopicSettings(attempts_max=None))


@pytest.mark.parametrize(
    ("multiplier", "attempt", "wait_ms"),
    [(1.0, 1, 1000), (1.0, 10_000, 1000), (1.5, 3, 2250), (3.0, 3, 9000), (1000.0, 10**9, 60_000)],
)
def test_the_wait_grows_by_the_multiplier(
    chance: list[float], multiplier: float, attempt: int, wait_ms: int
) -> None:
    settings = TopicSettings(backoff_ms=1000, backoff_ms_max=60_000, backoff_multiplier=multiplier)
    assert backoff_us(attempt, settings) == wait_ms * 1000


def test_a_wait_grows_slowly_for_as_long_as_it_takes(chance: list[float]) -> None:
    settings = TopicSettings(backoff_ms=1000, backoff_ms_max=60_000, backoff_multiplier=1.01)
    assert backoff_us(500, settings) == 60_000_000
