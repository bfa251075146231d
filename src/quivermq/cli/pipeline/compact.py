"""`quiver pipeline compact`: only the latest message of each key stays."""

from dataclasses import asdict
from typing import Annotated

import typer

from quivermq.cli.durations import parse_seconds
from quivermq.cli.output import JsonOption, print_json, print_table, say, size_text
from quivermq.cli.pipeline.job import DryRunOption, MasterOption, spark_job
from quivermq.cli.place import DataOption, ServerOption


def command(
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="Topics by name or pattern. Otherwise all that have cleanup=compact."),
    ] = None,
    tombstone_age: Annotated[
        str,
        typer.Option("--tombstone-age", help="How old a message without a value gets before it goes, too."),
    ] = "24h",
    min_dirty_ratio: Annotated[
        float,
        typer.Option(
            "--min-dirty-ratio",
            help="Leave segments alone of which a smaller share of the messages would go.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    data: DataOption = None,
    server: ServerOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let only the latest message of each key stay, in topics that have cleanup=compact.

    Each partition and priority is compacted by itself. A message with a key and an empty value removes what
    its key had. A broker serves on meanwhile: give its `--server`. A directory must not be open elsewhere.
    """
    age_ms = int(parse_seconds(tombstone_age) * 1000)
    with spark_job(data, server, master) as job:
        from quivermq.spark import compact

        done = compact(
            **job.arguments,
            topics=topics or None,
            tombstone_age_ms=age_ms,
            min_dirty_ratio=min_dirty_ratio,
            dry_run=dry_run,
        )
    if as_json:
        print_json(asdict(done))
        return
    columns = ("topic", "segments", "replaced", "messages", "left", "size", "left")
    rows = [
        (
            each.topic,
            f"{each.segments:,}",
            f"{each.replaced:,}",
            f"{each.messages_before:,}",
            f"{each.messages_after:,}",
            size_text(each.bytes_before),
            size_text(each.bytes_after),
        )
        for each in done.topics
    ]
    print_table(columns, rows)
    if busy := sum(each.busy for each in done.topics):
        say(f"{busy} segments were changed by somebody else meanwhile: the next run compacts them")
    if not done.topics:
        say("no topic has cleanup=compact: `quiver topic alter TOPIC --set cleanup=compact` makes it one")
