"""The command: `python -m benchmarks [--quick] [--only NAME] [--beside SRC] …`; `--help` lists the rest."""

import argparse
import signal
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import beside, source
from benchmarks.groups import NAMES, rows_of
from benchmarks.markdown import markdown
from benchmarks.report import WIDTH, as_json, print_group, print_heading
from benchmarks.row import Row, Skipped
from benchmarks.scale import FULL, QUICK, TINY
from benchmarks.shape import SHAPES
from benchmarks.workload import Bench, fresh_directory

# Beside the source, so on the same file system; git ignores it and `make clean` removes it.
_DATA = Path(__file__).parents[1] / "build"
_SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.data.mkdir(parents=True, exist_ok=True)
    if options.serve:
        with fresh_directory(options.data) as place:
            (name,) = options.only
            beside.serve(name, Bench(place, options.scale, options.messages, is_alone=True))
        return
    console = Console(width=WIDTH)
    before, commit = source.digest(), source.commit()
    about = f"source {before}, {commit or 'no commit'}"
    print_heading(console, options.scale.name, about)
    groups = _compare(console, options) if options.beside else _measure(console, options)
    is_stable = source.digest() == before
    if not is_stable:
        console.print("[red]The source changed during this run: its rows are not of one version.[/]")
    if options.json is not None:
        described = {"digest": before, "commit": commit, "is_stable": is_stable}
        options.json.write_text(as_json(options.scale.name, described, groups))


def _measure(console: Console, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    done: dict[str, list[Row | Skipped]] = {}
    with fresh_directory(options.data) as place:
        bench = Bench(place, options.scale, options.messages)
        for name in options.only:
            done[name] = list(chain.from_iterable(rows_of(name, bench)))
            print_group(console, name, done[name])
    if options.markdown:
        print(markdown(done))
    return {name: [row.as_json() for row in rows] for name, rows in done.items()}


def _compare(console: Console, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    console.print(f"beside {options.beside}, {options.rounds} rounds each", highlight=False)
    arguments = ["--scale", options.scale.name, "--data", str(options.data)]
    arguments += chain.from_iterable(("--messages", shape) for shape in options.messages)
    done = {}
    for name in options.only:
        done[name] = beside.compared(name, arguments, options.beside, options.rounds)
        beside.print_pairs(console, name, done[name])
    return beside.as_groups(done)


def _options() -> argparse.Namespace:
    known = ", ".join(NAMES)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the storage, the queue, the broker and the pipeline.",
    )
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument(
        "--quick", dest="scale", action="store_const", const=QUICK.name, help="a few minutes"
    )
    scale.add_argument(
        "--tiny", dest="scale", action="store_const", const=TINY.name, help=argparse.SUPPRESS
    )
    scale.add_argument("--scale", choices=_SCALES, help=argparse.SUPPRESS)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help=f"only groups whose name begins so: {known}"
    )
    parser.add_argument(
        "--messages",
        action="append",
        choices=SHAPES,
        help="only messages of 100 bytes, or only those with a key, two headers and a timestamp, too",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="SRC",
        help="compare with another version of the package, in SRC/quivermq, without limits and peers",
    )
    parser.add_argument(
        "--rounds", type=int, default=beside.ROUNDS, help="how often, with --beside (default: %(default)s)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table of the README at the end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    parser.add_argument("--data", type=Path, metavar="DIR", default=_DATA, help="where to write the logs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return _checked(parser, parser.parse_args())


def _checked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    options.scale = _SCALES[options.scale or FULL.name]
    options.data = options.data.resolve()
    options.messages = tuple(shape for shape in SHAPES if shape in (options.messages or SHAPES))
    options.only = _groups(parser, options.only or [""], is_exact=options.serve)
    if options.beside is not None:
        options.beside = options.beside.resolve()
        if not (options.beside / "quivermq" / "__init__.py").exists():
            parser.error(f"there is no quivermq in {options.beside}: name the directory that it lies in")
        if options.markdown:
            parser.error("the table of the README is of one version: leave --beside or --markdown away")
    return options


def _groups(parser: argparse.ArgumentParser, wanted: Sequence[str], *, is_exact: bool) -> list[str]:
    if is_exact:
        return list(wanted)
    found = [name for name in NAMES if name.startswith(tuple(wanted))]
    if not found:
        parser.error(f"no group is called {' or '.join(wanted)}: there are {', '.join(NAMES)}")
    return found


if __name__ == "__main__":
    main()
