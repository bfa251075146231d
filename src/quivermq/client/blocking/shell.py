"""Runs flows: makes their calls, waits where they pause, and hands back what came of it."""

from _thread import get_ident
from typing import Protocol, TypeVar

from quivermq.client.core.call import Act, Answer, Broken, Call, Flow, Outcome, Step
from quivermq.helping import Latch
from quivermq.reentry import finish, inside, outside, postponed, refusal

T = TypeVar("T")

# How long a pause goes on after a signal handler has closed the connection.
_LOOK_S = 0.5


class Exchange(Protocol):
    """Whatever carries calls to a broker, and answers back."""

    def exchange(self, call: Call, /) -> Answer | Broken:
        """Send a call and wait for what comes of it. Raises Closing once it is closed."""
        ...

    def check_open(self) -> None: ...

    def interrupt(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Shell:
    """What all objects of one connection share. Thread-safe."""

    def __init__(self, pool: Exchange) -> None:
        self._pool = pool
        self._closed = Latch()

    def run(self, flow: Flow[T]) -> T:
        """The result of a flow. Raises what it raises, and Closing."""
        thread = get_ident()
        if thread in inside:
            raise refusal()
        self._pool.check_open()
        try:
            inside.add(thread)
            step = next(flow)
            while True:
                try:
                    outcome = self._outcome(step)
                except BaseException as error:
                    # What a step raises, the flow may have something to do about.
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            inside.discard(thread)
            if postponed:
                finish(thread)

    def _outcome(self, step: Step) -> Outcome:
        if isinstance(step, Call):
            return self._pool.exchange(step)
        if isinstance(step, Act):
            with outside():
                step.call()
            return None
        left = step.seconds
        while left > 0:
            # Closing the connection ends a pause as well, at once or, in a signal handler, soon.
            self._closed.wait(min(left, _LOOK_S))
            self._pool.check_open()
            left -= _LOOK_S
        return None

    def check_open(self) -> None:
        """Raise Closing once the connection was closed."""
        self._pool.check_open()

    def interrupt(self) -> None:
        """Let whatever waits for the broker end soon. A signal handler may call this at any moment."""
        self._pool.interrupt()

    def resume(self) -> None:
        """Let the calls be made that are left to make before everything ends."""
        self._pool.resume()

    def close(self) -> None:
        """End everything that runs."""
        self._pool.close()
        self._closed.set()
