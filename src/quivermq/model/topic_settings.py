"""The settings of one topic: what may be set, what goes together, and how it is written as JSON.

A topic has all of its settings from the moment it is made. What nobody named is copied from the storage
settings of that moment, so that a topic does not change because somebody edits a file.
"""

# ruff: noqa: RUF009  (The calls return a dataclass field, which is meant to stand there.)

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Literal, TypedDict

from quivermq.errors import InvalidSettings
from quivermq.model.lanes import PRIORITIES
from quivermq.model.names import DEAD_LETTER_SUFFIX, SUFFIX_PATTERN
from quivermq.settings import CodecName, Durability, StorageSettings
from quivermq.settings.setting import MS_MAX, choice, decimal, flag, number, settings_of, text, weights
from quivermq.settings.tree import wrong_level

Ordering = Literal["none", "key"]
BacklogPolicy = Literal["reject", "drop_oldest"]
Cleanup = Literal["delete", "compact"]
PriorityWeights = tuple[int, int, int] | Literal["strict"]

# A number, or a text with a unit, such as "64MiB" or "1m".
Number = int | str

PARTITIONS_MAX = 1024

# Added to the time of today, as microseconds, it still fits into 64 bits with a sign.
_PERIOD_MS_MAX = MS_MAX // 2
_KEY_LENGTH_MAX = 80

# What a dead-letter topic does not have: whatever is set for other topics, a dead letter stays.
_KEPT_FOR_EVER: dict[str, Any] = {
    "retention_ms": None,
    "retention_bytes": None,
    "retention_messages": None,
    "segments_max": None,
    "segments_min": 1,
    "segment_ms": None,
    "retention_force": False,
    "delete_finished": False,
    "backlog_messages_max": None,
    "backlog_bytes_max": None,
    "cleanup": "delete",
}

# The first must not be larger than the second, if there is a second.
_ORDERED = (("segments_min", "segments_max"), ("backoff_ms", "backoff_ms_max"))


class TopicOptions(TypedDict, total=False):
    """The settings of a topic as keyword arguments: those of `TopicSettings`, by the same names."""

    partitions: Number
    spread: Number
    durability: Durability
    ordering: Ordering
    lease_ms: Number
    attempts_max: Number | None
    backoff_ms: Number
    backoff_multiplier: float
    backoff_ms_max: Number
    dedup_window_ms: Number
    dedup_entries_max: Number
    backlog_messages_max: Number | None
    backlog_bytes_max: Number | None
    backlog_policy: BacklogPolicy
    message_bytes_max: Number
    ttl_ms: Number | None
    dead_letter_expired: bool
    dead_letters: bool
    dead_letter_retention_ms: Number | None
    dead_letter_suffix: str
    priority_weights: PriorityWeights | str
    priority_age_ms: Number | None
    segment_bytes: Number
    segment_messages: Number | None
    segment_ms: Number | None
    retention_ms: Number | None
    retention_bytes: Number | None
    retention_messages: Number | None
    segments_max: Number | None
    segments_min: Number
    retention_force: bool
    delete_finished: bool
    codec: CodecName
    compression_level: Number | None
    compression_bytes_min: Number
    cleanup: Cleanup


