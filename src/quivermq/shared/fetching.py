"""Many objects fetched at a time, and handed out in order."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

from quivermq.errors import StoreUnreachable

Fetched = TypeVar("Fetched")

# A store that is asked for thousands of objects stumbles at one now and then. Whoever fetches them all
# would begin anew for it, and stumble again.
_TRIES = 6
_BACKOFF_S = 0.01


def fetched(
    items: Iterable[Fetched], fetch: Callable[[Fetched], bytes], readers: int
) -> Iterator[tuple[Fetched, bytes]]:
    """Each item with what `fetch` returns for it. No more are held than are fetched at a time.

    Raises what `fetch` raises; StoreUnreachable only when one object cannot be had in several tries.
    """
    waiting = iter(items)
    with ThreadPoolExecutor(readers, "quiver-fetch") as threads:
        while batch := list(islice(waiting, readers)):
            yield from zip(batch, threads.map(partial(_patiently, fetch), batch), strict=True)


def _patiently(fetch: Callable[[Fetched], bytes], item: Fetched) -> bytes:
    for attempt in range(_TRIES - 1):
        try:
            return fetch(item)
        except StoreUnreachable:
            time.sleep(_BACKOFF_S * 2**attempt)
    return fetch(item)
