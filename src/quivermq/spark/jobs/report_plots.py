"""Plots as SVG that stands inside of a page and takes its colours from it, light or dark.

Colours are drawn as stand-ins that nothing else has, and are replaced by the page's variables.
"""

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from itertools import pairwise
from typing import Any

_KEY_CHARACTERS_MAX = 48
# The years 1 to 9999.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", "k", "M", "G", "T")


def count_text(count: float) -> str:
    """A count with its thousands apart."""
    return f"{count:,.0f}".replace(",", "\u202f")


def short_count(count: float) -> str:
    """A count for an axis or a label: 1.2k, 3.4M."""
    unit = 0
    while abs(count) >= 999.5 and unit < len(_COUNT_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{_digits(count)}{_COUNT_UNITS[unit]}"


def bytes_text(size_bytes: float) -> str:
    """A size: 1.5 KiB."""
    unit = 0
    while size_bytes >= 1023.5 and unit < len(_BYTE_UNITS) - 1:
        size_bytes, unit = size_bytes / 1024, unit + 1
    return f"{_digits(size_bytes)} {_BYTE_UNITS[unit]}"


def duration_text(duration_us: float | None) -> str:
    """How long something took, in the unit that people would use."""
    if duration_us is None or math.isnan(duration_us):
        return "-"
    for unit_us, unit, next_us in (
        (1, "µs", 1000),
        (1000, "ms", 1_000_000),
        (1_000_000, "s", 60_000_000),
        (60_000_000, "min", 3_600_000_000),
        (3_600_000_000, "h", 86_400_000_000),
    ):
        if duration_us < next_us:
            return f"{_digits(duration_us / unit_us)} {unit}"
    return f"{_digits(duration_us / 86_400_000_000)} d"


def _digits(number: float) -> str:
    """Three digits that count, and no zeros behind a point."""
    if number == round(number) or abs(number) >= 99.95:
        return f"{number:.0f}"
    places = 1 if abs(number) >= 9.995 else 2
    return f"{number:.{places}f}".rstrip("0").rstrip(".")


def moment_text(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def second_text(second: float) -> str:
    """A unix second in UTC; the first or last one that there is a text for when it lies beyond."""
    return moment_text(datetime.fromtimestamp(min(max(second, _FIRST_S), _LAST_S), UTC))


def width_text(width_s: int) -> str:
    """How long one step of a time axis is."""
    for unit_s, unit in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if width_s >= unit_s:
            number = width_s // unit_s
            return unit if number == 1 else f"{number} {unit}s"
    return ""


def key_text(key: bytes) -> str:
    """A key as people can read it on one line: text where it is text, otherwise hexadecimal."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "0x" + key[:_KEY_CHARACTERS_MAX].hex()
    return line_text(text, _KEY_CHARACTERS_MAX)


def line_text(text: str, characters_max: int) -> str:
    """Text on one line: what cannot be printed is written out, and what is too long is cut."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[: characters_max + 1])
    if not shown:
        return "(empty)"
    return shown if len(shown) <= characters_max else shown[: characters_max - 1] + "…"


# By the name of the page's variable.
_STANDINS = {
    "ink": "#010101",
    "muted": "#020202",
    "line": "#030303",
    **{f"series-{number}": f"#0{number}f00{number}" for number in range(1, 8)},
}
SERIES = tuple(_STANDINS[f"series-{number}"] for number in range(1, 8))
# As many as can be told apart.
SERIES_MAX = len(SERIES)

_INK, _MUTED, _LINE = _STANDINS["ink"], _STANDINS["muted"], _STANDINS["line"]
_WIDTH_INCHES = 9.2
_SETTINGS: Any = {
    # Real text: it can be read out, searched and copied, and takes the page's font.
    "svg.fonttype": "none",
    "svg.hashsalt": "quiver",
    # A key may have dollar signs in it, and they are no formula.
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.7,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "legend.frameon": False,
}

# Where people expect a tick: tens, up to a second, and then what clocks count in.
_SECOND_US = 1_000_000
_DURATIONS_US = (
    *(10**power for power in range(7)),
    *(10 * _SECOND_US, 60 * _SECOND_US, 600 * _SECOND_US, 3600 * _SECOND_US, 6 * 3600 * _SECOND_US),
    *(86_400 * _SECOND_US, 7 * 86_400 * _SECOND_US, 30 * 86_400 * _SECOND_US),
)

Series = Mapping[str, Sequence[float]]


@contextmanager
def _figure(height_inches: float) -> Iterator[tuple[Any, Any]]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS), warnings.catch_warnings():
        # The page draws the letters, with whatever font it has them in.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        yield figure, figure.add_subplot()


def _drawn(figure: Any, name: str) -> str:
    """The figure as an element of a page; `name` sets its ids apart from those of others."""
    out = StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Only inside of tags: what stands between them is text, which may look like anything.
    svg = re.sub(r"<[^>]*>", lambda tag: _own(tag.group(), name), svg)
    # As wide as there is room; read out by the words beside it.
    return re.sub(r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r'<svg \1 aria-hidden="true">', svg, count=1)


def _own(tag: str, name: str) -> str:
    """A tag with ids of its own and the colours of the page."""
    tag = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", tag)
    for variable, standin in _STANDINS.items():
        tag = tag.replace(standin, f"var(--{variable})")
    return tag


def time_lines(name: str, edges: Sequence[int], series: Series, unit: str) -> str:
    """Lines over time. What is counted in steps is drawn in steps, from one edge to the next."""
    with _figure(3.2) as (figure, axes):
        moments = [datetime.fromtimestamp(int(edge), UTC) for edge in edges]
        for colour, (label, values) in zip(SERIES, series.items(), strict=False):
            axes.stairs(values, moments, color=colour, label=label, linewidth=1.6, baseline=None)
            axes.stairs(values, moments, color=colour, fill=True, alpha=0.12)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: short_count(value))
        _finish_time(figure, axes, moments, unit, len(series))
        return _drawn(figure, name)


