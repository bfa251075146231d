"""How the keys of a cluster are called in etcd.

/quiver/<cluster>/config           how many shards, and the bucket
/quiver/<cluster>/brokers/<id>     a broker that is there, under its lease
/quiver/<cluster>/drains/<id>      a broker that is to own nothing
/quiver/<cluster>/wishes/<s>       the broker that is to own a shard
/quiver/<cluster>/topics/<topic>   the shards of a wide topic
/quiver/<cluster>/shards/<s>/      a shard: its owner, its chunks, its checkpoint (`shared.etcd_chunks`)
"""

import re
from dataclasses import dataclass

from quivermq.errors import InvalidName

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BROKER = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,199}")

# The first text behind all that begin with a slash.
_BEHIND = "0"

Span = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The keys of one cluster. Raises InvalidName for a name that no cluster can have."""

    cluster: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.cluster):
            raise InvalidName(
                f"{self.cluster[:100]!r} is no name of a cluster: that has letters, digits, dots, dashes"
                " and underscores"
            )

    @property
    def root(self) -> str:
        return f"/quiver/{self.cluster}"

    @property
    def config(self) -> str:
        return f"{self.root}/config"

    def broker(self, broker: str) -> str:
        """A broker that is there."""
        return f"{self.root}/brokers/{broker}"

    def drain(self, broker: str) -> str:
        """That a broker is to own nothing."""
        return f"{self.root}/drains/{broker}"

    def wish(self, shard: int) -> str:
        """Who is to own a shard."""
        return f"{self.root}/wishes/{shard}"

    def topic(self, topic: str) -> str:
        """The shards of a wide topic."""
        return f"{self.root}/topics/{topic}"

    def shard(self, shard: int) -> str:
        """What stands before all keys of a shard."""
        return f"{self.root}/shards/{shard}"

    def owner(self, shard: int) -> str:
        """Who owns a shard."""
        return f"{self.shard(shard)}/owner"

    def watched(self, shards: int) -> list[Span]:
        """All that a broker has to know: everything but chunks, of which there are many."""
        kinds = ("brokers", "drains", "wishes", "topics")
        spans: list[Span] = [(f"{self.root}/{kind}/", f"{self.root}/{kind}{_BEHIND}") for kind in kinds]
        return [*spans, *((self.owner(shard), None) for shard in range(shards))]


def check_broker_id(broker: str) -> str:
    """The same id. Raises InvalidName for one that a broker cannot have."""
    if not _BROKER.fullmatch(broker):
        raise InvalidName(f"{broker[:100]!r} is no id of a broker: take one such as host:port")
    return broker
