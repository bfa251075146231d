"""The settings of FluxMQ queues, `config/queues.json`: what has a counterpart here, and what is left."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quivermq.disk import Disk
from quivermq.importers.files import json_object
from quivermq.importers.limits import MESSAGE_BYTES_MAX
from quivermq.importers.model import Findings
from quivermq.settings.setting import settings_of
from quivermq.topic.settings import TopicSettings

_NS_PER_MS = 1_000_000
_DURABILITY = {"fsync": "fsync", "buffered": "os"}
# Of no use without the queue's own broker, or told by its files already.
_OWN = frozenset(("Name", "Type", "LastConsumerDisconnect", "DLQConfig.Topic"))


@dataclass(slots=True)
class QueueSettings:
    """What the settings of one queue come to."""

    settings: dict[str, object] = field(default_factory=dict)
    """As those of a topic are called."""
    letters: str | None = None
    """The queue that is named for its dead letters."""


def read_settings(disk: Disk, directory: Path, findings: Findings) -> dict[str, QueueSettings]:
    """By queue, what the file says of it. What has no counterpart is told."""
    path = directory / "config" / "queues.json"
    if not disk.exists(path):
        return {}
    document = json_object(disk, path, findings, "the settings of the queues are")
    if document is None:
        return {}
    configs = document.get("configs")
    found: dict[str, QueueSettings] = {}
    for config in configs if isinstance(configs, list) else [configs]:
        if not isinstance(config, dict) or not isinstance(config.get("Name"), str):
            findings.add(path, None, f"an entry of it makes no sense: {config!r:.80}", is_damage=False)
            continue
        name = config["Name"]
        found[name] = QueueSettings(dict(_counterparts(config)), _letters(config))
        if left := list(_left(config)):
            problem = f"of the queue {name!r:.80} has no counterpart and is not imported: {', '.join(left)}"
            findings.add(path, None, problem, is_damage=False)
    return found


def _letters(config: Mapping[str, Any]) -> str | None:
    topic = _part(config, "DLQConfig").get("Topic")
    return topic if isinstance(topic, str) and topic and topic != config["Name"] else None


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _counterparts(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The settings of a topic, each with a value that it may have."""
    declared = settings_of(TopicSettings)
    for name, value in _translated(config):
        try:
            if value is not None and name in declared:
                declared[name].check(value)
                yield name, value
        except ValueError:
            # Whoever wrote it meant something else; what is left out is among what is told.
            continue


def _translated(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    retry, retention = _part(config, "RetryPolicy"), _part(config, "Retention")
    retries = _count(retry.get("MaxRetries"))
    yield "attempts_max", None if retries is None else retries + 1
    # Neither is checked alone: the first must not be larger than the second.
    first_ms, last_ms = _ms(retry.get("InitialBackoff")), _ms(retry.get("MaxBackoff"))
    if first_ms is not None and last_ms is not None and first_ms <= last_ms:
        yield "backoff_ms", first_ms
        yield "backoff_ms_max", last_ms
    multiplier = retry.get("BackoffMultiplier")
    yield "backoff_multiplier", float(multiplier) if isinstance(multiplier, int | float) else None
    yield "lease_ms", _ms(config.get("DeliveryTimeout"))
    yield "ttl_ms", _ms(config.get("MessageTTL"))
    size = _count(config.get("MaxMessageSize"))
    yield "message_bytes_max", None if size is None else min(size, MESSAGE_BYTES_MAX)
    yield "durability", _DURABILITY.get(str(config.get("AckDurability")))
    yield "retention_ms", _ms(retention.get("RetentionTime"))
    yield "retention_bytes", _count(retention.get("RetentionBytes"))
    yield "retention_messages", _count(retention.get("RetentionMessages"))
    if retention.get("CompactionEnabled") is True and not retention.get("CompactionKey"):
        yield "cleanup", "compact"
    if _part(config, "DLQConfig").get("Enabled") is False:
        yield "dead_letters", False


# By the names there, the setting here.
_NAMES = {
    "RetryPolicy.MaxRetries": "attempts_max",
    "RetryPolicy.InitialBackoff": "backoff_ms",
    "RetryPolicy.MaxBackoff": "backoff_ms_max",
    "RetryPolicy.BackoffMultiplier": "backoff_multiplier",
    "DeliveryTimeout": "lease_ms",
    "MessageTTL": "ttl_ms",
    "MaxMessageSize": "message_bytes_max",
    "AckDurability": "durability",
    "Retention.RetentionTime": "retention_ms",
    "Retention.RetentionBytes": "retention_bytes",
    "Retention.RetentionMessages": "retention_messages",
    "Retention.CompactionEnabled": "cleanup",
    "DLQConfig.Enabled": "dead_letters",
}


def _left(config: Mapping[str, Any]) -> Iterator[str]:
    """What is set and has no counterpart, as it is called there."""
    taken = dict(_counterparts(config))
    for name, value in sorted(_flat(config)):
        is_default = name in ("DLQConfig.Enabled", "Durable", "RetryPolicy.BackoffMultiplier")
        if name in _OWN or _NAMES.get(name) in taken or not value or (is_default and value in (True, 2)):
            continue
        if name.startswith("Replication.") and not _part(config, "Replication").get("Enabled"):
            continue
        yield f"{name} {value!r:.60}"


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield str(name), value


def _count(told: object) -> int | None:
    return told if type(told) is int and told > 0 else None


def _ms(told: object) -> int | None:
    """A Go duration, in nanoseconds; None for none."""
    count = _count(told)
    return None if count is None else max(1, count // _NS_PER_MS)
