"""A system without what only Unix has, such as Windows: the client works, and a directory is refused."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.broker import serving

# What the standard library itself needs here is loaded first; then it is taken away from everybody else.
_BLOCKED = """
import asyncio, multiprocessing, signal, socket, ssl, subprocess, sys, tempfile, threading
import os
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "crypt"):
    sys.modules[name] = None
for name in (
    "fork", "register_at_fork", "writev", "readv", "pread", "pwrite", "preadv", "pwritev", "sysconf",
    "statvfs", "fstatvfs", "fdatasync", "posix_fallocate", "posix_fadvise", "sendfile", "getuid", "geteuid",
    "getgid", "umask", "chown", "fchown", "fchmod", "mkfifo", "setsid", "killpg", "getpgid", "uname",
    "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "O_DSYNC", "O_SYNC", "sched_getaffinity",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGQUIT"):
    if hasattr(signal, name):
        delattr(signal, name)
"""

_CLIENT = """
import quivermq
with quivermq.connect(sys.argv[1]) as mq:
    orders = mq.queue("orders")
    orders.put(b"a", key=b"k", delay=0)
    orders.put_many([b"b", quivermq.Message(value=b"c")])
    got = orders.get_many(10, timeout=5)
    orders.ack(got)
    print([m.value for m in got], *mq.stats().topics)
"""

_AIO = """
import quivermq.aio
async def main():
    async with await quivermq.aio.connect(sys.argv[1]) as mq:
        await mq.queue("orders").put(b"later")
        message = await mq.queue("orders").get(timeout=5)
        await message.ack()
        print(message.value)
asyncio.run(main())
"""

_OPEN = """
import quivermq
for call in (quivermq.open, quivermq.verify, quivermq.repair):
    try:
        call(sys.argv[1])
    except quivermq.UnsupportedSystem as error:
        print(error.code, "quivermq.connect" in str(error), "quiver serve" in str(error))
"""


def run(source: str, argument: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED + source, str(argument)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("source", "printed"),
    [(_CLIENT, "[b'a', b'b', b'c'] orders"), (_AIO, "b'later'")],
    ids=["blocking", "asynchronous"],
)
def test_the_client_works(source: str, printed: str, tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        assert run(source, broker.url) == printed


def test_a_directory_is_refused_by_name_and_it_is_said_what_to_do(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run(_OPEN, data) == "\n".join(["unsupported_system True True"] * 3)
    assert not data.exists()


def test_every_module_of_the_client_loads() -> None:
    source = """
import importlib, pkgutil
import quivermq, quivermq.aio, quivermq.client
names = [m.name for m in pkgutil.walk_packages(quivermq.client.__path__, "quivermq.client.")]
for name in names:
    importlib.import_module(name)
print(len(names) > 10)
"""
    assert run(source, "") == "True"


def test_the_command_line_talks_to_a_broker(tmp_path: Path) -> None:
    source = """
from quivermq.cli import main
sys.argv = ["quiver", *{arguments}, "--server", sys.argv[1]]
sys.exit(main())
"""
    with serving(tmp_path) as broker:
        run(source.format(arguments=("put", "orders", "hello")), broker.url)
        assert run(source.format(arguments=("get", "orders")), broker.url) == "hello"
