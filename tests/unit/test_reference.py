"""The generated pages of docs/reference: they are as the code would write them, and leave nothing out."""

import pytest
import reference
from reference_names import NOT_FOR_USERS

import quivermq
import quivermq.aio
import quivermq.spark
from quivermq.server.routes import all_routes
from quivermq.spark.options import NAMES


@pytest.mark.parametrize("path", ["docs/reference/calls.md", "docs/reference/names.md"])
def test_the_page_is_what_make_reference_writes(path: str) -> None:
    assert (reference.ROOT / path).read_text(encoding="utf-8") == reference.PAGES[path]()


@pytest.mark.parametrize(
    "module", [quivermq, quivermq.aio, quivermq.spark], ids=lambda module: module.__name__
)
def test_every_public_name_is_on_the_page(module: object) -> None:
    page = reference.PAGES["docs/reference/names.md"]()
    names = {name for name in module.__all__ if not name.startswith("__")}  # type: ignore[attr-defined]
    assert not {name for name in names if f"### {name}\n" not in page and f"`{name}`" not in page}


def test_every_call_is_on_the_page() -> None:
    page = reference.PAGES["docs/reference/calls.md"]()
    calls = {f"### `{route.method} {route.path}`\n" for route in all_routes() if route.tag != "dashboard"}
    assert not {call for call in calls if call not in page}


def test_every_option_of_the_data_source_is_on_its_page() -> None:
    page = (reference.ROOT / "docs/reference/spark.md").read_text(encoding="utf-8")
    assert not {name for name in NAMES.values() if f"`{name}`" not in page}


def test_what_is_left_out_exists() -> None:
    for name, members in NOT_FOR_USERS.items():
        kind = getattr(quivermq, name, None) or getattr(quivermq.aio, name)
        assert not {member for member in members if not hasattr(kind, member)}
