"""A process that reads a log and tells how it grew: `python -m benchmarks.memory_reader PATH READER`."""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from crc32c import crc32c

from benchmarks.measure import now
from benchmarks.workload import LOG, check, chunks_of, log_files, mapped
from quivermq import DataDirectory

STATUS = Path("/proc/self/status")
_SAMPLE_EVERY = 64


def main() -> None:
    path, reader = Path(sys.argv[1]), sys.argv[2]
    steps = {"frames": _frames, "mapped": _mapped_frames, "pread": _pread, "mmap": _mmap}[reader](path)
    first = peak = _resident()
    before = now()
    for number, _ in enumerate(steps):
        if number % _SAMPLE_EVERY == 0:
            peak = _larger(peak, _resident())
    peak = _larger(peak, _resident())
    growth = {kind: peak[kind] - first[kind] for kind in first}
    print(json.dumps({**growth, "usage": asdict(now() - before)}))


def _frames(path: Path) -> Iterable[object]:
    with DataDirectory(path) as data:
        yield from data.log(LOG).frames()


def _mapped_frames(path: Path) -> Iterable[object]:
    with DataDirectory(path) as data:
        yield from data.log(LOG).frames(mapped=True)


def _pread(path: Path) -> Iterable[object]:
    for file in log_files(path):
        for chunk in chunks_of(file):
            yield crc32c(chunk)


def _mmap(path: Path) -> Iterable[object]:
    """File by file, as a log is mapped; sampled while each is wholly resident."""
    for file in log_files(path):
        with mapped([file]) as memories:
            check(memories)
            for _ in range(_SAMPLE_EVERY):
                yield None


def _resident() -> dict[str, int]:
    """Bytes in memory now: the process's own, and those of mapped files."""
    fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return {
        "anonymous": 1024 * int(fields["RssAnon"].split()[0]),
        "file": 1024 * int(fields["RssFile"].split()[0]),
    }


def _larger(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {kind: max(size, other[kind]) for kind, size in one.items()}


if __name__ == "__main__":
    main()
