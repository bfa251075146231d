"""Everything a newcomer copies runs: the examples, and the Python of the README and the docs."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker import serving

ROOT = Path(__file__).resolve().parents[2]
_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Where examples expect a broker.
_BROKER = "http://127.0.0.1:7070"

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(kind: "re.Pattern[str]") -> list[Any]:
    """Every block of a kind, named by its page and number."""
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(kind.findall(page.read_text()))
    ]


BLOCKS = blocks_of(_PYTHON_BLOCK)
# What talks to a broker; other commands, of make and pip, are for people.
SHELL_BLOCKS = [block for block in blocks_of(_SHELL_BLOCK) if _BROKER in block.values[0]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that all pages share, as they would the one of `make run`."""
    with serving(tmp_path_factory.mktemp("broker")) as served:
        yield served.url


def run(source: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_has_an_example() -> None:
    assert any("README" in str(block.id) for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_docs_runs(block: str, tmp_path: Path, broker: str) -> None:
    run(block.replace(_BROKER, broker), tmp_path)


@pytest.mark.parametrize("block", SHELL_BLOCKS)
def test_the_commands_of_the_docs_run(block: str, tmp_path: Path, broker: str) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.replace(_BROKER, broker)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '"error":' not in done.stdout


def test_the_readme_shows_curl_and_the_command_line() -> None:
    shown = "".join(block.values[0] for block in SHELL_BLOCKS if "README" in str(block.id))
    assert "curl" in shown
    assert "quiver put" in shown


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    assert run(path.read_text(), tmp_path), "an example shows something"


def test_the_readmes_example_shows_what_was_appended(tmp_path: Path) -> None:
    block = _PYTHON_BLOCK.findall((ROOT / "README.md").read_text())[0]
    assert run(block, tmp_path).splitlines() == [
        "0 b'customer-1' b'hello'",
        "1 None b'many'",
        "2 None b'at'",
        "3 None b'once'",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing
