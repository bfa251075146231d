"""A queue over the wire: what `quivermq.connect` and `quivermq.aio.connect` return.

`core` knows the calls and what answers mean, without a socket; `blocking` and `asynchronous` move bytes.
"""

from quivermq.client.blocking.connection import Connection, connect
from quivermq.client.blocking.queue import RemoteQueue

__all__ = ["Connection", "RemoteQueue", "connect"]
