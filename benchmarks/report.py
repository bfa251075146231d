"""Rows to a table that people read and to a file that programs do."""

import json
import os
import platform
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.row import Row, Skipped, formatted, formatted_cpu, formatted_ratio

WIDTH = 140
_COLUMNS = (
    ("figure of", 31),
    ("figure", 9),
    ("CPU each", 8),
    ("limit", 9),
    ("ratio", 5),
    ("the limit is", 29),
    ("goal", 11),
    ("met", 3),
    ("held up by", 27),
)
_NUMBERS = {"figure", "CPU each", "limit", "ratio"}
_TWIN = "  with real messages"
_MET = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}


def print_heading(console: Console, scale: str, source: str) -> None:
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    console.print(
        f"{scale} run · {source} · Python {platform.python_version()} · {os.cpu_count()} CPUs, load {load}",
        highlight=False,
    )


def print_group(console: Console, title: str, rows: Iterable[Row | Skipped]) -> None:
    """A table of one group; it has the same columns in every group."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.collapse_padding = True
    for name, width in _COLUMNS:
        table.add_column(name, width=width, justify="right" if name in _NUMBERS else "left")
    skipped, above = [], None
    for row in rows:
        if isinstance(row, Skipped):
            skipped.append(row)
        else:
            _add(table, row, row.name if row.name != above else _TWIN)
            above = row.name
    console.print(table)
    for each in skipped:
        console.print(f"skipped: {each.name}: {each.reason}", highlight=False)
    console.print()


def _add(table: Table, row: Row, name: str) -> None:
    goal = "" if row.goal is None else row.goal.text(row.unit)
    figure = row.figure
    head = [name, formatted(figure.value, row.unit), formatted_cpu(figure.cpu_s, row.unit)]
    tail = [goal, _MET[row.is_met], figure.held_up_by]
    for limit, its in row.limits.items():
        beside = [formatted(its.value, row.unit), formatted_ratio(row.ratio(limit)), limit]
        table.add_row(*head, *beside, *tail)
        # Further limits of the same figure stand below the first.
        head, tail = ["", "", ""], ["", "", ""]
    if not row.limits:
        table.add_row(*head, "", "", "", *tail)


def as_json(scale: str, source: dict[str, Any], groups: dict[str, list[dict[str, Any]]]) -> str:
    report: dict[str, Any] = {
        "scale": scale,
        "source": source,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "groups": groups,
    }
    return json.dumps(report, indent=2)
