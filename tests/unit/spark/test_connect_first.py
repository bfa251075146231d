import os
import socket
import subprocess
from pathlib import Path

import pytest

from quivermq.spark.session import worker_python

# Imports that take long are a line that does not come.
_SLOW = """
import os, socket, sys
sys.stdin.readline()
place = os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"]
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
    sock.settimeout(60)
    sock.connect(place)
    with sock.makefile("rwb", 65536) as file:
        file.write(" ".join([__name__, *sys.argv[1:], file.readline().decode().strip()]).encode())
try:
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(place)
except OSError:
    print("a second connection is another one")
"""
_PATIENCE_S = 60


def start(directory: Path, place: str) -> subprocess.Popen[bytes]:
    (directory / "slow_module.py").write_text(_SLOW)
    return subprocess.Popen(
        [worker_python(), "-m", "slow_module", "argument"],
        cwd=directory,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SOCK_PATH": place},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that sockets can be in, whose paths must not be long."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_spark_has_a_connection_before_the_module_has_done_anything(short_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind("door")
        door.listen()
        door.settimeout(_PATIENCE_S)
        with start(short_path, "door") as process:
            connection, _ = door.accept()
            with connection, connection.makefile("rwb") as file:
                door.close()
                file.write(b"hello\n")
                file.flush()
                out, errors = process.communicate(b"go on\n", timeout=_PATIENCE_S)
                assert process.returncode == 0, errors
                assert file.read() == b"__main__ argument hello"
    assert out == b"a second connection is another one\n"


def test_where_nobody_listens_the_module_itself_finds_out(short_path: Path) -> None:
    with start(short_path, "nobody") as process:
        _, errors = process.communicate(b"go on\n", timeout=_PATIENCE_S)
    assert process.returncode == 1
    assert b"sock.connect(place)" in errors
    assert b"FileNotFoundError" in errors
