"""Metrics as Prometheus reads them: its text format 0.0.4."""

from collections.abc import Iterable, Iterator, Mapping

from quivermq.metrics import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def exposition(samples: Iterable[Sample]) -> bytes:
    """All samples as text. Those of one name have to follow each other, as `Metrics.collect` has them."""
    return "".join(f"{line}\n" for line in _lines(samples)).encode()


def _lines(samples: Iterable[Sample]) -> Iterator[str]:
    name = None
    for sample in samples:
        if sample["name"] != name:
            name = sample["name"]
            yield f"# HELP {name} {sample['help'].translate(_HELP_ESCAPES)}"
            yield f"# TYPE {name} {sample['kind']}"
        if sample["kind"] == "histogram":
            yield from _histogram_lines(sample)
        else:
            yield f"{name}{_labels(sample['labels'])} {sample['value']!r}"


def _histogram_lines(sample: Sample) -> Iterator[str]:
    name, pairs = sample["name"], _pairs(sample["labels"])
    # Each has dozens of lines, of which only the bound differs.
    before = f"{name}_bucket{{{pairs}{',' if pairs else ''}le="
    for bound, count in sample["buckets"]:
        yield f'{before}"{bound}"}} {count}'
    labels = _labels(sample["labels"])
    yield f"{name}_sum{labels} {sample['sum']!r}"
    yield f"{name}_count{labels} {sample['count']}"


def _labels(labels: Mapping[str, str]) -> str:
    return f"{{{_pairs(labels)}}}" if labels else ""


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())
