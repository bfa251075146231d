"""Topics of a cluster: made, described, altered and deleted on all of their shards.

That a topic is wide is decided first and forgotten last. So whatever dies in between, the map says where
the shares are, and the next call finishes what was begun: each step does nothing where it was done before.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from quivermq.cluster.map import Shards
from quivermq.cluster.merging import merged_extent, whole_info, whole_settings
from quivermq.cluster.places import Place, Places
from quivermq.cluster.together import Together
from quivermq.errors import Conflict, InvalidName, InvalidSettings, QuiverError, TopicExists, TopicNotFound
from quivermq.model.names import DEAD_LETTER_SUFFIX
from quivermq.model.operations import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    GetExtent,
    ListTopics,
    TopicExtent,
)
from quivermq.model.stats import TopicInfo
from quivermq.model.topic_settings import TopicSettings, parse_settings
from quivermq.settings import StorageSettings

_REMEMBERED_S = 10.0


class ClusterTopics:
    """Thread-safe."""

    def __init__(self, shards: Shards, places: Places, together: Together) -> None:
        self._shards = shards
        self._places = places
        self._together = together
        self._infos: dict[str, tuple[float, TopicInfo]] = {}
        # The wide topics whose shares are known to be there.
        self._whole: dict[str, Place] = {}

    # Looking.

    def describe(self, topic: str) -> TopicInfo:
        """How a topic is set, which is the same on all of its shards."""
        info = self._shards.backend(self._places.of(topic)[0]).perform(DescribeTopic(topic))
        if info.settings.spread_index is not None and len(self._places.of(topic)) == 1:
            # Somebody has made it wide since the map was looked at.
            self._places.refreshed(topic)
        self._infos[topic] = self._shards.clock.monotonic(), whole_info(info)
        return whole_info(info)

    def remembered(self, topic: str) -> TopicInfo:
        """The same as it was a moment ago, which is good enough to route by."""
        found = self._infos.get(topic)
        if found is not None and self._shards.clock.monotonic() - found[0] < _REMEMBERED_S:
            return found[1]
        return self.describe(topic)

    def forget(self, topic: str) -> None:
        """Look at the topic again when it is next asked for."""
        self._infos.pop(topic, None)
        self._whole.pop(topic, None)
        self._places.forget(topic)

    def extent(self, topic: str) -> TopicExtent:
        """The lanes of a topic on all of its shards."""
        return merged_extent(
            self._together.of_each(
                self._places.of(topic),
                lambda shard: self._shards.backend(shard).perform(GetExtent(topic)),
            )
        )

    def list(self) -> list[str]:
        """The topics of all shards."""
        each = self._together.of_each(
            self._places.all(), lambda shard: self._shards.backend(shard).perform(ListTopics())
        )
        return sorted({topic for topics in each for topic in topics})

    # Changes.

    def create(self, topic: str, exist_ok: bool, settings: Mapping[str, Any]) -> None:
        """Create a topic. Raises TopicExists, InvalidSettings."""
        if "spread_index" in settings:
            raise InvalidSettings("spread_index", "is for the cluster to set", origin="arguments")
        given = parse_settings(settings, "arguments")
        self._places.forget()
        self._check_dead_letters(topic, given.get("dead_letter_suffix", DEAD_LETTER_SUFFIX))
        place = self._places.of(topic)
        if "spread" not in given and len(place) == 1:
            self._create_on(place, topic, exist_ok, settings)
            return
        if "spread" not in given and all(self._has_any(topic, (shard,)) for shard in place):
            self._refuse_existing(topic, exist_ok)
            return
        spread = given.get("spread", len(place))
        settings = {"partitions": spread, **settings}
        if spread == 1 and len(place) == 1:
            self._create_on(place, topic, exist_ok, settings)
        else:
            self._create_wide(topic, exist_ok, {**settings, "spread": spread})

    def _check_dead_letters(self, topic: str, suffix: str) -> None:
        """Raise TopicExists when a topic on another shard is called as the dead letters are to be."""
        if suffix == DEAD_LETTER_SUFFIX:
            return
        name = topic + suffix
        with suppress(TopicNotFound, InvalidName):
            if self.describe(name).dead_letters_of != topic:
                raise TopicExists(
                    f"dead letters of {topic} would go to {name}, which is there for something else: choose"
                    " another dead_letter_suffix"
                )
        # It will be where this topic is.
        self.forget(name)

    def _create_wide(self, topic: str, exist_ok: bool, settings: Mapping[str, Any]) -> None:
        # Before anything is decided: what is refused leaves nothing behind.
        spread = TopicSettings.make(settings, StorageSettings()).spread
        before = self._shards.refresh().wide_shards(topic)
        if before is None:
            if self._has_any(topic, self._places.of(topic)):
                self._refuse_existing(topic, exist_ok)
                return
        elif len(before) != spread and not (exist_ok and self._has_any(topic, before)):
            raise TopicExists(
                f"{topic}, or its dead letters, are spread over {len(before)} shards: create it with"
                f" spread={len(before)}, or delete them first"
            )
        place = before or tuple(self._shards.widen(topic, spread))
        try:
            self._create_on(place, topic, exist_ok, settings)
        except TopicExists:
            raise
        except QuiverError:
            if before is None and not self._has_any(topic, place):
                self._shards.narrow(topic)
            raise

    def _refuse_existing(self, topic: str, exist_ok: bool) -> None:
        if not exist_ok:
            raise TopicExists(f"the topic {topic} exists already: {TopicExists.advice}")

    def _create_on(self, place: Place, topic: str, exist_ok: bool, settings: Mapping[str, Any]) -> None:
        self.forget(topic)
        if len(place) == 1:
            self._shards.backend(place[0]).perform(CreateTopic(topic, exist_ok, settings))
            return
        missing = [shard for shard in place if not self._has_any(topic, (shard,))]
        if not missing:
            self._refuse_existing(topic, exist_ok)
            return
        if len(missing) < len(place):
            # Somebody died while making it, and what is there says how it is to be.
            there = next(shard for shard in place if shard not in missing)
            found = self._shards.backend(there).perform(DescribeTopic(topic)).settings
            settings = _differing(whole_settings(found))
        for shard in missing:
            share = {**settings, "spread": len(place), "spread_index": place.index(shard)}
            self._shards.backend(shard).perform(CreateTopic(topic, True, share))
        self._whole[topic] = place

    def ensure(self, topic: str) -> Place:
        """Where a topic is, once all shares of a wide one are there."""
        place = self._places.of(topic)
        if len(place) > 1 and self._whole.get(topic) != place:
            for shard in place:
                self._check_share(topic, place, shard)
            # By a put: with at least a partition for each shard.
            self._create_on(place, topic, True, {"partitions": len(place)})
            self._whole[topic] = place
        return place

    def _check_share(self, topic: str, place: Place, shard: int) -> None:
        try:
            settings = self._shards.backend(shard).perform(DescribeTopic(topic)).settings
        except TopicNotFound:
            return
        if (settings.spread, settings.spread_index) != (len(place), place.index(shard)):
            raise Conflict(
                f"{topic} on shard {shard} is not the share of a topic that is spread over {len(place)}"
                " shards: delete the topic, and create it again"
            )

    def alter(self, topic: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a topic, on one shard after the other: to do it again does no harm."""
        self.forget(topic)
        place = self._places.of(topic)
        if len(place) > 1 and "spread_index" in settings:
            raise InvalidSettings("spread_index", "is for the cluster to set", origin="arguments")
        for shard in place:
            self._shards.backend(shard).perform(AlterTopic(topic, settings))
        self.forget(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic on all of its shards. Its dead letters stay there. Raises TopicNotFound."""
        self.forget(topic)
        place = self._places.of(topic)
        self._together.of_known(
            place, lambda shard: self._shards.backend(shard).perform(DeleteTopic(topic))
        )
        self._places.forget()
        named = next((name for name in self._shards.map().topics if self._names(name, topic)), None)
        if len(place) > 1 and named is not None:
            self._forget_wide(named, place)

    def _names(self, wide: str, topic: str) -> bool:
        return self._shards.map().wide_shards(topic) is not None and topic.startswith(wide)

    def _forget_wide(self, topic: str, place: Place) -> None:
        """A topic is wide for as long as something of it is there, its dead letters, too."""
        left = self._together.of_each(
            place, lambda shard: self._shards.backend(shard).perform(ListTopics())
        )
        is_left = any(
            name == topic or self._described_origin(shard, name) == topic
            for shard, names in zip(place, left, strict=True)
            for name in names
            if name.startswith(topic)
        )
        if not is_left:
            self._shards.narrow(topic)

    def _described_origin(self, shard: int, topic: str) -> str | None:
        try:
            return self._shards.backend(shard).perform(DescribeTopic(topic)).dead_letters_of
        except TopicNotFound:
            return None

    def _has_any(self, topic: str, place: Place) -> bool:
        for shard in place:
            try:
                self._shards.backend(shard).perform(DescribeTopic(topic))
            except TopicNotFound:
                continue
            return True
        return False


def _differing(settings: TopicSettings) -> dict[str, Any]:
    """What is set otherwise than by default."""
    defaults = TopicSettings().to_json()
    return {name: value for name, value in settings.to_json().items() if value != defaults[name]}
