"""Many bad calls, each with the error that it must raise."""

from collections.abc import Callable, Iterable
from typing import Any

import quivermq


def mistakes(
    wrong: Iterable[tuple[Callable[[Any], object], type[quivermq.QuiverError]]], target: Any
) -> list[str]:
    """Those of the calls that raise nothing, or something else, by their number."""
    found = []
    for number, (call, expected) in enumerate(wrong):
        try:
            result = call(target)
        except Exception as error:
            if type(error) is not expected:
                found.append(f"call {number} raised {error!r}, not {expected.__name__}")
        else:
            found.append(f"call {number} returned {result!r}")
    return found
