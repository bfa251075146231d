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
    name, labels = sample["name"], sample["labels"]
    for bound, count in sample["buckets"]:
        yield f"{name}_bucket{_labels({**labels, 'le': bound})} {count}"
    yield f"{name}_sum{_labels(labels)} {sample['sum']!r}"
    yield f"{name}_count{_labels(labels)} {sample['count']}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"
