"""Runs flows: makes their calls, waits where they pause, and hands back what came of it."""

import threading
from typing import TypeVar

from quivermq.client.blocking.pool import Pool
from quivermq.client.core.call import Act, Call, Flow, Outcome, Step

T = TypeVar("T")


class Shell:
    """What all objects of one connection share. Thread-safe."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._closed = threading.Event()

    def run(self, flow: Flow[T]) -> T:
        """The result of a flow. Raises what it raises, and Closing."""
        self._pool.check_open()
        try:
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

    def _outcome(self, step: Step) -> Outcome:
        if isinstance(step, Call):
            return self._pool.exchange(step)
        if isinstance(step, Act):
            step.call()
            return None
        # Closing the connection ends a pause as well.
        self._closed.wait(step.seconds)
        self._pool.check_open()
        return None

    def check_open(self) -> None:
        """Raise Closing once the connection was closed."""
        self._pool.check_open()

    def close(self) -> None:
        """End everything that runs."""
        self._pool.close()
        self._closed.set()
