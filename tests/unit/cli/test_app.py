import pytest
from reference import ROOT, cli_page

from quivermq.cli.output import counted


def test_the_page_is_what_make_reference_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert (ROOT / "docs/reference/cli.md").read_text() == cli_page()


def test_every_command_is_on_the_page() -> None:
    headings = [line for line in cli_page().splitlines() if line.startswith("## ")]
    commands = ("quiver", "quiver repair", "quiver settings", "quiver settings show", "quiver verify")
    assert headings == [f"## {command}" for command in commands]


@pytest.mark.parametrize(("count", "text"), [(0, "0 indexes"), (1, "1 index"), (2, "2 indexes")])
def test_what_is_counted_is_in_the_right_number(count: int, text: str) -> None:
    assert counted(count, "index", "indexes") == text
    assert counted(2, "log") == "2 logs"
