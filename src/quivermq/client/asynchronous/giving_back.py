"""Giving back what an orderly stop leaves unfinished, as `quivermq.delivery.delivery` for tasks."""

import logging
from typing import TYPE_CHECKING

from quivermq.errors import Closing, LeaseExpired, QuiverError

if TYPE_CHECKING:
    from quivermq.client.asynchronous.delivery import AsyncDelivery
    from quivermq.client.asynchronous.queue import AsyncQueue

logger = logging.getLogger(__name__)


async def release_quietly(queue: "AsyncQueue", held: "list[AsyncDelivery] | list[str]") -> None:
    """Release messages, and only log what keeps them from it: their leases end by themselves."""
    try:
        await queue.release(held)
    except (LeaseExpired, Closing):
        # A lease that is lost needs no giving back.
        return
    except QuiverError as error:
        logger.warning("%d messages wait for their leases to end: %s", len(held), error)
