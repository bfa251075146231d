"""The page of a report: one file that asks nobody for anything, readable without a single plot."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from quivermq.disk import SystemDisk, read_file
from quivermq.spark.jobs import report_plots as plots
from quivermq.spark.jobs.report_figures import (
    STEPS_PER_DOUBLING,
    ReportContents,
    TimeSeries,
    TopicLine,
    value_of_step,
)
from quivermq.spark.jobs.report_plots import (
    bytes_text,
    count_text,
    duration_text,
    key_text,
    line_text,
    moment_text,
    second_text,
    short_count,
    width_text,
)

_STYLE = Path(__file__).with_name("report.css")
_STYLE_BYTES_MAX = 64 * 1024
# Nothing may be loaded from anywhere, whatever a message says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_NAME_CHARACTERS_MAX = 40
_REASON_CHARACTERS_MAX = 60
_ROWS_MAX = 200
_BARS_MAX = 15

Row = Sequence[str]


def page(contents: ReportContents) -> str:
    """The whole page."""
    bodies = {title: body(contents) for title, body in _SECTIONS.items()}
    sections = "\n".join(
        f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" for title, body in bodies.items() if body
    )
    style = read_file(SystemDisk(), _STYLE, bytes_max=_STYLE_BYTES_MAX).decode()
    title = f"Quiver report: {escape(line_text(contents.where, 200))}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{_head(contents)}
{sections}
</main>
</body>
</html>
"""


def _head(contents: ReportContents) -> str:
    since = "the beginning" if contents.since is None else moment_text(contents.since)
    until = "now" if contents.until is None else moment_text(contents.until)
    lag = sum(line.lag for line in contents.groups)
    dead = sum(line.count for line in contents.reasons)
    facts = [
        (count_text(contents.messages), "messages came in"),
        (bytes_text(contents.bytes), "that they take"),
        (count_text(len(contents.topics)), _one("topic", len(contents.topics))),
        (count_text(len({line.group for line in contents.groups})), "groups"),
        (count_text(lag), "wait to be delivered"),
        (count_text(dead), _one("dead letter", dead)),
    ]
    cards = "".join(
        f"<div><dt>{escape(text)}</dt><dd>{escape(number)}</dd></div>" for number, text in facts
    )
    return f"""<header>
<h1>Quiver report</h1>
<p class="where">{escape(line_text(contents.where, 200))}</p>
<p>Made {moment_text(contents.made_at)}; from {since} until {until}.</p>
</header>
<dl class="facts">{cards}</dl>"""


def _throughput(contents: ReportContents) -> str:
    line = contents.throughput
    if not line.rows:
        return _nothing("No message came in.")
    rows = sorted(line.rows.items(), key=lambda item: -sum(item[1]))
    shown, others = rows[: plots.SERIES_MAX - 1], rows[plots.SERIES_MAX - 1 :]
    series = {_name(topic): values for topic, values in shown}
    if others:
        series["all others"] = np.sum([values for _, values in others], axis=0).tolist()
    busiest = {topic: max(values) for topic, values in rows}
    text = (
        f"Messages a second by topic, as an average of each {width_text(line.width_s)}."
        f" The busiest was {_name(max(busiest, key=busiest.__getitem__))}"
        f" with {short_count(max(busiest.values()))} a second."
    )
    table = _time_table(line, series, lambda value: f"{value:,.1f}")
    svg = plots.time_lines("throughput", line.edges.tolist(), series, "messages / s")
    return _figure(svg, text, table)


