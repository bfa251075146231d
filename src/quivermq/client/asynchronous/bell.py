"""What tasks wait for."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext


class Bell:
    """Wakes every task that waits. Its lock guards nothing: in one event loop there is no need."""

    def __init__(self) -> None:
        self.lock = nullcontext()
        self._rung = asyncio.Event()

    def notify_all(self) -> None:
        """Wake those who wait now."""
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Return when it rings; False when that takes longer than `timeout` seconds."""
        rung = self._rung
        try:
            async with asyncio.timeout(timeout):
                await rung.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for(self, is_so: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it is so, which is looked at whenever it rings. False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not is_so():
                    await self.wait()
        except TimeoutError:
            return is_so()
        return True
