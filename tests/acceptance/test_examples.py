"""Everything a newcomer copies runs: the examples, and the Python of the README and the docs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(_PYTHON_BLOCK.findall(page.read_text()))
]


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
def test_a_block_of_the_docs_runs(block: str, tmp_path: Path) -> None:
    run(block, tmp_path)


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
