"""The parts of files that were read last: who reads a page at a time asks for the same part many times."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

# A part is a row group, of some 16 MiB; two, because a page may lie on both sides of a border.
_KEPT = 2


class Recent:
    """Keeps a few values that take long to make. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of a key, made now unless it was asked for just before."""
        with self._lock:
            value = self._values.get(key)
        if value is None:
            # Without the lock: two that make the same are better than one that waits for another's file.
            value = make()
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > _KEPT:
                self._values.popitem(last=False)
        return value
