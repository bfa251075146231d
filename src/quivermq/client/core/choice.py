"""A word of a few."""

from collections.abc import Sequence

from quivermq.errors import InvalidRequest


def check_choice(name: str, given: object, choices: Sequence[str]) -> None:
    """Raise InvalidRequest unless it is one of the words."""
    if given not in choices:
        raise InvalidRequest(f"{name} is one of {', '.join(choices)}, not {given!r}")
