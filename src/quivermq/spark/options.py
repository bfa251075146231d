"""The options of the data source `quiver`, by name and checked.

Spark hands over text under names in lower case. One that nobody knows is refused by name: a misspelt
`startingOfsets` must not read something else than was meant.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches

from quivermq.errors import InvalidRequest
from quivermq.reading.reader import MessageReader, QueueReader, reader_of

_PLACE = ("path", "data", "server", "key", "endpoint", "region", "archive")
# Those about ranges of messages.
RANGE_NAMES = (
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "minPartitions",
)
_READ = (
    "table",
    "subscribe",
    "subscribePattern",
    *RANGE_NAMES,
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "group",
)
_WRITE = (
    "topic",
    "durability",
    "compression",
    "batchMessages",
    "rateLimit",
    "rateLimitTasks",
    "writeId",
    "queryName",
)

# Those of which exactly one is needed.
PLACE_NAMES = ("path", "data", "server")

# By the name that Spark uses, the name that people use.
NAMES = {name.lower(): name for name in (*_PLACE, *_READ, *_WRITE)}

# What Spark itself puts among the options of a query or of a table.
_SPARKS_OWN = frozenset({"checkpointlocation", "outputmode", "serialization.format", "mergeschema"})

# What Spark says of every table, beside its options and properties.
_OF_TABLES = frozenset({"provider", "owner"})

_FLAGS = {"true": True, "false": False}
_NUMBER_MAX = 2**63 - 1
# Enough for 64 bits, and too few for int() to refuse.
_DIGITS = re.compile(r"-?[0-9]{1,19}")
# As milliseconds this is the year 5138; as microseconds it was in 1973.
MS_MAX = 100_000_000_000_000
_UNITS_US = {
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_DURATION = re.compile(r"([0-9]{1,9})\s*(ms|s|m|min|h|d)")

_NOWHERE = (
    "say where the queue is: the option `path` for a data directory, or `server` for a broker. (Spark does"
    " not tell the options of a table that was made with a list of columns or AS SELECT: make it without,"
    " or use CREATE TEMPORARY VIEW.)"
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a user gave. Can be pickled; every method raises InvalidRequest that names the option."""

    given: Mapping[str, str]
    makes_table: bool = False
    """Whether Spark asks on behalf of a CREATE TABLE."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SourceOptions":
        """Options out of what Spark hands over. Raises InvalidRequest for a name that nobody knows."""
        options = {name.lower(): text for name, text in given.items()}
        makes_table = options.keys() >= _OF_TABLES
        if makes_table:
            options = _of_table(options)
        for name in options:
            if name not in NAMES and name not in _SPARKS_OWN and not name.startswith(("__", "spark.")):
                raise InvalidRequest(_unknown(name))
        return cls(options, makes_table)

    def text(self, name: str) -> str | None:
        """What was given for an option, None when nothing was."""
        assert name.lower() in NAMES, f"{name} is not in the table of options"
        text = self.given.get(name.lower())
        return None if text is None or not text.strip() else text.strip()

    def needed(self, name: str, why: str) -> str:
        """As `text`, of an option that must be there."""
        text = self.text(name)
        if text is None:
            raise InvalidRequest(f"the option `{name}` is missing: {why}")
        return text

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _FLAGS:
            raise InvalidRequest(f"the option `{name}` is true or false, not {text!r}")
        return _FLAGS[text.lower()]

    def number(self, name: str, *, lowest: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not _DIGITS.fullmatch(text) or not lowest <= int(text) <= _NUMBER_MAX:
            raise InvalidRequest(
                f"the option `{name}` is a whole number of at least {lowest}, not {text!r}"
            )
        return int(text)

    def moment_us(self, name: str) -> int | None:
        """A moment as unix microseconds: given as text, or, as Kafka's source has it, in milliseconds."""
        text = self.text(name)
        if text is None:
            return None
        if _DIGITS.fullmatch(text):
            if abs(int(text)) >= MS_MAX:
                raise InvalidRequest(
                    f"the option `{name}` is in milliseconds: {text} would be far in the future"
                )
            return int(text) * 1000
        return _moment_us(name, text)

    def duration_us(self, name: str) -> int | None:
        """A length of time in microseconds, given as Spark writes it: 500ms, 30s, 15m, 2h, 1d."""
        text = self.text(name)
        if text is None:
            return None
        match = _DURATION.fullmatch(text)
        if match is None:
            raise InvalidRequest(
                f"the option `{name}` is a length of time such as 30s or 15m, not {text!r}"
            )
        return int(match[1]) * _UNITS_US[match[2]]

    def reader(self) -> QueueReader:
        """Where the queue is. Raises InvalidRequest unless exactly one place is given."""
        path, data, server = (self.text(name) for name in PLACE_NAMES)
        if path is not None and data is not None and path != data:
            raise InvalidRequest("`data` is another name for `path`: give one of the two")
        if path is None and data is None and server is None:
            raise InvalidRequest(_NOWHERE)
        return reader_of(
            path or data,
            server,
            self.text("key"),
            endpoint=self.text("endpoint"),
            region=self.text("region"),
        )

    def message_reader(self) -> MessageReader:
        """The same with its archive, for whoever reads messages. Raises NotFound where that is missing."""
        return self.reader().with_archive(self.text("archive"))

    @property
    def table(self) -> str:
        """Which table of the queue is meant: `messages`, unless the option says another."""
        return self.text("table") or "messages"


def _of_table(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a CREATE TABLE: of what Spark tells, that which it tells once more as an option.

    The rest is the table's own, as its comment and its properties; but its LOCATION comes as `path`.
    """
    return {name: text for name, text in given.items() if name == "path" or f"option.{name}" in given}


def _moment_us(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"the option `{name}` is a time such as 2026-01-31T12:00:00Z or unix milliseconds, not {text!r}"
        ) from None
    # Without a time zone it is meant as the column `timestamp` is shown: in UTC.
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return round(moment.timestamp() * 1_000_000)


def _unknown(name: str) -> str:
    close = get_close_matches(name, NAMES, 1)
    hint = f"did you mean `{NAMES[close[0]]}`?" if close else f"there are {', '.join(NAMES.values())}"
    return f"the data source quiver has no option `{name}`: {hint}"
