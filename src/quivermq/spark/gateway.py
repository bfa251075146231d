"""The Java process behind a session, which must not outlive a command that somebody interrupts."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

# It removes its temporary files first.
_SECONDS = 10
_SPARKS_HANDLER = "signal_handler"


@contextmanager
def ended_when_interrupted() -> Iterator[None]:
    """End the Java process that is started in here, if Ctrl-C comes in between.

    Spark forgets a process that does not answer yet, so it is noted when it starts. Whoever tries again
    afterwards gets a new one.
    """
    from pyspark import SparkContext, java_gateway

    module: Any = java_gateway
    started: list[subprocess.Popen[Any]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # A group of its own: until Java runs, there are some shell scripts, which all have to go.
            super().__init__(*args, **kwargs, start_new_session=True)
            started.append(self)

    usual = module.Popen
    module.Popen = Noted
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        if not _is_interruption(error):
            raise
        for process in started:
            end(process)
        if started:
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        raise KeyboardInterrupt from None
    finally:
        module.Popen = usual


def _is_interruption(error: BaseException) -> bool:
    """Whether Ctrl-C led to this. Spark's own handler of it fails while Java is asked for something."""
    names = {frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)}
    return isinstance(error, KeyboardInterrupt) or _SPARKS_HANDLER in names


def end_running() -> None:
    """End the Java process of this Python, whatever it is doing; its tasks end with it."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process, politely at first. A second Ctrl-C is the end of politeness."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: "subprocess.Popen[Any]", number: int) -> None:
    if process.poll() is not None:
        return
    try:
        is_leader = os.getpgid(process.pid) == process.pid
        os.killpg(process.pid, number) if is_leader else process.send_signal(number)
    except ProcessLookupError:
        return  # It has just ended by itself.
