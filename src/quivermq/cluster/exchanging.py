"""The calls of one shard: they go to whoever owns it now, and wait for the next owner when nobody does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING

from quivermq.client.core.call import Answer, Broken, Call
from quivermq.errors import Closing, NotOwner, Unavailable
from quivermq.helping import Latch

if TYPE_CHECKING:
    from quivermq.cluster.connecting import HttpShards

# Between two looks at who owns a shard that nobody serves.
_FIRST_S = 0.02
_LONGEST_S = 0.5
# So often the answer that the shard is elsewhere is followed without a wait.
_MOVES_MAX = 3
_REDIRECT = 307
_CONFLICT = 409
_UNAVAILABLE = 503


class ShardExchange:
    """Carries the calls of one shard. Thread-safe.

    What certainly did nothing, because nobody was there or it was the wrong broker, is sent again for
    `patience_s` seconds. What may have done something goes back to whoever asked, who knows whether it may
    be repeated.
    """

    def __init__(self, shards: "HttpShards", shard: int, patience_s: float, *, is_prompt: bool) -> None:
        self._shards = shards
        self._shard = shard
        self._patience_s = patience_s
        self._is_prompt = is_prompt
        self._pause = Latch()

    def exchange(self, call: Call) -> Answer | Broken:
        there = replace(call, path=f"/shards/{self._shard}{call.path}")
        clock = self._shards.clock
        end, wait_s, moves = clock.monotonic() + self._patience_s, _FIRST_S, 0
        while True:
            asked_at = clock.monotonic()
            outcome = self._exchange_once(there)
            if not is_elsewhere(outcome, call):
                return outcome
            self.check_open()
            moves += isinstance(outcome, Answer) and outcome.status == _REDIRECT
            left = end - clock.monotonic()
            if left <= 0 and (moves == 0 or moves > _MOVES_MAX):
                return _refusal(outcome, self._shard)
            self._shards.refresh_after(asked_at)
            if not 0 < moves <= _MOVES_MAX:
                self._pause.wait(min(wait_s * (0.5 + random() / 2), left))
                self.check_open()
                wait_s = min(2 * wait_s, _LONGEST_S)

    def _exchange_once(self, call: Call) -> Answer | Broken:
        url = self._shards.url_of(self._shard)
        if url is None:
            return Broken(f"nobody serves shard {self._shard} just now", was_sent=False)
        return self._shards.pool(url, is_prompt=self._is_prompt).exchange(call)

    def check_open(self) -> None:
        self._shards.check_open()

    def interrupt(self) -> None:
        """All shards are interrupted together."""

    def resume(self) -> None:
        """All shards are resumed together."""

    def close(self) -> None:
        """All shards are closed together."""
        self._pause.set()


class TopicExchange:
    """Carries the calls of one topic, each to the shard of the partition that it names."""

    def __init__(self, exchanges: Sequence[ShardExchange]) -> None:
        self._exchanges = exchanges
        self.check_open = exchanges[0].check_open
        self.interrupt = exchanges[0].interrupt
        self.resume = exchanges[0].resume

    def exchange(self, call: Call) -> Answer | Broken:
        partition = int(call.query.get("partition", "0"))
        return self._exchanges[partition % len(self._exchanges)].exchange(call)

    def close(self) -> None:
        """All shards are closed together."""


def is_elsewhere(outcome: Answer | Broken, call: Call) -> bool:
    """Whether nothing was done, because whoever was asked is not there or does not own the shard."""
    if isinstance(outcome, Broken):
        return not outcome.was_sent
    if outcome.status == _REDIRECT:
        return True
    if outcome.status == _UNAVAILABLE:
        return _code_of(outcome) in (Unavailable.code, Closing.code)
    # It was the owner when it began, and nobody knows how far it came.
    return outcome.status == _CONFLICT and call.is_repeatable and _code_of(outcome) == NotOwner.code


def _refusal(outcome: Answer | Broken, shard: int) -> Answer | Broken:
    """What the caller is told: a redirect is no error to those who read the answer."""
    if isinstance(outcome, Answer) and outcome.status == _REDIRECT:
        return Broken(f"shard {shard} is served by one broker after another", was_sent=False)
    return outcome


def _code_of(answer: Answer) -> str | None:
    try:
        code = json.loads(answer.body)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        return None
    return code if isinstance(code, str) else None
