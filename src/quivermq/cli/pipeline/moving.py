"""`quiver pipeline replay` and `redrive`: messages of the past, and dead letters, into topics again."""

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quivermq.cli.command import answering
from quivermq.cli.connecting import check_broker, find_location
from quivermq.cli.durations import parse_moment
from quivermq.cli.options import DataOption, DryRunOption, MasterOption, ServerOption
from quivermq.cli.output import CommandResult
from quivermq.cli.pipeline.job import spark_job, summary_table
from quivermq.cli.pipeline.rows import as_json, table_of
from quivermq.errors import InvalidRequest

TO_KEY_VARIABLE = "QUIVER_TO_KEY"
# Of a dead letter, what a person decides by.
_SHOWN = ("origin_topic", "died_at", "group", "attempts", "reason", "error", "key", "value")


@answering
def replay(
    topics: Annotated[list[str], Argument(help="The topics to read, by name or pattern.")],
    to: Annotated[str, Option(help="The topic to write to.")],
    to_data: Annotated[Path | None, Option(help="The directory it is in, if it is another one.")] = None,
    to_server: Annotated[
        str | None,
        Option(help=f"The broker it is on, if it is another one. Its key goes into `{TO_KEY_VARIABLE}`."),
    ] = None,
    archive: Annotated[
        str | None,
        Option(help="The archive of a broker, as a directory that driver and executors see; or `false`."),
    ] = None,
    start: Annotated[int | None, Option(help="From this offset on.", min=0)] = None,
    end: Annotated[int | None, Option(help="Up to, but without, this offset.", min=0)] = None,
    since: Annotated[str | None, Option(help="From this moment on, such as 2026-01-31T12:00:00Z.")] = None,
    until: Annotated[str | None, Option(help="Up to, but without, this moment.")] = None,
    where: Annotated[str | None, Option(help="Only messages for which this SQL is true.")] = None,
    select: Annotated[
        str | None, Option(help="What becomes of a message: SQL for the columns to write.")
    ] = None,
    sql: Annotated[str | None, Option(help="Both at once: a statement over the table messages.")] = None,
    rate: Annotated[int | None, Option(help="Messages a second at most.", min=1)] = None,
    run_id: Annotated[
        str | None, Option("--id", help="The name of this replay. Otherwise made of what is asked for.")
    ] = None,
    again: Annotated[
        bool, Option("--again", help="Do it once more, if it was done to the end before.")
    ] = False,
    checkpoint: Annotated[Path | None, Option(help="Where to write down how far it is.")] = None,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
) -> CommandResult:
    """Send messages of the past to another topic, each exactly once.

    They are a range of offsets or of time, chosen and changed by SQL, in which keys and values are text.
    What was killed goes on when the same command is given again. With `--dry-run`, shows how many
    messages there are and the first of them.
    """
    bounds = _bound("--start", start, "--since", since), _bound("--end", end, "--until", until)

    def check_target() -> None:
        if to_server is not None:
            check_broker(to_server, target_key(to_server, **find_location(data, server).arguments()))

    with spark_job(data, server, master, check=check_target) as job:
        from quivermq.spark import replay

        done = replay(
            topics,
            to,
            **job.arguments,
            to_path=None if to_data is None else str(to_data.absolute()),
            to_server=to_server,
            to_key=target_key(to_server, **job.where),
            archive=archive,
            start=bounds[0],
            end=bounds[1],
            where=where,
            select=select,
            sql=sql,
            rate=rate,
            id=run_id,
            again=again,
            checkpoint=None if checkpoint is None else str(checkpoint),
            dry_run=dry_run,
        )
    document = as_json(done)
    facts: dict[str, object] = {"id": done.id, "from": ", ".join(done.topics), "to": done.to}
    facts["messages in the range"] = done.messages
    if dry_run:
        parts = [summary_table({**facts, "that would be sent": done.matching or 0})]
        if done.sample:
            parts.append(table_of(list(done.sample[0]), [row.values() for row in done.sample]))
        return CommandResult(document, *parts)
    table = summary_table({**facts, "read now": done.read, "kept in": done.state})
    again_note = "this replay was finished before: --again does it once more"
    return CommandResult(document, table, *([again_note] if done.was_finished else []))


def target_key(
    to_server: str | None,
    server: str | None = None,
    key: str | None = None,
    path: str | None = None,  # noqa: ARG001 - A job is at one of the two; a directory has no key.
) -> str | None:
    """The key for the broker that is written to: never that of another one, which it is not to learn."""
    if to_server is None:
        return None
    own = os.environ.get(TO_KEY_VARIABLE)
    return own or (key if server == to_server else None)


def _bound(
    offset_name: str, offset: int | None, time_name: str, moment: str | None
) -> int | datetime | None:
    if offset is not None and moment is not None:
        raise InvalidRequest(f"give {offset_name} or {time_name}, not both")
    return offset if moment is None else parse_moment(moment)


@answering
def redrive(
    topics: Annotated[
        list[str] | None, Argument(help="Of these topics, by name or pattern. Otherwise of all.")
    ] = None,
    where: Annotated[
        str | None, Option(help="Only those for which this SQL is true, such as reason = 'timeout'.")
    ] = None,
    sql: Annotated[
        str | None, Option(help="A whole statement over the table dead_letters instead.")
    ] = None,
    limit: Annotated[int | None, Option(help="The oldest, so many at most.", min=1)] = None,
    batch: Annotated[int, Option(help="How many are sent back at once.", min=1)] = 1000,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
) -> CommandResult:
    """Send dead letters back to the topics they came from.

    SQL chooses by key, value, headers, reason, error, group, attempts, died_at and the origin_ columns.
    What is done is written down in the topic quiver.audit. What was killed is given again, and does the
    rest.
    """
    with spark_job(data, server, master) as job:
        from quivermq.spark import redrive

        done = redrive(
            topics or None,
            **job.arguments,
            where=where,
            sql=sql,
            limit=limit,
            batch_messages=batch,
            dry_run=dry_run,
        )
    document = as_json(done)
    facts: dict[str, object] = {"chosen": done.chosen}
    facts.update((f"of {name}", count) for name, count in done.topics.items())
    if not dry_run:
        facts |= {"sent back": done.moved, "run": done.run, "audit": done.audit or "-"}
        return CommandResult(document, summary_table(facts))
    parts = [summary_table(facts)]
    if done.sample:
        columns = [name for name in _SHOWN if name in done.sample[0]] or list(done.sample[0])
        parts.append(table_of(columns, [[row[name] for name in columns] for row in done.sample]))
    return CommandResult(document, *parts)
