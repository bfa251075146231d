"""Everything a newcomer copies works: the examples, and every block of the README and the docs.

A page is run from its top in one empty directory, as by somebody who tries it; `support.pages` says how its
blocks are meant. Pages that need Spark are run in tests/spark.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from support.pages import (
    PAGES,
    ROOT,
    Block,
    WarmServers,
    blocks_of,
    needs_spark,
    page_name,
    prose_of,
    run_page,
)

BLOCKS = {page: blocks_of(page) for page in PAGES}
WITHOUT_SPARK = [
    page
    for page, blocks in BLOCKS.items()
    if any(block.runs for block in blocks) and not needs_spark(blocks)
]
DATA = [
    pytest.param(block, id=block.place)
    for blocks in BLOCKS.values()
    for block in blocks
    if block.language in ("json", "toml", "yaml") and block.mark != "not run"
]
# The worker runs until it is killed: test_worker_example.py does that.
ENDING = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "worker.py")
WITH_ARROW = [path for path in ENDING if "arrow" in path.read_text()]
# What a page may ask for beside what the project brings.
TOOLS = ("curl", "jq", "openssl")
_READERS: dict[str, Any] = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServers]:
    with WarmServers(tmp_path_factory.mktemp("warm")) as servers:
        servers.start("plain")
        yield servers


@pytest.mark.parametrize("page", WITHOUT_SPARK, ids=page_name)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, warm: WarmServers) -> None:
    for tool in TOOLS:
        if any(f"{tool} " in block.text for block in BLOCKS[page]) and shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    done = run_page(BLOCKS[page], directory=tmp_path / "here", scratch=tmp_path / "scratch", warm=warm)
    assert not done.failure, done.failure
    assert done.printed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\nraise SystemExit(3)\n```\n", "page.md:1 ended with 3"),
        ("```python\nprint(1)\n```\n\n<!-- output -->\n\n```text\n2\n```\n", "and printed\n1"),
        ("```sh\ntrue\n```\n\n```sh\nquiver put --data data\n```\n", "page.md:5 ended with 2"),
        ("```sh\nfalse | cat\n```\n", "page.md:1 ended with 1"),
        ("```console\n$ echo one\none\n$ echo two\nthree\n```\n", "and printed\ntwo"),
        ("```sh\nmake nonsense\n```\n", "nonsense"),
        ("```sh\npip install 'quivermq[nonsense]'\n```\n", "page.md:1 ended with 1"),
        ("```sh\nquiver serve --data data --nonsense\n```\n", "--nonsense"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(text: str, said: str, tmp_path: Path, warm: WarmServers) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    done = run_page(blocks_of(page), directory=tmp_path / "here", scratch=tmp_path / "scratch", warm=warm)
    assert said in done.failure


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_runs_or_says_why_it_does_not(page: Path) -> None:
    forgotten = [f"{block.place} {block.language}" for block in BLOCKS[page] if not block.is_accounted_for]
    assert not forgotten


@pytest.mark.parametrize("block", DATA)
def test_a_block_of_data_can_be_read(block: Block) -> None:
    assert _READERS[block.language](block.text)


def test_the_readme_shows_python_curl_and_the_command_line() -> None:
    shown = "".join(block.text for block in BLOCKS[ROOT / "README.md"] if block.runs)
    for word in ("import quivermq", "curl", "quiver put"):
        assert word in shown


def run_example(path: Path, directory: Path, *, without: str = "") -> str:
    """What an example prints, where the packages named cannot be imported."""
    program = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({without.split()!r}));"
        f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=directory, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", ENDING, ids=lambda path: path.name)
def test_an_example_runs_with_what_a_broker_needs(path: Path, tmp_path: Path) -> None:
    """`make examples` uses what `make run` has installed."""
    shown = run_example(path, tmp_path, without="pyarrow pyspark pandas numpy")
    assert shown, "an example shows something"
    assert ("pip install 'quivermq[spark]'" in shown) == (path in WITH_ARROW)


@pytest.mark.parametrize("path", WITH_ARROW, ids=lambda path: path.name)
def test_an_example_shows_more_with_arrow(path: Path, tmp_path: Path) -> None:
    assert "{'offset': [0]" in run_example(path, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose_of(page))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing
