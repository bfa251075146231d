"""`quiver pipeline replay`: messages of the past into another topic."""

import os
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from quivermq.cli.durations import parse_moment
from quivermq.cli.output import JsonOption, print_json
from quivermq.cli.pipeline.job import (
    DryRunOption,
    MasterOption,
    check_broker,
    job_place,
    print_summary,
    spark_job,
)
from quivermq.cli.pipeline.rows import as_json as value_as_json
from quivermq.cli.pipeline.rows import print_rows
from quivermq.cli.place import DataOption, ServerOption
from quivermq.errors import InvalidRequest

TO_KEY_VARIABLE = "QUIVER_TO_KEY"


def command(
    topics: Annotated[list[str], typer.Argument(help="The topics to read, by name or pattern.")],
    to: Annotated[str, typer.Option("--to", help="The topic to write to.")],
    to_data: Annotated[
        Path | None, typer.Option("--to-data", help="The directory it is in, if it is another one.")
    ] = None,
    to_server: Annotated[
        str | None,
        typer.Option(
            "--to-server",
            help=f"The broker it is on, if it is another one. Its key goes into `{TO_KEY_VARIABLE}`.",
        ),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive",
            help="The archive of a broker, as a directory that driver and executors see; or `false`.",
        ),
    ] = None,
    start: Annotated[int | None, typer.Option("--start", help="From this offset on.", min=0)] = None,
    end: Annotated[
        int | None, typer.Option("--end", help="Up to, but without, this offset.", min=0)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="From this moment on, such as 2026-01-31T12:00:00Z.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to, but without, this moment.")] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="Only messages for which this SQL is true.")
    ] = None,
    select: Annotated[
        str | None,
        typer.Option("--select", help="What becomes of a message: SQL for the columns to write."),
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", help="Both at once: a statement over the table messages.")
    ] = None,
    rate: Annotated[int | None, typer.Option("--rate", help="Messages a second at most.", min=1)] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--id", help="The name of this replay. Otherwise made of what is asked for."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Do it once more, if it was done to the end before.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Where to write down how far it is.")
    ] = None,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send messages of the past to another topic, each exactly once.

    They are a range of offsets or of time, chosen and changed by SQL, in which keys and values are text.
    What was killed goes on when the same command is given again. With `--dry-run`, shows how many
    messages there are and the first of them.
    """
    bounds = _bound("--start", start, "--since", since), _bound("--end", end, "--until", until)
    check = None if to_server is None else partial(_check_target, to_server, data, server)
    with spark_job(data, server, master, check=check) as job:
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
    if as_json:
        print_json(value_as_json(asdict(done)))
        return
    facts: dict[str, object] = {"id": done.id, "from": ", ".join(done.topics), "to": done.to}
    facts["messages in the range"] = done.messages
    if dry_run:
        print_summary({**facts, "that would be sent": done.matching or 0})
        if done.sample:
            print_rows(list(done.sample[0]), [row.values() for row in done.sample])
        return
    print_summary({**facts, "read now": done.read, "kept in": done.state})
    if done.was_finished:
        print("this replay was finished before: --again does it once more")


def _check_target(to_server: str, data: Path | None, server: str | None) -> None:
    check_broker(to_server, target_key(to_server, **job_place(data, server)))


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
