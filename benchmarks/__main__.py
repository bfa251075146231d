"""The command: `python -m benchmarks [--quick] [--only NAME] [--json FILE] [--data DIR]`."""

import argparse
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from benchmarks import source
from benchmarks.append_many import append_many, sustained
from benchmarks.append_one import append_one
from benchmarks.arrow_scan import arrow
from benchmarks.backlog import backlog
from benchmarks.broker.consuming import consuming
from benchmarks.broker.idle import idle
from benchmarks.broker.latency import latency
from benchmarks.broker.producing import producing
from benchmarks.broker.publish_many import publish_many
from benchmarks.broker.publish_one import publish_one
from benchmarks.codec import codec
from benchmarks.delayed import delayed
from benchmarks.durable import fsync_many, fsync_one
from benchmarks.memory import memory
from benchmarks.opening import opening
from benchmarks.queue_get import queue_get
from benchmarks.queue_put import queue_put
from benchmarks.reading import read
from benchmarks.reopening import reopening
from benchmarks.report import WIDTH, as_json, print_group, print_heading
from benchmarks.row import Row, Skipped
from benchmarks.scale import FULL, QUICK, TINY
from benchmarks.spark.jobs import spark_jobs
from benchmarks.spark.scanning import spark_scan
from benchmarks.spark.streaming import spark_stream
from benchmarks.workload import Bench, fresh_directory

# Beside the source, so on the same file system; git ignores it and `make clean` removes it.
_DATA = Path(__file__).parents[1] / "build"

GROUPS: dict[str, Callable[[Bench], Iterable[Row | Skipped]]] = {
    "append_many": append_many,
    "append_sustained": sustained,
    "append_one": append_one,
    "fsync_one": fsync_one,
    "fsync_many": fsync_many,
    "read": read,
    "open": opening,
    "arrow": arrow,
    "memory": memory,
    "codec": codec,
    "queue_put": queue_put,
    "queue_get": queue_get,
    "backlog": backlog,
    "delayed": delayed,
    "reopen": reopening,
    "broker_publish": publish_one,
    "broker_frames": publish_many,
    "broker_producer": producing,
    "broker_receive": consuming,
    "broker_latency": latency,
    "broker_memory": idle,
    "spark_scan": spark_scan,
    "spark_jobs": spark_jobs,
    "spark_stream": spark_stream,
}


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(width=WIDTH)
    before, commit = source.digest(), source.commit()
    print_heading(console, options.scale.name, f"source {before}, {commit or 'no commit'}")
    options.data.mkdir(parents=True, exist_ok=True)
    with fresh_directory(options.data) as place:
        groups = _run(console, Bench(place, options.scale), options.only)
    is_stable = source.digest() == before
    if not is_stable:
        console.print("[red]The source changed during this run: its rows are not of one version.[/]")
    if options.json is not None:
        about = {"digest": before, "commit": commit, "is_stable": is_stable}
        options.json.write_text(as_json(options.scale.name, about, groups))


def _run(console: Console, bench: Bench, names: Iterable[str]) -> dict[str, list[Row | Skipped]]:
    done = {}
    for name in names:
        done[name] = list(GROUPS[name](bench))
        print_group(console, name, done[name])
    return done


def _options() -> argparse.Namespace:
    known = ", ".join(GROUPS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the storage, the queue, the broker and the pipeline.",
    )
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--quick", dest="scale", action="store_const", const=QUICK, help="a few minutes")
    scale.add_argument("--tiny", dest="scale", action="store_const", const=TINY, help=argparse.SUPPRESS)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help=f"only groups whose name begins so: {known}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    parser.add_argument("--data", type=Path, metavar="DIR", default=_DATA, help="where to write the logs")
    options = parser.parse_args()
    options.scale = options.scale or FULL
    options.data = options.data.resolve()
    wanted = tuple(options.only or [""])
    options.only = [name for name in GROUPS if name.startswith(wanted)]
    if not options.only:
        parser.error(f"no group is called {' or '.join(wanted)}: there are {known}")
    return options


if __name__ == "__main__":
    main()
