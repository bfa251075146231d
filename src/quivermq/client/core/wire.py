"""What the wire needs besides `model.json`: paths, bodies, parameters, and the check before sending."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from quivermq.clock import SteadyClock, SystemClock
from quivermq.errors import QuiverError
from quivermq.frame import Wanted
from quivermq.model.json import Document, base64_text, message_json
from quivermq.model.lanes import lane_number
from quivermq.model.messages import Message
from quivermq.model.topic_settings import PARTITIONS_MAX, TopicSettings
from quivermq.settings import StorageSettings
from quivermq.topic.incoming import Batch, check_messages

# Only what no broker can take is refused here; its own limits are its own to tell.
_BYTES_MAX = 2**31 - 1
_WIDEST = StorageSettings(
    message_bytes_max=_BYTES_MAX // 2, frame_bytes_max=_BYTES_MAX, frame_raw_bytes_max=_BYTES_MAX
)
_ANY_TOPIC = TopicSettings(partitions=PARTITIONS_MAX)
_CLOCK = SteadyClock(SystemClock())
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def path_of(*parts: str | int) -> str:
    """A path whose parts may hold anything. What is no text, as a lone surrogate, is there for nobody."""
    return "/v1/" + "/".join(quote(str(part), safe="", errors="replace") for part in parts)


def place_of(document: Mapping[str, Any], offset: str = "offset") -> str:
    """Where something lies in its topic, for the parameter `after`; `offset` is the field of its offset."""
    return f"{document['partition']}-{lane_number(document['priority'])}-{document[offset]}"


def encoded(document: Mapping[str, Any]) -> bytes:
    """JSON, in which a thing that JSON has no type for is what it looks like."""
    return _encode(document).encode()


def decoded(body: bytes) -> Any:
    """What an answer says. Raises QuiverError when it is not JSON."""
    try:
        return json.loads(body)
    except ValueError:
        raise QuiverError(f"the answer is not JSON: {body[:80]!r}") from None


def checked(messages: Sequence[bytes | Message]) -> Batch:
    """The messages column by column. Raises InvalidRequest for one that could not be put anywhere."""
    return check_messages(messages, _ANY_TOPIC, _WIDEST, _CLOCK)


def checked_json(message: Message) -> Document:
    """A message to put. Raises InvalidRequest."""
    checked([message])
    return message_json(message)


def wanted_query(wanted: Wanted) -> dict[str, str]:
    """What to look for, as parameters of a call."""
    query: dict[str, str] = {}
    if wanted.key is not None:
        query["key_base64"] = base64_text(wanted.key)
    if wanted.text:
        query["text_base64"] = base64_text(wanted.text)
    return query
