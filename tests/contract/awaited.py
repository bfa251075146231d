"""An asynchronous queue that a test can call like any other: each call waits on an event loop elsewhere."""

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Self

from support.threads import PATIENCE_S

import quivermq


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(PATIENCE_S)

    def wrap(self, thing: Any) -> Any:
        """The same thing, to be called without `await`. Plain results stay as they are."""
        if type(thing).__name__.startswith("Async"):
            return Awaited(self, thing)
        if inspect.isasyncgen(thing):
            return Stream(self, thing)
        if hasattr(thing, "__aenter__"):
            return Block(self, thing)
        return [self.wrap(item) for item in thing] if isinstance(thing, list) else thing

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


class Awaited:
    """A connection, a queue or a delivery."""

    def __init__(self, loop: Loop, thing: Any) -> None:
        self._loop = loop
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*map(bare, args), **kwargs)
            if inspect.iscoroutine(result):
                result = self._loop.run(result)
            return self._loop.wrap(result)

        return call

    def __repr__(self) -> str:
        return repr(self._thing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._thing.close())


class Block:
    """What is used in an `async with`."""

    def __init__(self, loop: Loop, thing: Any) -> None:
        self._loop = loop
        self._thing = thing

    def __enter__(self) -> Any:
        return self._loop.wrap(self._loop.run(self._thing.__aenter__()))

    def __exit__(self, *error: Any) -> Any:
        return self._loop.run(self._thing.__aexit__(*error))


class Stream:
    """What is used in an `async for`."""

    def __init__(self, loop: Loop, thing: Any) -> None:
        self._loop = loop
        self._thing = thing

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.wrap(self._loop.run(self._thing.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self._loop.run(self._thing.aclose())


# What can be walked over, and is one thing all the same.
_ONE_ALONE = (bytes, str, bytearray, memoryview, dict, quivermq.Message)


def bare(given: Any) -> Any:
    """What the asynchronous queue itself handed out."""
    if isinstance(given, Awaited):
        return given._thing
    if isinstance(given, Iterable) and not isinstance(given, _ONE_ALONE):
        return [bare(item) for item in given]
    return given
