"""The files of the dashboard: which there are, and what none of them does."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from quivermq.server.dashboard.routes import STATIC, load_files

ROOT = Path(__file__).parents[4]
FILES = load_files()
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))
STYLE = FILES["style.css"].body.decode()

# What would make markup or script out of a text, or a request to somewhere else.
FORBIDDEN = (
    r"innerHTML",
    r"outerHTML",
    r"insertAdjacentHTML",
    r"document\.write",
    r"\beval\b",
    r"new Function",
    r"setAttribute\(\"on",
    r"createContextualFragment",
    r"DOMParser",
    r"https?://",
    r"@import",
    r"\burl\(",
)
# The one place that names them, to refuse them; and the name of a language, which is an address.
ALLOWED = {"dom.js": {"innerHTML", "outerHTML", r"https?://"}, "icon.svg": {r"https?://"}}


def test_every_file_has_a_type_and_a_tag_of_its_own() -> None:
    assert {"index.html", "app.js", "style.css", "icon.svg", "pages/overview.js"} <= FILES.keys()
    assert FILES["app.js"].content_type == "text/javascript; charset=utf-8"
    assert len({file.tag for file in FILES.values()}) == len(FILES)


def test_what_is_no_part_of_a_page_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "a.js").write_text("x")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.css").write_text("x")
    assert list(load_files(root=tmp_path)) == ["a.js", "deep/b.css"]


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_text_becomes_markup_and_nobody_else_is_asked(name: str) -> None:
    text = FILES[name].body.decode()
    found = {pattern for pattern in FORBIDDEN if re.search(pattern, text)}
    assert found <= ALLOWED.get(name, set())


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_import_is_there(name: str) -> None:
    imported = re.findall(r'from "(\.{1,2}/[^"]+)"', FILES[name].body.decode())
    here = (STATIC / name).parent
    for other in imported:
        place = (here / other).resolve().relative_to(STATIC.resolve())
        assert str(place) in FILES, f"{name} imports {other}"


def test_the_page_has_no_script_or_style_inside() -> None:
    page = FILES["index.html"].body.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|<style| style=| on[a-z]+=", page) == []


def tokens(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", block))


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_can_be_read(theme: str) -> None:
    light = tokens(STYLE.partition(":root {")[2].partition("}")[0])
    dark = tokens(STYLE.partition(':root[data-theme="dark"] {')[2].partition("}")[0])
    colors = light if theme == "light" else dark
    assert colors.keys() == light.keys()
    for ground in ("ground", "card", "raised", "soft"):
        for ink in ("ink", "quiet", "accent", "good", "warn", "bad"):
            assert contrast(colors[ink], colors[ground]) >= 4.5, f"{ink} on {ground}"
    for kind in ("good", "warn", "bad"):
        assert contrast(colors[kind], colors[f"{kind}-soft"]) >= 4.5, kind
        assert contrast(colors["ink"], colors[f"{kind}-soft"]) >= 4.5, kind
    assert contrast(colors["accent-ink"], colors["accent"]) >= 4.5
    assert contrast(colors["ink"], colors["accent-soft"]) >= 4.5
    for line in ("edge", "c1", "c2", "c3", "c4", "c5", "c6"):
        assert contrast(colors[line], colors["card"]) >= 3, line


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = tmp_path.glob("*.whl")
    prefix = "quivermq/server/dashboard/static/"
    inside = {name.removeprefix(prefix) for name in zipfile.ZipFile(wheel).namelist() if prefix in name}
    assert inside == set(FILES)
