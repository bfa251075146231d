"""API keys: who may do what, with which topics. A file keeps their hashes, never themselves."""

from dataclasses import dataclass
from typing import Literal

KeyScope = Literal["read", "write", "admin"]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as the broker knows it."""

    id: str
    scope: KeyScope
    topics: tuple[str, ...]
    """Names or patterns; ("*",) and (">",) stand for all."""
