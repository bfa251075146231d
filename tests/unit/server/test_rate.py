"""The rate limit: a burst of a second's worth, then a steady rate, in a table with an end."""

from support.manual_clock import ManualClock

from quivermq.server.gate import RateLimit


def taken(limit: RateLimit, client: str = "a", tries: int = 20) -> int:
    return sum(limit.take(client) for _ in range(tries))


def test_a_client_may_send_a_seconds_worth_at_once_and_then_at_that_rate() -> None:
    clock = ManualClock()
    limit = RateLimit(10, clock.monotonic)
    assert taken(limit) == 10
    clock.advance(0.3)
    assert taken(limit) == 3
    clock.advance(1000)
    assert taken(limit) == 10


def test_clients_do_not_share_a_limit() -> None:
    limit = RateLimit(10, ManualClock().monotonic)
    assert taken(limit, "a") == taken(limit, "b") == 10


def test_a_refused_request_costs_nothing() -> None:
    clock = ManualClock()
    limit = RateLimit(10, clock.monotonic)
    taken(limit, tries=1000)
    clock.advance(0.1)
    assert taken(limit) == 1


def test_the_table_has_an_end_and_forgets_who_was_quiet_the_longest() -> None:
    limit = RateLimit(1, ManualClock().monotonic, buckets_max=100)
    for number in range(1000):
        limit.take(str(number))
        limit.take("busy")
    assert len(limit) == 100
    assert not limit.take("busy")
