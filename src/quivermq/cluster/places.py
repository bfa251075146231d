"""On which shards a topic is, and which of them has what of it."""

from quivermq.cluster.map import ClusterMap, Shards
from quivermq.cluster.placement import shard_of
from quivermq.errors import TopicNotFound
from quivermq.model.names import usual_origin
from quivermq.model.operations import DescribeTopic
from quivermq.model.stats import TopicInfo

# The shards of a topic, in order: partition p is on the one of index p % len.
Place = tuple[int, ...]

# What stands before the suffix of a dead-letter topic begins with one of these.
_SEPARATORS = ".-_"
# Where a topic is that was not there is looked up again after so long.
_REMEMBERED_S = 10.0
_REMEMBERED_MAX = 10_000


class Places:
    """Where topics are. Thread-safe: what two threads look up at once, both note."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._found: dict[str, tuple[float, Place]] = {}

    def of(self, topic: str) -> Place:
        """The shards of a topic, which need not be there.

        A dead-letter topic is where its origin is. One with the usual suffix tells that by its name; for
        any other, a topic is looked for that has its dead letters there, the first time it is asked for.
        """
        known = self._shards.map()
        wide = known.wide_shards(topic)
        if wide is not None:
            return wide
        if usual_origin(topic) is not None or not any(each in topic for each in _SEPARATORS):
            return (shard_of(topic, known.shards),)
        now = self._shards.clock.monotonic()
        remembered = self._found.get(topic)
        if remembered is not None and now - remembered[0] < _REMEMBERED_S:
            return remembered[1]
        found = self._looked_up(topic, known)
        if len(self._found) >= _REMEMBERED_MAX:
            self._found.clear()
        self._found[topic] = now, found
        return found

    def of_partition(self, topic: str, partition: int) -> int:
        """The shard that has a partition of a topic."""
        place = self.of(topic)
        return place[partition % len(place)]

    def all(self) -> Place:
        """Every shard there is."""
        return tuple(range(self._shards.map().shards))

    def refreshed(self, topic: str) -> Place:
        """Where a topic is by the map of now."""
        self.forget(topic)
        self._shards.refresh()
        return self.of(topic)

    def forget(self, topic: str | None = None) -> None:
        """Look it up again when it is next asked for; without a topic, all of them."""
        if topic is None:
            self._found.clear()
        else:
            self._found.pop(topic, None)

    def _looked_up(self, topic: str, known: ClusterMap) -> Place:
        own = (shard_of(topic, known.shards),)
        if self._described(topic, own) is not None:
            return own
        for end in (index for index, letter in enumerate(topic) if index and letter in _SEPARATORS):
            origin = topic[:end]
            place = known.wide_shards(origin) or (shard_of(origin, known.shards),)
            info = self._described(origin, place)
            if info is not None and topic == origin + info.settings.dead_letter_suffix:
                return place
        return own

    def _described(self, topic: str, place: Place) -> TopicInfo | None:
        try:
            return self._shards.backend(place[0]).perform(DescribeTopic(topic))
        except TopicNotFound:
            return None