def _as_in_storage(name: str) -> Any:
    """A field that has the default, the range and the doc of the storage setting of that name."""
    declared = StorageSettings.__dataclass_fields__[name]
    return field(default=declared.default, metadata=declared.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """How a topic is divided, delivered and kept. Raises InvalidSettings."""

    partitions: int = number(
        1, "Into how many logs the topic is divided; can only grow.", highest=PARTITIONS_MAX
    )
    spread: int = number(
        1,
        "Over how many shards of a cluster the partitions are dealt; stays as the topic was made.",
        highest=PARTITIONS_MAX,
    )
    spread_index: int | None = number(
        None,
        "Which share of a wide topic this data directory has. The cluster sets it, nobody else.",
        lowest=0,
        highest=PARTITIONS_MAX - 1,
    )
    durability: Durability = _as_in_storage("durability")
    ordering: Ordering = choice(
        "none", "With `key`, a message waits for the earlier ones of its key to be finished."
    )
    lease_ms: int = number(
        30_000,
        "How long a consumer has a message to itself before it is delivered again.",
        highest=_PERIOD_MS_MAX,
    )
    attempts_max: int | None = number(3, "After this many deliveries a message becomes a dead letter.")
    backoff_ms: int = number(
        1000,
        "How long the second delivery waits at most; grows with each attempt.",
        lowest=0,
        highest=_PERIOD_MS_MAX,
    )
    backoff_multiplier: float = decimal(
        2.0, "By how much `backoff_ms` grows with each attempt.", lowest=1, highest=1000
    )
    backoff_ms_max: int = number(
        60_000, "Where the growing of `backoff_ms` ends.", lowest=0, highest=_PERIOD_MS_MAX
    )
    dedup_window_ms: int = number(
        300_000,
        "How long a `dedup_id` is remembered; 0 switches that off.",
        lowest=0,
        highest=_PERIOD_MS_MAX,
    )
    dedup_entries_max: int = number(
        250_000,
        "How many `dedup_id`s are remembered at most: one more, and the oldest is forgotten.",
        highest=100_000_000,
    )
    backlog_messages_max: int | None = number(
        None, "How many unfinished messages there may be before `backlog_policy` applies."
    )
    backlog_bytes_max: int | None = number(
        None, "How large the unfinished messages may be before `backlog_policy` applies."
    )
    backlog_policy: BacklogPolicy = choice(
        "reject", "What a full backlog does to a new message: refuse it, or make room for it."
    )
    message_bytes_max: int = _as_in_storage("message_bytes_max")
    ttl_ms: int | None = number(
        None, "A message without a ttl of its own expires after this.", highest=_PERIOD_MS_MAX
    )
    dead_letter_expired: bool = flag(False, "Whether an expired message becomes a dead letter.")
    dead_letters: bool = flag(
        True,
        "Whether a message that is given up becomes a dead letter; without, it is dropped and counted.",
    )
    dead_letter_retention_ms: int | None = number(
        None,
        "How long dead letters are kept; nothing else limits that, and by default they stay.",
        highest=_PERIOD_MS_MAX,
    )
    dead_letter_suffix: str = text(
        DEAD_LETTER_SUFFIX,
        "What follows the topic's name in the name of its dead-letter topic; stays as the topic was made.",
        pattern=SUFFIX_PATTERN,
        expected="`.`, `-` or `_`, and up to 49 more of letters, digits, `.`, `_` and `-`",
    )
    priority_weights: PriorityWeights = weights(
        (8, 4, 1),
        "How many turns high, normal and low get; with `strict` the higher always goes first.",
        parts=PRIORITIES,
        highest=1000,
    )
    priority_age_ms: int | None = number(
        None,
        "A message that has waited longer goes before those of a higher priority; with `strict`, too.",
        highest=_PERIOD_MS_MAX,
    )
    segment_bytes: int = _as_in_storage("segment_bytes")
    segment_messages: int | None = _as_in_storage("segment_messages")
    segment_ms: int | None = _as_in_storage("segment_ms")
    retention_ms: int | None = _as_in_storage("retention_ms")
    retention_bytes: int | None = _as_in_storage("retention_bytes")
    retention_messages: int | None = _as_in_storage("retention_messages")
    segments_max: int | None = _as_in_storage("segments_max")
    segments_min: int = _as_in_storage("segments_min")
    retention_force: bool = flag(False, "Whether retention also takes what a group has not finished with.")
    delete_finished: bool = flag(
        False, "Whether a segment goes as soon as every group has finished with it."
    )
    codec: CodecName = _as_in_storage("codec")
    compression_level: int | None = _as_in_storage("compression_level")
    compression_bytes_min: int = _as_in_storage("compression_bytes_min")
    cleanup: Cleanup = choice(
        "delete",
        "With `compact`, `quiver pipeline compact` lets only the latest message of each key stay."
        " The limits of retention hold all the same, and by default there are none.",
    )

    def __post_init__(self) -> None:
        settings, values = settings_of(TopicSettings), self._values()
        for name, setting in settings.items():
            try:
                setting.check(values[name])
            except ValueError as error:
                raise InvalidSettings(name, str(error), origin="arguments") from None
        changed = {name for name, value in values.items() if value != settings[name].default}
        _check_order(values, changed, origin="arguments")
        _check_spread(values, origin="arguments")
        if reason := wrong_level(self.codec, self.compression_level):
            raise InvalidSettings("compression_level", reason, origin="arguments")

    @classmethod
    def make(
        cls,
        given: Mapping[str, object],
        defaults: StorageSettings,
        origin: str = "arguments",
        *,
        preset: Mapping[str, Any] = MappingProxyType({}),
    ) -> "TopicSettings":
        """The settings of a new topic: those given, which may be text, then `preset`, then `defaults`.

        Raises InvalidSettings, also when the logs of the topic could not be kept with `defaults`.
        """
        values = {name: getattr(defaults, name) for name in storage_names()}
        settings = cls()._with(values, values, origin)._with(preset, preset, origin)
        settings = settings._with(parse_settings(given, origin), given, origin)
        settings.storage(defaults, origin)
        return settings

    def changed(self, given: Mapping[str, object], origin: str = "arguments") -> "TopicSettings":
        """These settings with some replaced. Raises InvalidSettings, also for fewer partitions.

        Whether they go with the storage settings is for `storage` to say.
        """
        values = parse_settings(given, origin)
        partitions = values.get("partitions", self.partitions)
        if partitions < self.partitions:
            reason = f"{partitions} is less than {self.partitions}: a topic cannot lose partitions"
            raise InvalidSettings("partitions", reason, origin=origin)
        for name in ("spread", "spread_index"):
            if values.get(name, getattr(self, name)) != getattr(self, name):
                # Its partitions, and the order of its keys, are where they are.
                reason = f"stays {getattr(self, name)}: it can only be set when the topic is created"
                raise InvalidSettings(name, reason, origin=origin)
        if values.get("dead_letter_suffix", self.dead_letter_suffix) != self.dead_letter_suffix:
            # Those that are there already would be dead letters of nothing.
            reason = f"stays {self.dead_letter_suffix!r}: it can only be set when the topic is created"
            raise InvalidSettings("dead_letter_suffix", reason, origin=origin)
        return self._with(values, given, origin)

    def storage(self, defaults: StorageSettings, origin: str = "arguments") -> StorageSettings:
        """The settings of the topic's logs: its own, and `defaults` for what a topic cannot set.

        Raises InvalidSettings for messages that are too large for the frames of `defaults`.
        """
        try:
            return _storage(defaults, tuple(getattr(self, name) for name in storage_names()))
        except InvalidSettings as error:
            # Both are valid in themselves, and this is all that they have to agree on.
            raise InvalidSettings("message_bytes_max", error.reason, origin=origin) from None

    def of_dead_letters(self, own: "TopicSettings") -> "TopicSettings":
        """The settings of the dead-letter topic of a topic with these, which has `own` of its own.

        It has at least as many partitions, so that each dead letter has the partition that its message
        had, and nothing but `dead_letter_retention_ms` takes anything out of it.
        """
        kept_ms = self.dead_letter_retention_ms
        return replace(
            own,
            partitions=max(self.partitions, own.partitions),
            # They lie where their messages lay, so that a transfer stays inside one directory.
            spread=self.spread,
            spread_index=self.spread_index,
            # Whole segments go, so none may grow old: a dead letter now and then would keep all of it.
            **(_KEPT_FOR_EVER | {"retention_ms": kept_ms, "segment_ms": kept_ms}),
        )

    @property
    def own_partitions(self) -> range:
        """The partitions that are in this data directory: all of them, but for a wide topic."""
        return range(
            self.spread_index or 0, self.partitions, 1 if self.spread_index is None else self.spread
        )

    def own_partition(self, number: int) -> int:
        """The partition for what was in that one elsewhere: the same, if this directory has it."""
        own = self.own_partitions
        return number if number in own else own[number % len(own)]

    def own_share_of(self, limit: int) -> int:
        """How much of a limit of the whole topic is for the partitions in this directory."""
        return -(-limit * len(self.own_partitions) // self.partitions)

    @property
    def is_bounded(self) -> bool:
        """Whether the backlog has a limit."""
        return self.backlog_messages_max is not None or self.backlog_bytes_max is not None

    def to_json(self) -> dict[str, object]:
        """Every setting, of the types that JSON has."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self._values().items()
        }

    @classmethod
    def from_json(cls, document: object, origin: str = "arguments") -> "TopicSettings":
        """What `to_json` made; a setting that is not there has its default. Raises InvalidSettings."""
        values = parse_settings(document, origin)
        return _defaults()._with(values, values, origin)

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in settings_of(TopicSettings)}

    def _with(self, values: Mapping[str, Any], named: Container[str], origin: str) -> "TopicSettings":
        if not values:
            return self
        both = {**self._values(), **values}
        _check_order(both, named, origin)
        _check_spread(both, origin)
        return replace(self, **values)


@cache
def _defaults() -> TopicSettings:
    return TopicSettings()


# Most topics of a queue are set alike, and there may be thousands of them to open.
@lru_cache(maxsize=64)
def _storage(defaults: StorageSettings, own: tuple[Any, ...]) -> StorageSettings:
    """`defaults` with what a topic has of its own, in the order of `storage_names`."""
    return replace(defaults, **dict(zip(storage_names(), own, strict=True)))


def set_by_origin() -> list[str]:
    """The settings of a dead-letter topic that follow from those of its topic, and are changed there."""
    return list(_KEPT_FOR_EVER)


@cache
def storage_names() -> tuple[str, ...]:
    """The settings that a topic has in common with the storage settings."""
    return tuple(name for name in settings_of(TopicSettings) if name in settings_of(StorageSettings))


def parse_settings(given: object, origin: str) -> dict[str, Any]:
    """Settings of a topic as given, by name. Raises InvalidSettings for one that is not, or cannot be."""
    if not isinstance(given, Mapping):
        reason = f"is a {type(given).__name__} and not a mapping of names to values"
        raise InvalidSettings("settings", reason, origin=origin)
    settings = settings_of(TopicSettings)
    values = {}
    for key, raw in given.items():
        if not isinstance(key, str) or key not in settings:
            raise _unknown(key, origin)
        try:
            values[key] = settings[key].parse(raw)
        except ValueError as error:
            raise InvalidSettings(key, str(error), origin=origin) from None
    return values


def _unknown(key: object, origin: str) -> InvalidSettings:
    if not isinstance(key, str):
        return InvalidSettings(type(key).__name__, "the name of a setting is a str", origin=origin)
    shown = key[:_KEY_LENGTH_MAX]
    close = get_close_matches(shown, settings_of(TopicSettings), n=1, cutoff=0.7)
    hint = f"; did you mean {close[0]}?" if close else ""
    return InvalidSettings(shown, f"topics have no such setting{hint}", origin=origin)


def _check_order(values: Mapping[str, Any], changed: Container[str], origin: str) -> None:
    for small, large in _ORDERED:
        low, high = values[small], values[large]
        if high is not None and low > high:
            # Blame the one that was changed: that is the one somebody can look up.
            blamed = large if large in changed else small
            reason = f"{large} is {high} and must be at least {low}, that is {small}"
            raise InvalidSettings(blamed, reason, origin=origin)


def _check_spread(values: Mapping[str, Any], origin: str) -> None:
    spread, index, partitions = values["spread"], values["spread_index"], values["partitions"]
    if spread > partitions:
        reason = f"{spread} is more than the {partitions} partitions: each shard has at least one"
        raise InvalidSettings("spread", reason, origin=origin)
    if index is not None and index >= spread:
        reason = f"{index} is none of the {spread} shares that the topic has"
        raise InvalidSettings("spread_index", reason, origin=origin)
