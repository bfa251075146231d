"""The pages of the documentation that need Spark, each from its top to its bottom."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import PAGES, WarmServers, blocks_of, needs_spark, page_name, run_page

WITH_SPARK = [page for page in PAGES if needs_spark(blocks_of(page))]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all pages, because the one Java that they share stays where it was started."""
    return tmp_path_factory.mktemp("here")


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, here: Path) -> Iterator[WarmServers]:
    with WarmServers(tmp_path_factory.mktemp("warm")) as servers:
        servers.start("plain")
        servers.start("spark", here)
        yield servers


@pytest.mark.parametrize("page", WITH_SPARK, ids=page_name)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, here: Path, warm: WarmServers) -> None:
    try:
        done = run_page(blocks_of(page), directory=here, scratch=tmp_path / "scratch", warm=warm)
    finally:
        # To where the stores of a test are verified; `here` itself stays, since Java is in it.
        (tmp_path / "here").mkdir()
        for path in here.iterdir():
            shutil.move(path, tmp_path / "here")
    assert not done.failure, done.failure
    assert done.printed
