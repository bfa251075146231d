"""`quiver pipeline`: bulk work over the queue's data, on Spark. One file per job.

A command imports `quivermq.spark` when it runs, so that the help does not wait for it.
"""

import typer

from quivermq.cli.pipeline import archive, audit, compact, redrive, replay, report, run, sql

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
