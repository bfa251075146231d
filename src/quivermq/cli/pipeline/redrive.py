"""`quiver pipeline redrive`: dead letters that SQL chooses, back to where they came from."""

from dataclasses import asdict
from typing import Annotated

import typer

from quivermq.cli.output import JsonOption, print_json
from quivermq.cli.pipeline.job import DryRunOption, MasterOption, print_summary, spark_job
from quivermq.cli.pipeline.rows import as_json as value_as_json
from quivermq.cli.pipeline.rows import print_rows
from quivermq.cli.place import DataOption, ServerOption

# What a person decides by.
_SHOWN = ("origin_topic", "died_at", "group", "attempts", "reason", "error", "key", "value")


def command(
    topics: Annotated[
        list[str] | None, typer.Argument(help="Of these topics, by name or pattern. Otherwise of all.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="Only those for which this SQL is true, such as reason = 'timeout'."),
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", help="A whole statement over the table dead_letters instead.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="The oldest, so many at most.", min=1)
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="How many are sent back at once.", min=1)] = 1000,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
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
    if as_json:
        print_json(value_as_json(asdict(done)))
        return
    facts: dict[str, object] = {"chosen": done.chosen}
    facts.update((f"of {name}", count) for name, count in done.topics.items())
    if not dry_run:
        print_summary({**facts, "sent back": done.moved, "run": done.run, "audit": done.audit or "-"})
        return
    print_summary(facts)
    if done.sample:
        columns = [name for name in _SHOWN if name in done.sample[0]] or list(done.sample[0])
        print_rows(columns, [[row[name] for name in columns] for row in done.sample])
