"""`quiver pipeline`: bulk work over the queue's data, on Spark. One file per job.

A command imports `quivermq.spark` when it runs, so that the help does not wait for it.
"""

from typing import Annotated

import typer

from quivermq.cli.pipeline import archive, audit, compact, job, redrive, replay, report, run, sql

app = typer.Typer(
    help="Work on whole topics with Spark, on this machine or on a cluster.", no_args_is_help=True
)
app.command("sql")(sql.command)
app.command("run")(run.command)
app.command("replay")(replay.command)
app.command("redrive")(redrive.command)
app.command("archive")(archive.command)
app.command("audit")(audit.command)
app.command("compact")(compact.command)
app.command("report")(report.command)


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="When Spark fails, print all that it says, with its Java stack.")
    ] = False,
) -> None:
    job.debug = debug
