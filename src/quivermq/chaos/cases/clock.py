"""Somebody sets the machine's clock, by an hour or a year, forward or back, while a queue is in use."""

from collections.abc import Callable
from functools import partial

from quivermq.chaos.broker import broker
from quivermq.chaos.expectation import expect
from quivermq.chaos.jumping_clock import JumpingClock
from quivermq.chaos.trial import Trial, wait_until
from quivermq.client import Connection
from quivermq.clock import SystemClock
from quivermq.engine import Engine, open_engine

HOUR_S, YEAR_S = 3600, 365 * 24 * 3600
JUMPS_S = (HOUR_S, -HOUR_S, YEAR_S, -YEAR_S)
_TOPIC, _GROUP = "orders", "billing"
_DELAY_S = 0.3


def engine(trial: Trial) -> None:
    """The queue in this process."""
    clock = JumpingClock(trial.directory / "clock")
    with open_engine(trial.data, clock=clock) as opened:
        for jump_s in _jumps(trial):
            check(opened, partial(clock.set, jump_s), partial(clock.set, 0))


def over_http(trial: Trial) -> None:
    """A broker in a process of its own."""
    path = trial.directory / "clock"
    clock = JumpingClock(path)
    with trial.nursery() as lives, broker(lives, trial.data, clock=path) as process:
        for jump_s in _jumps(trial):
            check(process.connect(), partial(clock.set, jump_s), partial(clock.set, 0))


def _jumps(trial: Trial) -> list[int]:
    jumps = [JUMPS_S[number % len(JUMPS_S)] for number in range(trial.cycles)]
    trial.tried += len(jumps)
    return jumps


def check(mq: Engine | Connection, jump: Callable[[], None], back: Callable[[], None]) -> None:
    """No lease is lost, nothing comes early, nothing expires that should not, and what is due does come."""
    queue, clock = mq.queue(_TOPIC, group=_GROUP), SystemClock()
    queue.put(b"leased")
    held = queue.get(lease=60)
    expect(held is not None, "the message is not there")
    queue.put(b"lives", ttl=60)
    queue.put(b"much later", delay=600)
    jump()
    start = clock.monotonic()
    queue.put(b"soon", delay=_DELAY_S)
    came: dict[bytes, float] = {}

    def has_come() -> bool:
        taken = queue.get(lease=60)
        if taken is not None:
            came[taken.value] = clock.monotonic() - start
            queue.ack(taken)
        return b"soon" in came

    wait_until(has_come, "what was due did not come")
    expect(
        came.keys() == {b"lives", b"soon"}, f"a lease was lost, or something came that was not due: {came}"
    )
    expect(came[b"soon"] >= _DELAY_S, f"it came {_DELAY_S - came[b'soon']:.3f} s early")
    expect(held is not None and queue.ack(held) is None, "the lease was lost")
    back()
    for scheduled in queue.scheduled():
        queue.cancel(scheduled.id)
