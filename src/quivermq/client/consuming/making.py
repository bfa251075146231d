"""A consumer from its options, each of them checked."""

from collections.abc import Iterable
from typing import get_args

from quivermq.client.blocking.shell import Shell
from quivermq.client.consuming.consumer import Callback, RemoteConsumer, Reset, Strategy
from quivermq.client.core.choice import check_choice
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import InvalidRequest
from quivermq.topic.incoming import check_number
from quivermq.topic.names import Pattern, check_group_name, check_topic_name, is_pattern

_HOUR_MS = 3_600_000


def make_consumer(
    shell: Shell,
    calls: TopicCalls,
    topics: str | Iterable[str],
    group: str,
    *,
    strategy: Strategy,
    auto_commit_ms: int | None,
    reset: Reset,
    on_assigned: Callback | None,
    on_revoked: Callback | None,
    max_poll: int,
    session_timeout_ms: int,
) -> RemoteConsumer:
    """Raises InvalidRequest and InvalidName, before anybody hears of the consumer."""
    shell.check_open()
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise InvalidRequest("a consumer reads at least one topic")
    for name in names:
        if is_pattern(name):
            Pattern(name)
        else:
            check_topic_name(name)
    check_group_name(group)
    check_choice("strategy", strategy, get_args(Strategy))
    check_choice("reset", reset, get_args(Reset))
    if auto_commit_ms is not None:
        check_number("auto_commit_ms", auto_commit_ms, 0, _HOUR_MS)
    check_number("max_poll", max_poll, 1, 100_000)
    check_number("session_timeout_ms", session_timeout_ms, 100, _HOUR_MS)
    return RemoteConsumer(
        shell,
        calls,
        names,
        group,
        strategy=strategy,
        auto_commit_ms=auto_commit_ms,
        reset=reset,
        on_assigned=on_assigned,
        on_revoked=on_revoked,
        max_poll=max_poll,
        session_timeout_ms=session_timeout_ms,
    )
