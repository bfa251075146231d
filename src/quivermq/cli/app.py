"""The tree of commands. A command is one file; it is named here and nowhere else."""

from importlib.metadata import version
from typing import Annotated

import typer
from typer import Option

from quivermq.cli import (
    backup,
    bench,
    chaos,
    cluster,
    compact,
    dlq,
    export,
    get,
    group,
    import_queue,
    key,
    pipeline,
    put,
    read,
    scheduled,
    serve,
    settings,
    settle,
    stats,
    tail,
    topic,
    verify,
)

app = typer.Typer(
    help="A durable message queue whose log is a table.",
    no_args_is_help=True,
    # So that a paragraph of a docstring is one, and not as many lines as it has in the source.
    rich_markup_mode="markdown",
    # A traceback means a bug of ours, and then plain text is what a report needs.
    pretty_exceptions_enable=False,
)
# In the order in which somebody meets them.
app.command("serve")(serve.command)
app.command("put")(put.command)
app.command("get")(get.command)
app.command("ack")(settle.ack)
app.command("nack")(settle.nack)
app.command("release")(settle.release)
app.command("reject")(settle.reject)
app.command("extend")(settle.extend)
app.command("tail")(tail.command)
app.command("read")(read.command)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(scheduled.app, name="scheduled")
app.command("import")(import_queue.command)
app.command("stats")(stats.command)
app.command("compact")(compact.command)
app.command("export")(export.command)
app.command("verify")(verify.verify_queue)
app.command("repair")(verify.repair_queue)
app.add_typer(backup.app, name="backup")
app.command("restore")(backup.restore_queue)
app.command("bench")(bench.command)
app.command("chaos")(chaos.command)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(key.app, name="key")
app.add_typer(cluster.app, name="cluster")
app.add_typer(settings.app, name="settings")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"quiver {version('quivermq')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