def duration_lines(name: str, edges: Sequence[int], series: Series) -> str:
    """Durations in µs over time, each tenfold the same height."""
    with _figure(3.2) as (figure, axes):
        moments = [datetime.fromtimestamp(int(edge), UTC) for edge in edges]
        middles = [a + (b - a) / 2 for a, b in pairwise(moments)]
        for colour, (label, values) in zip(SERIES, series.items(), strict=False):
            axes.plot(middles, values, color=colour, label=label, linewidth=1.6, marker="o", markersize=3)
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        ticks = [each for each in _DURATIONS_US if low <= each <= high]
        ticks = ticks[:: -(-len(ticks) // 7)] if ticks else [(low * high) ** 0.5]
        axes.set_yticks(ticks, [duration_text(each) for each in ticks])
        axes.minorticks_off()
        _finish_time(figure, axes, moments, "publish to ack", len(series))
        return _drawn(figure, name)


def time_bars(name: str, edges: Sequence[int], series: Series, unit: str) -> str:
    """Counts over time, side by side."""
    with _figure(2.8) as (figure, axes):
        moments = [datetime.fromtimestamp(int(edge), UTC) for edge in edges]
        width = (moments[1] - moments[0]) / (len(series) + 0.4)
        for place, (colour, (label, values)) in enumerate(zip(SERIES, series.items(), strict=False)):
            left = [moment + width * (place + 0.2) for moment in moments[:-1]]
            axes.bar(left, values, width, align="edge", color=colour, label=label)
        axes.yaxis.set_major_formatter(lambda value, _: short_count(value))
        axes.yaxis.get_major_locator().set_params(integer=True)
        _finish_time(figure, axes, moments, unit, len(series))
        return _drawn(figure, name)


def histogram(name: str, edges: Sequence[float], counts: Sequence[int], texts: Mapping[float, str]) -> str:
    """How many there are between edges, each doubling the same width. `texts` are the ticks."""
    with _figure(2.8) as (figure, axes):
        axes.stairs(counts, edges, color=SERIES[0], fill=True, alpha=0.85)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(texts), list(texts.values()))
        axes.minorticks_off()
        axes.grid(visible=False, axis="x")
        axes.set_xlim(edges[0], edges[-1])
        axes.yaxis.set_major_formatter(lambda value, _: short_count(value))
        axes.set_xlabel("size of the value")
        axes.set_ylabel("messages")
        return _drawn(figure, name)


def bars(name: str, labels: Sequence[str], series: Series, format_value: Any) -> str:
    """Bars to the right, one below the other, with what they stand for at their ends."""
    with _figure(0.3 + 0.32 * len(labels) + 0.3 * (len(series) > 1)) as (figure, axes):
        places, ends = range(len(labels)), [0.0] * len(labels)
        for colour, (label, values) in zip(SERIES, series.items(), strict=False):
            axes.barh(places, values, left=ends, height=0.62, color=colour, label=label)
            ends = [end + value for end, value in zip(ends, values, strict=True)]
        axes.set_yticks(places, labels)
        axes.tick_params(axis="y", length=0, labelcolor=_INK)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.grid(visible=False)
        # The numbers stand at the bars.
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        largest = max(ends, default=0) or 1
        # Room for the numbers behind the longest bar.
        axes.set_xlim(0, largest * 1.12)
        for place, end in zip(places, ends, strict=True):
            axes.text(end + largest * 0.01, place, format_value(end), va="center", color=_MUTED, fontsize=9)
        if len(series) > 1:
            figure.legend(loc="outside upper left", ncols=len(series))
        return _drawn(figure, name)


def _finish_time(figure: Any, axes: Any, moments: Sequence[datetime], unit: str, series: int) -> None:
    # As a whole, because it has no types.
    from matplotlib import dates

    untyped: Any = dates
    locator = untyped.AutoDateLocator(minticks=3, maxticks=8, tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator, tz=UTC))
    axes.grid(visible=False, axis="x")
    axes.set_xlim(moments[0], moments[-1])
    axes.set_ylabel(unit)
    if series > 1:
        figure.legend(loc="outside upper left", ncols=min(series, 4))
