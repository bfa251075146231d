"""Dead letters that somebody mends before they go back: what goes in their place."""

from collections.abc import Mapping
from dataclasses import replace

from quivermq.errors import InvalidRequest
from quivermq.model.dead_letters import DeadLetter, is_dlq_header
from quivermq.model.messages import Message

Edits = Mapping[str, Message]


def check_edits(edits: object) -> None:
    """Raise InvalidRequest unless these are messages by the ids of dead letters, or None.

    A message that goes back keeps its place, its time and its priority: only what is in it may be another.
    """
    if edits is None:
        return
    if not isinstance(edits, Mapping) or not all(isinstance(name, str) for name in edits):
        raise InvalidRequest(f"edits are messages by the ids of dead letters, not a {type(edits).__name__}")
    for name, message in edits.items():
        if not isinstance(message, Message):
            raise InvalidRequest(f"the edit of {name} is a Message, not a {type(message).__name__}")
        if replace(message, value=b"", key=None, headers=None) != Message(b""):
            raise InvalidRequest(
                f"the edit of {name} has a value, a key and headers only: it goes back where it came from"
            )


def edited(letter: DeadLetter, message: Message) -> DeadLetter:
    """The dead letter with what is in the message, and the story of its own."""
    told = {} if letter.by_hand else letter.headers
    story = {name: text for name, text in told.items() if is_dlq_header(name)}
    headers = {**dict(message.headers or {}), **story}
    return letter._replace(value=message.value, key=message.key, headers=headers)
