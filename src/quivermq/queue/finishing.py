"""What has to be done at the end: of a call that failed, of a loop that was left, of everything.

For threads; `quivermq.aio.finishing` has the same for tasks.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, ParamSpec

from quivermq.errors import QuiverError
from quivermq.reentry import soon

if TYPE_CHECKING:
    from quivermq.backend import Backend
    from quivermq.client.consuming.consumer import RemoteConsumer
    from quivermq.client.producing.producer import RemoteProducer
    from quivermq.queue.renewing import Renewer
    from quivermq.queue.streaming import Stream

logger = logging.getLogger(__name__)
P = ParamSpec("P")


def finish(act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do it now or, when that would interrupt another call of this thread, as soon as that has ended.

    The garbage collector may close a generator in the middle of any call.
    """
    soon(partial(act, *args, **kwargs))


def log_unreleased(error: QuiverError, count: int | None = None) -> None:
    """Say that messages wait for their leases to end; of how many that is true, nobody may know."""
    if count is None:
        logger.info("could not give back what was on its way: %s", error)
    else:
        logger.warning("%d messages wait for their leases to end: %s", count, error)


def close_all(
    backend: "Backend",
    renewer: "Renewer",
    streams: "Iterable[Stream]",
    producers: "Iterable[RemoteProducer]",
    consumers: "Iterable[RemoteConsumer]",
    is_finished: bool,
) -> None:
    """Close everything that a connection has made, and its backend."""
    with ExitStack() as stack:
        # From the last to the first, each of them whatever the others raise.
        stack.callback(backend.close)
        stack.callback(renewer.give_back)
        for stream in list(streams):
            stack.callback(stream.close)
        for producer in list(producers):
            stack.callback(producer.close)
        for consumer in list(consumers):
            stack.callback(consumer.end, is_finished=is_finished)
