"""`quiver import`: bring the messages of another queue over, with what it knows of them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from quivermq.cli.output import JsonOption, counted, print_json, print_table, progress_bar
from quivermq.cli.place import (
    AnyEngine,
    DataOption,
    QueueLocation,
    ServerOption,
    find_place,
    is_queue_directory,
    open_queue,
)
from quivermq.errors import InvalidRequest
from quivermq.importers import KINDS, Import, ImportSummary, TopicSummary

_SHOWN_FINDINGS = 100

KindOption = Annotated[str, typer.Option("--from", help=f"Which queue it is: {', '.join(KINDS)}.")]
DirectoryArgument = Annotated[
    Path, typer.Argument(help="The directory of the other queue. It is only read.")
]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic", help="What the topic is called here; of several topics the beginning of the name."
    ),
]
SourceTopicOption = Annotated[
    list[str] | None,
    typer.Option("--source-topic", help="Only the topic that is called so there. May be repeated."),
]
NameOption = Annotated[
    list[str] | None,
    typer.Option("--name", help="What one topic is called here, as THERE=HERE. May be repeated."),
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", help="Who goes on counting attempts, where the source has no groups."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Also what is consumed, and what has expired.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Import nothing when anything is damaged.")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", help="The key of an encrypted GoQueue: 64 hex digits, or @FILE with them.", metavar="KEY"
    ),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def command(
    kind: KindOption,
    directory: DirectoryArgument,
    topic: TopicOption = None,
    source_topics: SourceTopicOption = None,
    names: NameOption = None,
    groups: GroupOption = None,
    wants_all: AllOption = False,
    strict: StrictOption = False,
    dry_run: DryOption = False,
    key: KeyOption = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import the messages of another queue: LedgerQ, TinyMQ, FluxMQ or GoQueue.

    Order, ids, times, keys, headers, priorities, delays, attempts, dead letters, deduplication ids and the
    positions of groups come along. What is damaged is left out and listed. Importing again adds only what
    is new.
    """
    given = _names(names or [])
    place = find_place(data, server)
    with (
        _bar() as bar,
        Import(
            kind,
            directory,
            topic=topic,
            source_topics=source_topics or (),
            names=given,
            groups=groups or ("default",),
            all=wants_all,
            strict=strict,
            dry_run=dry_run,
            key=key,
            progress=bar,
            target=place.data,
        ) as prepared,
    ):
        is_new = place.data is not None and not is_queue_directory(place.data)
        if is_new:
            # What is refused must not make a directory that of a queue, nor must a question.
            prepared.check()
        with _opened(None if is_new and dry_run else place) as queue:
            summary = prepared.run(queue)
    if as_json:
        print_json(summary.as_json())
    else:
        _print(summary)


def _names(given: Sequence[str]) -> dict[str, str]:
    parted = [text.partition("=") for text in given]
    if wrong := [text for text, (_, sign, name) in zip(given, parted, strict=True) if not sign or not name]:
        raise InvalidRequest(f"--name is THERE=HERE, not {wrong[0]!r}")
    return {there: here for there, _, here in parted}


@contextmanager
def _opened(place: QueueLocation | None) -> Iterator[AnyEngine | None]:
    if place is None:
        yield None
        return
    with open_queue(place.data, place.server, create=True) as queue:
        yield queue


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A bar, from when it is known how much there is."""
    with ExitStack() as stack:
        advance: list[Callable[[int], None]] = []
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal shown
            if not advance:
                advance.append(stack.enter_context(progress_bar("importing", lambda: total)))
            advance[0](done - shown)
            shown = done

        yield show


def _print(summary: ImportSummary) -> None:
    columns = ("topic", "is now", "imported", "dead letters", "already there", "left out", "besides")
    print_table(columns, [_row(topic) for topic in summary.topics])
    if summary.findings:
        rows = [
            (str(each.path), "" if each.position is None else str(each.position), each.problem)
            for each in summary.findings[:_SHOWN_FINDINGS]
        ]
        print_table(("file", "byte", "finding"), rows)
        if summary.findings_count > len(rows):
            print(f"and {summary.findings_count - len(rows)} more")
    if summary.damages:
        print(f"{counted(summary.damages, 'finding')} about what could not be imported", file=sys.stderr)
    if summary.is_dry:
        print("nothing was written: this was a dry run", file=sys.stderr)


def _row(topic: TopicSummary) -> tuple[str, ...]:
    left_out = [
        f"{count} {word}"
        for count, word in (
            (topic.consumed, "consumed"),
            (topic.expired, "expired"),
            (topic.unstorable, "too large"),
            (topic.passed_over, "of them maybe never delivered"),
        )
        if count
    ]
    besides = [f"{topic.scheduled} scheduled"] * bool(topic.scheduled)
    besides += [f"{topic.retried} tried before"] * bool(topic.retried)
    besides += [f"{topic.dedup_ids} dedup ids"] * bool(topic.dedup_ids)
    besides += [f"{counted(len(topic.settings), 'setting')}"] * bool(topic.settings)
    besides += [f"group {name}" for name in topic.groups]
    besides += [f"group {name} left where it is" for name in topic.groups_left]
    counts = (topic.imported, topic.dead_letters, topic.already_there)
    return (topic.source_topic, topic.topic, *map(str, counts), ", ".join(left_out), ", ".join(besides))