def _latency(contents: ReportContents) -> str:
    line = contents.latency
    if not contents.has_journals:
        words = (
            "A broker does not hand out the journals of its groups, in which the acks are:"
            " make the report from the data directory to see this."
        )
        return _nothing(words)
    if not len(line.edges):
        return _nothing("The journals of the groups tell of no ack in this time.")
    rows = [
        (
            line.topic,
            line.group,
            count_text(line.acks),
            *(duration_text(each) for each in (line.latency.p50, line.latency.p95, line.latency.p99)),
        )
        for line in contents.groups
        if line.acks
    ]
    text = (
        "How long a message was in the queue until it was acked: half of them took no longer than p50, all"
        f" but one of a hundred no longer than p99, in each {width_text(line.width_s)}. A journal reaches"
        " back to its last snapshot, so a busy group shows its recent past only."
    )
    over_time = _time_table(line, line.rows, duration_text)
    svg = plots.duration_lines("latency", line.edges.tolist(), line.rows)
    table = _table(("topic", "group", "acks", "p50", "p95", "p99"), rows)
    return _figure(svg, text, over_time) + table


def _failures(contents: ReportContents) -> str:
    line, parts = contents.failures, []
    series = {name: values for name, values in line.rows.items() if any(values)}
    if series:
        text = f"Deliveries that failed, and messages that were given up, each {width_text(line.width_s)}."
        svg = plots.time_bars("failures", line.edges.tolist(), series, "messages")
        parts.append(_figure(svg, text, _time_table(line, series, count_text)))
    if contents.reasons:
        shown = contents.reasons[:_BARS_MAX]
        labels = [
            f"{_name(each.topic)}: {line_text(each.reason, _REASON_CHARACTERS_MAX)}" for each in shown
        ]
        svg = plots.bars("reasons", labels, {"dead letters": [each.count for each in shown]}, short_count)
        rows = [(e.topic, line_text(e.reason, 256), count_text(e.count)) for e in contents.reasons]
        text = "Why messages became dead letters that are still there."
        parts.append(_figure(svg, text, _table(("topic", "reason", "dead letters"), rows)))
    else:
        parts.append(_nothing("There are no dead letters."))
    if not series and contents.has_journals:
        parts.append(_nothing("The journals of the groups tell of no delivery that failed."))
    return "".join(parts)


def _lag(contents: ReportContents) -> str:
    if not contents.groups:
        return _nothing("No group has read from these topics yet.")
    lines = sorted(contents.groups, key=lambda each: -(each.lag + each.in_flight + each.retrying))
    kinds = {"to be delivered": "lag", "in flight": "in_flight", "waiting for a retry": "retrying"}
    rows = [(e.topic, e.group, *map(count_text, (e.lag, e.in_flight, e.retrying))) for e in lines]
    table = _table(("topic", "group", *kinds), rows)
    shown = [each for each in lines[:_BARS_MAX] if each.lag or each.in_flight or each.retrying]
    if not shown:
        return _nothing("Every group has finished with everything.") + table
    labels = [f"{_name(each.group)} in {_name(each.topic)}" for each in shown]
    series = {text: [getattr(each, kind) for each in shown] for text, kind in kinds.items()}
    text = "Messages that each group has not finished, as it is now."
    return _figure(plots.bars("lag", labels, series, short_count), text, table)


