"""`quiver import`: bring the messages of another queue over, with what it knows of them."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import find_location, open_queue
from quivermq.cli.options import DataOption, ServerOption
from quivermq.cli.output import CommandResult, TextTable, counted
from quivermq.cli.progress import progress_bytes
from quivermq.errors import InvalidRequest
from quivermq.importers import KINDS, Import, ImportSummary, TopicSummary

_SHOWN_FINDINGS = 100


@answering
def command(
    kind: Annotated[str, Option("--from", help=f"Which queue it is: {', '.join(KINDS)}.")],
    directory: Annotated[Path, Argument(help="The directory of the other queue. It is only read.")],
    topic: Annotated[
        str | None,
        Option(help="What the topic is called here; of several topics the beginning of the name."),
    ] = None,
    source_topics: Annotated[
        list[str] | None,
        Option("--source-topic", help="Only the topic that is called so there. May be repeated."),
    ] = None,
    names: Annotated[
        list[str] | None,
        Option("--name", help="What one topic is called here, as THERE=HERE. May be repeated."),
    ] = None,
    groups: Annotated[
        list[str] | None,
        Option("--group", help="Who goes on counting attempts, where the source has no groups."),
    ] = None,
    wants_all: Annotated[
        bool, Option("--all", help="Also what is consumed, and what has expired.")
    ] = False,
    strict: Annotated[bool, Option("--strict", help="Import nothing when anything is damaged.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be done.")] = False,
    key: Annotated[
        str | None,
        Option(
            help="The key of an encrypted GoQueue: 64 hex digits, or @FILE with them.",
            metavar="KEY",
        ),
    ] = None,
    data: DataOption = None,
    server: ServerOption = None,
) -> CommandResult:
    """Import the messages of another queue: LedgerQ, TinyMQ, FluxMQ or GoQueue.

    Order, ids, times, keys, headers, priorities, delays, attempts, dead letters, deduplication ids and the
    positions of groups come along. What is damaged is left out and listed. Importing again adds only what
    is new.
    """
    given = _names(names or [])
    location = find_location(data, server)
    with progress_bytes("importing") as progress:
        prepared = Import(
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
            progress=progress,
            target=None if isinstance(location.data, str) else location.data,
        )
        is_new = location.is_new
        if is_new:
            # What is refused must not make a directory that of a queue, nor must a question.
            prepared.check()
        with nullcontext() if is_new and dry_run else open_queue(data, server, create=True) as queue:
            summary = prepared.run(queue)
    return _result(summary)


def _names(given: Sequence[str]) -> dict[str, str]:
    parted = [text.partition("=") for text in given]
    if wrong := [text for text, (_, sign, name) in zip(given, parted, strict=True) if not sign or not name]:
        raise InvalidRequest(f"--name is THERE=HERE, not {wrong[0]!r}")
    return {there: here for there, _, here in parted}


def _result(summary: ImportSummary) -> CommandResult:
    columns = ("topic", "is now", "imported", "dead letters", "already there", "left out", "besides")
    parts: list[str | TextTable] = [TextTable(columns, [_row(topic) for topic in summary.topics])]
    if summary.findings:
        rows = [
            (each.path, "" if each.position is None else each.position, each.problem)
            for each in summary.findings[:_SHOWN_FINDINGS]
        ]
        parts.append(TextTable(("file", "byte", "finding"), rows))
        if summary.findings_count > len(rows):
            parts.append(f"and {summary.findings_count - len(rows)} more")
    notes: list[str] = []
    if summary.damages:
        notes.append(f"{counted(summary.damages, 'finding')} about what could not be imported")
    if summary.is_dry:
        notes.append("nothing was written: this was a dry run")
    return CommandResult(summary.as_json(), *parts, notes=notes)


def _row(topic: TopicSummary) -> tuple[object, ...]:
    left_out = _counts(
        (topic.consumed, "consumed"),
        (topic.expired, "expired"),
        (topic.unstorable, "too large"),
        (topic.passed_over, "of them maybe never delivered"),
    )
    besides = _counts(
        (topic.scheduled, "scheduled"), (topic.retried, "tried before"), (topic.dedup_ids, "dedup ids")
    )
    besides += [counted(len(topic.settings), "setting")] * bool(topic.settings)
    besides += [f"group {name}" for name in topic.groups]
    besides += [f"group {name} left where it is" for name in topic.groups_left]
    counts = (topic.imported, topic.dead_letters, topic.already_there)
    return (topic.source_topic, topic.topic, *counts, ", ".join(left_out), ", ".join(besides))


def _counts(*counts: tuple[int, str]) -> list[str]:
    return [f"{count} {word}" for count, word in counts if count]
