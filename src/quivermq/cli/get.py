"""`quiver get`: take messages out of a topic and write them to standard output."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated

from typer import Option

from quivermq.cli.connecting import name_close_topics, open_queue
from quivermq.cli.durations import parse_seconds
from quivermq.cli.handover import Handover, handing_over
from quivermq.cli.options import DataOption, GroupOption, NdjsonOption, ServerOption, TopicArgument
from quivermq.cli.outgoing import FormatOption, check_reader, encoder
from quivermq.cli.output import say
from quivermq.cli.patience import Patience
from quivermq.cli.stopping import stopping_orderly
from quivermq.delivery.taken import release_quietly
from quivermq.errors import InvalidRequest, LeaseExpired, NotFound, QuiverError, TopicNotFound
from quivermq.model.deliveries import Delivery
from quivermq.model.json import DELIVERED
from quivermq.model.names import is_pattern
from quivermq.queue.connection import Connection
from quivermq.queue.queue import Queue

_FOREVER = "forever"
# How long it may take to notice that nobody reads the output any more.
_TURN_SECONDS = 1.0


def command(
    topic: TopicArgument,
    group: GroupOption = "default",
    count: Annotated[int, Option(help="How many messages at most.", min=1)] = 1,
    everything: Annotated[bool, Option("--all", help="All that there are, however many.")] = False,
    wait: Annotated[
        str | None, Option(help="How long to wait for the next message: 500ms, 5s, 2m, 1h, or `forever`.")
    ] = None,
    ack: Annotated[
        bool,
        Option(
            help="Whether messages are done with once they are read. Without, they stay leased, and"
            " come again unless somebody settles them by their receipt."
        ),
    ] = True,
    lease: Annotated[
        str | None, Option(help="How long they are leased. By default as the topic is set.")
    ] = None,
    batch: Annotated[
        int,
        Option(
            help="How many are taken and acked at once: more is faster, fewer leaves more to others.",
            min=1,
            max=10_000,
        ),
    ] = 100,
    fail_empty: Annotated[
        bool, Option("--fail-empty", help="Exit with 3 when there was no message.")
    ] = False,
    shape: FormatOption = "value",
    data: DataOption = None,
    server: ServerOption = None,
    as_json: NdjsonOption = False,
) -> None:
    """Take messages and write them to standard output. TOPIC may be a pattern, such as `events.*`.

    A message is acknowledged after the next program has read it from the pipe, on Linux, and otherwise
    after it was written and flushed. When the output is closed, or the command stopped, all others are
    released: they come again at once, and no attempt counts. So `get --all | head -1` takes one message.
    With `--wait`, a broker that is started again is waited for.
    """
    if everything and count != 1:
        raise InvalidRequest("--all has no --count: give one of them")
    timeout = _timeout(wait)
    lease_seconds = None if lease is None else parse_seconds(lease)
    encode = encoder("ndjson" if as_json else shape, DELIVERED)
    with stopping_orderly(), open_queue(data, server) as mq, handing_over() as handover:
        _check_topic(mq, topic, is_waited_for=timeout != 0)
        queue = mq.queue(topic, group)
        written = 0
        patience = Patience()
        wanted = None if everything else count
        for taken in _batches(queue, wanted, batch, timeout, lease_seconds, patience):
            try:
                seconds = lease_seconds or patience.ask(partial(_lease_seconds, mq, taken), _end(timeout))
            except BaseException:
                release_quietly(queue.release, taken)
                raise
            with _renewed(queue, taken, seconds):
                settle = partial(_ack, queue, patience, timeout) if ack else _keep
                _deliver(queue, taken, handover, encode, settle)
            written += len(taken)
    if fail_empty and not written:
        raise NotFound(f"there is no message for the group {group} in {topic}")


def _check_topic(mq: Connection, topic: str, *, is_waited_for: bool) -> None:
    """Raise TopicNotFound for one that is not there: what is misspelt would look empty for ever."""
    if is_pattern(topic):
        return
    try:
        mq.topic(topic)
    except TopicNotFound as error:
        if not is_waited_for:
            raise
        name_close_topics(error, mq.topics)
        say(f"{error} Waiting for it")


def _timeout(wait: str | None) -> float | None:
    """Seconds; None is for ever."""
    if wait == _FOREVER:
        return None
    return 0 if wait is None else parse_seconds(wait)


def _batches(
    queue: Queue,
    count: int | None,
    batch_max: int,
    timeout: float | None,
    lease: float | None,
    patience: Patience,
) -> Iterator[list[Delivery]]:
    """Batches up to `count` messages, or until none comes within `timeout`."""
    left = count
    while left is None or left > 0:
        wanted = batch_max if left is None else min(left, batch_max)
        batch = _next(queue, wanted, timeout, lease, patience)
        if not batch:
            return
        yield batch
        left = None if left is None else left - len(batch)


def _next(
    queue: Queue, count: int, timeout: float | None, lease: float | None, patience: Patience
) -> list[Delivery]:
    """The next messages, waited for in short turns so that a closed output is noticed."""
    end = _end(timeout)

    def take() -> list[Delivery]:
        left = _TURN_SECONDS if end is None else max(0.0, end - time.monotonic())
        return queue.get_many(count, min(left, _TURN_SECONDS), lease=lease)

    while True:
        batch = patience.ask(take, end)
        if batch or (end is not None and time.monotonic() >= end):
            return batch
        check_reader()


def _end(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _lease_seconds(mq: Connection, batch: list[Delivery]) -> float:
    """How long the shortest of the leases lasts."""
    return min(mq.topic(name).settings.lease_ms for name in {each.topic for each in batch}) / 1000


@contextmanager
def _renewed(queue: Queue, batch: list[Delivery], lease: float) -> Iterator[None]:
    """Keep the leases for as long as it takes: who reads the pipe may be slow."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(lease / 3):
            # What this cannot say here, the ack will: the messages come again, or the broker is gone.
            with suppress(QuiverError):
                queue.extend([message for message in batch if not message.is_settled], lease)

    thread = threading.Thread(target=renew, name="quiver-renewal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _deliver(
    queue: Queue,
    batch: list[Delivery],
    handover: Handover,
    encode: Callable[[list[Delivery]], bytes],
    ack: Callable[[list[Delivery]], None],
) -> None:
    """Hand the messages over, ack what was taken, and release the rest if it ends before all were."""
    taken = acked = 0

    def settle() -> None:
        nonlocal acked
        done, acked = batch[acked:taken], taken
        if done:
            ack(done)

    part: list[Delivery] = []
    try:
        while taken < len(batch):
            part = batch[taken : taken + handover.step]
            # Who is slow may be so for long: what it has taken already is done with meanwhile.
            handover.give(part, encode(part), settle)
            taken, part = taken + len(part), []
    except BaseException:
        if handover.is_taken(part):
            taken += len(part)
        release_quietly(queue.release, batch[taken:])
        settle()
        raise
    settle()


def _keep(taken: list[Delivery]) -> None:
    """Leave the messages leased."""


def _ack(queue: Queue, patience: Patience, timeout: float | None, written: list[Delivery]) -> None:
    try:
        patience.ask(lambda: queue.ack(written), _end(timeout))
    except LeaseExpired as error:
        # They are written, and nothing can take that back: say that they will come again.
        say(f"{len(error.receipts)} messages were written too late and will come again: use --lease")
