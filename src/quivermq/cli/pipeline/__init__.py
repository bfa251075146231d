"""`quiver pipeline`: bulk work over the queue's data, on Spark.

A command imports `quivermq.spark` when it runs, so that the help does not wait for it.
"""

from typing import Annotated

import typer
from typer import Option

from quivermq.cli.pipeline import job, moving, queries, upkeep

app = typer.Typer(
    help="Work on whole topics with Spark, on this machine or on a cluster.", no_args_is_help=True
)
app.command("sql")(queries.sql)
app.command("run")(queries.run)
app.command("replay")(moving.replay)
app.command("redrive")(moving.redrive)
app.command("archive")(upkeep.archive)
app.command("audit")(upkeep.audit)
app.command("compact")(upkeep.compact)
app.command("report")(upkeep.report)


@app.callback()
def _options(
    debug: Annotated[
        bool, Option("--debug", help="When Spark fails, print all that it says, with its Java stack.")
    ] = False,
) -> None:
    job.debug = debug
