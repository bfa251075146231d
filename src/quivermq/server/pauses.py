"""Short pauses: whatever a broker counts or collects, nobody who puts a message waits long for it.

Two things let one thread keep all others waiting. Whoever computes gives the interpreter away only after an
interval, and a put needs it several times. And a collection of garbage stops everybody while it walks over
all objects there are, which takes half a second where there are thousands of groups, and finds nothing.
"""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# A tenth of what Python has by default. To switch costs some microseconds.
_SWITCH_S = 0.0005

# So many objects that outlived a whole collection are set aside, where the next one does not look: walking
# over them takes about as long as a put may wait.
SURVIVORS_MAX = 50_000
# But not for ever: of what is set aside, rings that nobody refers to any more are found only by looking.
_LOOK_AGAIN_S = 3600.0


class Collections:
    """Keeps whole collections of garbage short, as one of `gc.callbacks`."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                self.look_again()
        elif len(gc.get_objects(generation=2)) > SURVIVORS_MAX:
            gc.freeze()

    def look_again(self) -> None:
        """Let the collection that begins now walk over everything."""
        self._looked_at = time.monotonic()
        gc.unfreeze()


@contextmanager
def short_pauses() -> Iterator[None]:
    """For as long as a broker serves, and the process does nothing else."""
    interval_s, collections = sys.getswitchinterval(), Collections()
    # What is open already stays open, most of it.
    gc.freeze()
    gc.callbacks.append(collections)
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        gc.callbacks.remove(collections)
        gc.unfreeze()
