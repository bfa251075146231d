"""Leases that tasks keep: one whose renewal fails ends no other."""

import asyncio
from types import SimpleNamespace
from typing import Any

from support.manual_clock import ManualClock

from quivermq.aio.renewing import AsyncRenewer
from quivermq.queue.due import Renewal


class Broken:
    """A queue that cannot extend anything: at once, or when it is awaited."""

    def __init__(self, *, is_awaited: bool) -> None:
        self.is_awaited = is_awaited
        self.asked = 0

    def extend(self, *_: object) -> Any:
        self.asked += 1
        if not self.is_awaited:
            raise ValueError("a bug")
        return self._extend()

    async def _extend(self) -> None:
        raise ValueError("a bug")


def test_a_renewal_that_fails_in_any_way_ends_no_other() -> None:
    queues: list[Any] = [Broken(is_awaited=False), Broken(is_awaited=True)]

    async def main() -> None:
        clock = ManualClock()
        backend: Any = SimpleNamespace(clock=clock)
        renewer = AsyncRenewer(backend)
        acted = asyncio.Event()

        async def act() -> None:
            acted.set()

        for queue in queues:
            renewer.renew(queue, Renewal(queue, 30, list))
        renewer.repeat("act", act, 10)
        for _ in range(2):
            acted.clear()
            clock.advance(10)
            # Whatever is added has the renewer look at its clock.
            renewer.repeat("more", act, 1000)
            await acted.wait()
        await renewer.close()

    asyncio.run(main())
    assert [queue.asked for queue in queues] == [2, 2]