def _sizes(contents: ReportContents) -> str:
    counts = contents.sizes
    if not counts.any():
        return _nothing("There is no message to measure.")
    # Four bars to each doubling, and half a doubling of room on both sides.
    per_bar = STEPS_PER_DOUBLING // 4
    merged = counts.reshape(-1, per_bar).sum(axis=1)
    used = np.flatnonzero(merged)
    first, last = max(0, int(used[0]) - 2), min(len(merged), int(used[-1]) + 3)
    edges = [value_of_step(step * per_bar) for step in range(first, last + 1)]
    doublings = range(int(np.ceil(np.log2(edges[0]))), int(np.log2(edges[-1])) + 1)
    step = -(-len(doublings) // 10)
    ticks = {float(2**doubling): bytes_text(2**doubling) for doubling in list(doublings)[::step]}
    svg = plots.histogram("sizes", edges, merged[first:last].tolist(), ticks)
    rows = [_size_row(line) for line in contents.topics if line.messages]
    table = _table(("topic", "messages", "p50", "p95", "p99", "largest"), rows)
    text = "How large the values of messages are, without keys and headers."
    if contents.unread:
        text += f" Not counted are {count_text(contents.unread)} messages that are encrypted."
    return _figure(svg, text, table)


def _size_row(line: TopicLine) -> Row:
    quantiles = (line.sizes.p50, line.sizes.p95, line.sizes.p99)
    sizes = (min(each or 0, line.size_max) for each in quantiles)
    return (line.topic, count_text(line.messages), *map(bytes_text, sizes), bytes_text(line.size_max))


def _keys(contents: ReportContents) -> str:
    if not contents.keys:
        return _nothing("No message has a key.")
    labels = [f"{_name(each.topic)}: {key_text(each.key)}" for each in contents.keys]
    series = {"messages": [each.count for each in contents.keys]}
    rows = [(e.topic, key_text(e.key), count_text(e.count), f"{e.share:.1%}") for e in contents.keys]
    table = _table(("topic", "key", "messages", "of those with a key"), rows)
    text = "The keys that most messages have."
    if contents.are_keys_estimated:
        text += " There are many messages, so most were told from the keys of an eighth of the frames."
    return _figure(plots.bars("keys", labels, series, short_count), text, table)


def _storage(contents: ReportContents) -> str:
    lines = sorted(contents.topics, key=lambda each: -each.stored_bytes)
    shown = [each for each in lines[:_BARS_MAX] if each.stored_bytes]
    if not shown:
        return _nothing("Nothing is stored.")
    series = {"bytes": [each.stored_bytes for each in shown]}
    svg = plots.bars("storage", [_name(each.topic) for each in shown], series, bytes_text)
    rows = [(each.topic, bytes_text(each.stored_bytes)) for each in lines]
    text = "What the logs of each topic take on disk now, all partitions and priorities together."
    return _figure(svg, text, _table(("topic", "on disk"), rows))


def _troubles(contents: ReportContents) -> str:
    if not contents.troubles:
        return ""
    rows = [(line_text(each.where, 200), line_text(each.reason, 500)) for each in contents.troubles]
    words = (
        "<p>Some parts could not be read, and the figures above lack them: <code>quiver verify</code>.</p>"
    )
    return words + _table(("where", "why"), rows)


def _nothing(words: str) -> str:
    return f'<p class="nothing">{escape(words)}</p>'


def _figure(svg: str, text: str, table: str) -> str:
    return (
        f'<figure><div class="plot" tabindex="0">{svg}</div>'
        f"<figcaption>{escape(text)}</figcaption></figure>"
        f"<details><summary>As a table</summary>{table}</details>"
    )


def _table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """A table; columns behind the first that is a number in all rows are to the right."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[:_ROWS_MAX]
    )
    more = len(rows) - _ROWS_MAX
    note = f"<p>and {count_text(more)} more</p>" if more > 0 else ""
    return (
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}</div>'
    )


def _time_table(line: TimeSeries, series: plots.Series, text: Callable[[float], str]) -> str:
    columns: Iterable[Sequence[float]] = series.values()
    rows = [
        (second_text(edge), *(text(value) for value in values))
        for edge, values in zip(line.edges.tolist(), zip(*columns, strict=True), strict=False)
    ]
    return _table(("from", *series), rows)


def _name(name: str) -> str:
    return line_text(name, _NAME_CHARACTERS_MAX)


def _one(what: str, count: int) -> str:
    return what if count == 1 else f"{what}s"


_SECTIONS: dict[str, Callable[[ReportContents], str]] = {
    "Throughput": _throughput,
    "From publish to ack": _latency,
    "Failures": _failures,
    "Lag by group": _lag,
    "Sizes of messages": _sizes,
    "Hot keys": _keys,
    "Storage by topic": _storage,
    "What could not be read": _troubles,
}
