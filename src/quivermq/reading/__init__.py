"""Reading a queue in bulk: the files of a data directory, or a broker over HTTP, behind one `QueueReader`.

A reader takes no message and changes none. It is cheap and can be pickled: it is sent to every task of a
cluster, and opens what it needs where it arrives. Importing this needs neither pyarrow nor Spark.
"""

from quivermq.reading.reader import MessageReader, QueueReader, reader_of

__all__ = ["MessageReader", "QueueReader", "reader_of"]
