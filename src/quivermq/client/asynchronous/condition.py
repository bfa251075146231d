"""What tasks wait for: a condition as `threading` has it."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext


class AsyncCondition:
    """Wakes every task that waits. Its lock guards nothing: in one event loop there is no need."""

    def __init__(self) -> None:
        self.lock = nullcontext()
        self._notified = asyncio.Event()

    def notify_all(self) -> None:
        """Wake those who wait now."""
        notified, self._notified = self._notified, asyncio.Event()
        notified.set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Return when somebody notifies; False when that takes longer than `timeout` seconds."""
        notified = self._notified
        try:
            async with asyncio.timeout(timeout):
                await notified.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for(self, is_so: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it is so, which is looked at with each notice. False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not is_so():
                    await self.wait()
        except TimeoutError:
            return is_so()
        return True
