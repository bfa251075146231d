"""Messages on their way to a call that asked for them: what an exception in between must not lose.

A signal handler may raise between any two steps, also between the note that a message is leased and the
moment at which somebody has it in hand. So whoever leases it puts it into the box of its thread first, and
the call that has set the box up gives back what is in there when it fails.
"""

from _thread import get_ident
from typing import Any

# The box of each thread that waits for messages, if it has one.
_boxes: dict[int, list[Any]] = {}


def expecting() -> list[Any]:
    """A box for what comes to this thread from now on, until `received` or the next box."""
    box: list[Any] = []
    _boxes[get_ident()] = box
    return box


def received() -> None:
    """The call has in hand what came."""
    _boxes.pop(get_ident(), None)


def arrives(taken: object) -> None:
    """Note that this is on its way. Also what is leased only a moment later, or never."""
    box = _boxes.get(get_ident())
    if box is not None:
        box.append(taken)
