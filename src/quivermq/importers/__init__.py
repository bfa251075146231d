"""The directories of other queues, read and brought into topics.

`import_queue` is the way in. A reader for each kind describes what is in a directory, in the words of
`model`; the side that writes knows none of them.
"""

from quivermq.importers.importing import Import, import_queue
from quivermq.importers.kinds import KINDS
from quivermq.importers.model import Finding, ImportSummary, TopicSummary

__all__ = ["KINDS", "Finding", "Import", "ImportSummary", "TopicSummary", "import_queue"]
