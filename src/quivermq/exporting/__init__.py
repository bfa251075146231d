"""Ranges of a topic as files that other programs read: NDJSON, Arrow IPC, Parquet."""

from quivermq.exporting.formats import Format
from quivermq.exporting.run import ExportedLane, ExportSummary, export

__all__ = ["ExportSummary", "ExportedLane", "Format", "export"]
