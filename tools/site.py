"""What mkdocs asks while it builds the site: the pages that are not in docs, and the links to them.

Pages link to files beside docs, the examples for instance, as they do in the repository. On the site these
files are pages as well, and the links lead there.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

# Files that the navigation has, by where they are in the repository: where they are on the site.
IN_NAVIGATION = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/first_queue.py": "examples/first_queue.md",
    "examples/worker.py": "examples/worker.md",
    "examples/pipelines/README.md": "examples/pipelines.md",
}
# Where the others go, to which some page links.
_FURTHER = "files"
_LANGUAGES = {".py": "python", ".json": "json", ".yaml": "yaml", ".toml": "toml"}
# More than that is to be loaded, not to be read.
_SHOWN_CHARACTERS_MAX = 50_000
_PICTURE = re.compile(r'<p><img alt="[^"]*" src="([^":]+\.svg)" ?/?></p>')
_CELL_CODE = re.compile(r"<t[dh]\b[^>]*>.*?</t[dh]>", re.DOTALL)
_CODE = re.compile(r"<code\b[^>]*>.*?</code>", re.DOTALL)
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let entries with a * stand for the pages that they match."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files beside docs that are in the navigation, and those that a page links to."""
    linked = {
        target
        for page in files.documentation_pages()
        for target in _targets(f"docs/{page.src_uri}", page.content_string)
    }
    beside = {*IN_NAVIGATION, *linked}
    # Such a file may link to further ones, but no deeper than that.
    beside |= {target for path in beside for target in _targets(path, _text(path))}
    for path in sorted(beside):
        files.append(File.generated(config, place_of(path), content=_content(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn links to files beside docs into links to their pages."""
    place = page.file.src_uri
    origin = _origin(place)

    def rewritten(link: "re.Match[str]") -> str:
        target = _resolved(origin, link[2])
        if origin.startswith("docs/") and target.startswith("docs/"):
            return link[0]
        if not (ROOT / target).is_file():
            return link[0]
        return f"{link[1]}{posixpath.relpath(place_of(target), posixpath.dirname(place) or '.')}{link[3]}"

    return _LINK.sub(rewritten, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Draw pictures in place, so that they have the colours that the reader chose."""

    def drawn(image: "re.Match[str]") -> str:
        path = posixpath.join(posixpath.dirname(page.file.src_uri), image[1])
        return f'<div class="picture">{(Path(config.docs_dir) / path).read_text(encoding="utf-8")}</div>'

    return _CELL_CODE.sub(_without_escapes, _PICTURE.sub(drawn, html))


def _without_escapes(cell: "re.Match[str]") -> str:
    """A cell of a table whose code shows a bar as a bar.

    There it has to be written with a backslash, or it would end the cell. GitHub takes the backslash away
    again, also inside of code; Python-Markdown only outside of it.
    """
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), cell[0])


def place_of(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in IN_NAVIGATION:
        return IN_NAVIGATION[path]
    is_page = path.endswith(".md") or len(_text(path)) > _SHOWN_CHARACTERS_MAX
    return f"{_FURTHER}/{path}" if is_page else f"{_FURTHER}/{path}.md"


def _origin(place: str) -> str:
    """Where a page of the site is in the repository."""
    known = next((path for path, made in IN_NAVIGATION.items() if made == place), None)
    if known is not None:
        return known
    if place.startswith(f"{_FURTHER}/"):
        path = place.removeprefix(f"{_FURTHER}/")
        return path if (ROOT / path).exists() else path.removesuffix(".md")
    return f"docs/{place}"


def _targets(path: str, text: str) -> Iterator[str]:
    """The files beside docs that a page links to."""
    for link in _LINK.finditer(text):
        target = _resolved(path, link[2])
        if not target.startswith(("docs/", "..")) and (ROOT / target).is_file():
            yield target


def _resolved(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8") if path.endswith(".md") or _is_text(path) else ""


def _is_text(path: str) -> bool:
    return PurePosixPath(path).suffix in (*_LANGUAGES, "")


def _content(path: str) -> str:
    """A file as a page: Markdown as it is, anything else as a block of code."""
    text = _text(path)
    if path.endswith(".md") or not place_of(path).endswith(".md"):
        return text
    return f"# {path}\n\n````{_LANGUAGES.get(PurePosixPath(path).suffix, 'text')}\n{text}````\n"


def _expanded(nav: Any, docs: Path) -> Any:
    if isinstance(nav, dict):
        return {title: _expanded(below, docs) for title, below in nav.items()}
    if not isinstance(nav, list):
        return nav
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            found += sorted(path.relative_to(docs).as_posix() for path in docs.glob(entry))
        else:
            found.append(_expanded(entry, docs))
    return found
