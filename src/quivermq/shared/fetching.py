"""Many objects fetched at a time, and handed out in order."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Fetched = TypeVar("Fetched")


def fetched(
    items: Iterable[Fetched], fetch: Callable[[Fetched], bytes], readers: int
) -> Iterator[tuple[Fetched, bytes]]:
    """Each item with what `fetch` returns for it. No more are held than are fetched at a time."""
    waiting = iter(items)
    with ThreadPoolExecutor(readers, "quiver-fetch") as threads:
        while batch := list(islice(waiting, readers)):
            yield from zip(batch, threads.map(fetch, batch), strict=True)
