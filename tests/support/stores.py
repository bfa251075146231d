"""Buckets for tests that must not need one: objects in memory behind the URLs of buckets."""

from collections.abc import Mapping

import pytest

from quivermq.shared.memory import MemoryStore


class MemoryBuckets:
    """A store in memory for each URL, in place of those that `obstore` reaches."""

    def __init__(self) -> None:
        self.stores: dict[str, MemoryStore] = {}
        self.options: list[dict[str, str]] = []

    def at(self, url: str) -> MemoryStore:
        return self.stores.setdefault(url, MemoryStore())

    def opened(
        self, url: str, options: Mapping[str, str] | None = None, *, timeout_s: float = 0
    ) -> MemoryStore:
        assert timeout_s >= 0
        self.options.append(dict(options or {}))
        return self.at(url).beside(lambda step: self.at(url).fault(step))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let everybody in this process find them."""
        for module in ("quivermq.shared.opening", "quivermq.shared.beside"):
            monkeypatch.setattr(f"{module}.BucketStore", self.opened)
