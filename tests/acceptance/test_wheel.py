"""The wheel in an empty environment, away from the checkout: what somebody has after `pip install`."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from support.command import INHERITED

ROOT = Path(__file__).parents[2]


class Installed(NamedTuple):
    """An environment, and an empty directory to work in."""

    wheel: Path
    bin: Path
    cwd: Path

    def run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.cwd,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def environment() -> dict[str, str]:
    return {name: value for name, value in INHERITED.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    directory = tmp_path_factory.mktemp("wheel")
    # By way of the source distribution, so that this one is whole as well.
    build = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(directory / "dist"),
        str(ROOT),
    ]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = (directory / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    (directory / "cwd").mkdir()
    made = Installed(wheel, directory / "venv" / "bin", directory / "cwd")
    made.run("python", "-m", "pip", "install", "--quiet", f"{wheel}[server]")
    return made


@contextmanager
def serving(installed: Installed) -> Iterator[str]:
    command = [str(installed.bin / "quiver"), "serve", "--data", "data", "--port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=installed.cwd, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(60) == 0


def fetch(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def test_the_queue_works(installed: Installed) -> None:
    program = """
import quivermq
assert "site-packages" in quivermq.__file__
with quivermq.open("own") as mq:
    mq.queue("orders").put(b"tea")
    print(mq.queue("orders").pop().value.decode())
"""
    assert installed.run("python", "-c", program).split() == ["tea"]


def test_the_command_and_the_broker_work(installed: Installed) -> None:
    with serving(installed) as url:
        installed.run("quiver", "put", "orders", "tea", "--server", url)
        assert "tea" in installed.run("quiver", "get", "orders", "--server", url)
        assert json.loads(fetch(f"{url}/openapi.json"))["openapi"]


def test_the_dashboard_is_inside(installed: Installed) -> None:
    static = ROOT / "src" / "quivermq" / "server" / "dashboard" / "static"
    files = {str(path.relative_to(ROOT / "src")) for path in static.rglob("*") if path.is_file()}
    assert files
    with zipfile.ZipFile(installed.wheel) as wheel:
        assert files <= set(wheel.namelist())
    with serving(installed) as url:
        page = fetch(f"{url}/")
        links = re.findall(r'(?:src|href)="(?!#|data:)([^"]+)"', page)
        assert links
        for link in links:
            assert fetch(f"{url}/{link.lstrip('/')}")


def test_types_come_along(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        assert "quivermq/py.typed" in wheel.namelist()
        assert not [name for name in wheel.namelist() if name.startswith(("tests", "benchmarks", "docs"))]
