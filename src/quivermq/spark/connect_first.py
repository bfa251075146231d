"""Run a module, as `python -m` does, with its connection to Spark made before anything is imported.

Spark waits ten seconds for the Python of a streaming source to connect, and no setting changes that; for
what comes afterwards it waits as long as it is told. A busy machine may need longer to import pyspark.
This file is started by its path, and imports nothing that takes time.
"""

import os
import runpy
import socket
import sys
from typing import Any

_PLACE = "PYTHON_WORKER_FACTORY_SOCK_PATH"


def connect_first(place: str) -> None:
    """Connect to a socket of Spark; who connects to it later gets this connection."""
    early = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        early.connect(place)
    except OSError:
        # Whoever tries again later is told, and tells of it as Spark does.
        early.close()
        return
    connect = socket.socket.connect

    def hand_over(self: Any, address: Any) -> None:
        if address != place:
            connect(self, address)
            return
        socket.socket.connect = connect  # type: ignore[method-assign]
        timeout = self.gettimeout()
        socket.close(self.detach())
        self.__init__(fileno=early.detach())
        self.settimeout(timeout)

    socket.socket.connect = hand_over  # type: ignore[method-assign]


if __name__ == "__main__":
    # Spark calls it with `-m` and the name of a module.
    assert sys.argv[1] == "-m", sys.argv
    module = sys.argv[2]
    del sys.argv[1:3]
    # As `-m` does: the current directory comes first.
    sys.path.insert(0, "")
    connect_first(os.environ[_PLACE])
    runpy.run_module(module, run_name="__main__", alter_sys=True)
