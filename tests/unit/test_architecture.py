"""The rules of the design that keep the code in one direction, checked on the source itself."""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest
from support.source_rules import async_syntax, file_io, imported_layers

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "quivermq"
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}

LAYERS_TODAY = (
    "cli",
    "opening",
    "aio",
    "server",
    "queue",
    "backend",
    "client",
    "engine",
    "group",
    "delivery",
    "topic",
    "log",
    "segment",
    "frame",
    "model",
    "disk",
    "reentry",
    "helping",
    "clock",
    "settings",
    "metrics",
    "errors",
)
# It reads what others keep, and writes as any other program does: with `quivermq.open`, or as a client.
LAYERS_OF_SPARK = {
    "spark",
    "reading",
    "opening",
    "queue",
    "client",
    "delivery",
    "topic",
    "archive",
    "log",
    "shared",
    "segment",
    "frame",
    "model",
    "disk",
    "clock",
    "settings",
    "sealed",
    "errors",
}


def lint_imports(python_path: Path) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [command, "--config", ROOT / "pyproject.toml", "--no-cache"],
        cwd=python_path,
        env={**os.environ, "PYTHONPATH": str(python_path)},
        capture_output=True,
        text=True,
    )


def test_each_layer_imports_only_the_layers_below_it() -> None:
    result = lint_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("errors", "settings"), ("disk", "clock"), ("frame", "segment"), ("segment", "log")],
)
def test_an_import_of_a_layer_above_is_caught(tmp_path: Path, importer: str, imported: str) -> None:
    package = tmp_path / "quivermq"
    package.mkdir()
    for name in ("__init__", *LAYERS_TODAY):
        (package / f"{name}.py").touch()
    assert lint_imports(tmp_path).returncode == 0
    (package / f"{importer}.py").write_text(f"import quivermq.{imported}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    assert f"quivermq.{importer} -> quivermq.{imported}" in result.stdout


def test_a_module_without_a_layer_is_caught(tmp_path: Path) -> None:
    package = tmp_path / "quivermq"
    package.mkdir()
    for name in ("__init__", *LAYERS_TODAY, "stray"):
        (package / f"{name}.py").touch()
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    assert "stray" in result.stdout


def allowed_file_io(module: str) -> set[str]:
    return {"read_text"} if module == "settings/load.py" else set()


# The command line is the user's, and chaos breaks files on purpose.
@pytest.mark.parametrize("module", sorted(m for m in MODULES if not m.startswith(("cli/", "chaos/"))))
def test_only_the_disk_touches_files(module: str) -> None:
    found = set(file_io(MODULES[module].read_text()))
    if module == "disk.py":
        assert found, "the checker no longer sees what disk.py does"
    else:
        assert found <= allowed_file_io(module)


@pytest.mark.parametrize(
    ("snippet", "found"),
    [
        ("open('x')", ["open"]),
        ("with open('x') as f: pass", ["open"]),
        ("list(map(open, names))", ["open"]),
        ("import os\nos.open('x', 0)", ["os.open"]),
        ("import os as system\nsystem.write(1, b'')", ["os.write"]),
        ("import os\nos.path.exists('x')", ["exists", "os.path"]),
        ("import os.path\nos.path.getsize('x')", ["os.path", "os.path"]),
        ("from os import fsync", ["os.fsync"]),
        ("from os import replace as swap", ["os.replace"]),
        ("def late():\n    import mmap", ["mmap"]),
        ("import fcntl", ["fcntl"]),
        ("from shutil import rmtree", ["shutil.rmtree"]),
        ("import io\nio.open('x')", ["io.open"]),
        ("from io import open as io_open", ["io.open"]),
        ("import pyarrow as pa\npa.memory_map('x')", ["pyarrow.memory_map"]),
        ("path.read_bytes()", ["read_bytes"]),
        ("(directory / name).write_text('')", ["write_text"]),
        ("path.open()", ["open"]),
        ("(directory / name).open()", ["open"]),
        ("Path('x').open()", ["open"]),
        ("Path.open(path)", ["open"]),
        ("self.path.unlink()", ["unlink"]),
        ("path.mkdir()", ["mkdir"]),
        ("path.rename(target)", ["rename"]),
        ("path.replace(target)", ["replace"]),
    ],
)
def test_file_io_is_recognised(snippet: str, found: list[str]) -> None:
    assert file_io(snippet) == found


@pytest.mark.parametrize(
    "snippet",
    [
        "import os\nos.getpid()",
        "disk.open(path)",
        "self._disk.rename(source, target)",
        "Segment.open(disk, path)",
        "from quivermq import engine\nengine.open(path)",
        "def open(path): ...\nopen('x')",
        "text.replace('a', 'b')",
        "moment.replace(tzinfo=None)",
        "import io\nio.BytesIO()",
        "from pathlib import Path\nPath('x') / 'y'",
    ],
)
def test_other_code_is_not_taken_for_file_io(snippet: str) -> None:
    assert file_io(snippet) == []


# What stands between brokers and servers, to cut them off, is an edge as well.
@pytest.mark.parametrize(
    "module",
    sorted(m for m in MODULES if not m.startswith(("server/", "client/", "aio/", "chaos/fault_proxy.py"))),
)
def test_only_the_edge_is_asynchronous(module: str) -> None:
    assert async_syntax(MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    "snippet",
    [
        "async def f(): pass",
        "async def f():\n    await g()",
        "async def f():\n    return [x async for x in y]",
        "import asyncio",
        "from asyncio import run",
    ],
)
def test_asynchronous_code_is_recognised(snippet: str) -> None:
    assert async_syntax(snippet)


def test_spark_imports_only_frame_log_client_and_leaves() -> None:
    sources = [
        path.read_text() for name, path in MODULES.items() if name.startswith(("spark/", "reading/"))
    ]
    assert set().union(*map(imported_layers, sources)) <= LAYERS_OF_SPARK


@pytest.mark.parametrize(
    ("snippet", "layers"),
    [
        ("import quivermq.engine", {"engine"}),
        ("from quivermq import server", {"server"}),
        ("from quivermq.log.reader import LogReader\nimport json", {"log"}),
    ],
)
def test_imported_layers_are_recognised(snippet: str, layers: set[str]) -> None:
    assert imported_layers(snippet) == layers


PAGE = ROOT / "docs" / "internals" / "architecture.md"
# The packages, and "" for the modules that are in none.
PACKAGES = sorted({name.rpartition("/")[0].partition("/")[0] for name in MODULES})


def named_modules(tree: str) -> list[str]:
    """The modules that the tree of the page names. A line that begins with `name/` opens a package; what
    is indented further than it belongs to it, and every `name.py` there is a module."""
    opened: list[tuple[int, str]] = []
    found = []
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        opened = [each for each in opened if each[0] < indent]
        folder = "".join(name for _, name in opened)
        if package := re.match(r" *(\w+/)(?: |$)", line):
            opened.append((indent, package[1]))
        else:
            found += [folder + name for name in re.findall(r"(?<!\S)\w+\.py(?!\S)", line)]
    return found


def layers_of_the_page() -> str:
    return PAGE.read_text().split("```text\nsrc/quivermq/\n")[1].split("```")[0]


def test_modules_are_found_in_a_tree() -> None:
    tree = """\
  errors.py   all of them          disk.py  files
  server/     the broker, with run.py, which is not named here
    app.py    a request            run.py   listen
    routes/   the calls
      app.py  more
    gate.py   keys
  aio.py      names
"""
    assert named_modules(tree) == [
        "errors.py",
        "disk.py",
        "server/app.py",
        "server/run.py",
        "server/routes/app.py",
        "server/gate.py",
        "aio.py",
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_names_every_module_and_no_other(package: str) -> None:
    def inside(names: list[str]) -> list[str]:
        return sorted(name for name in names if name.rpartition("/")[0].partition("/")[0] == package)

    there = [name for name in MODULES if not name.endswith("__init__.py")]
    assert inside(named_modules(layers_of_the_page())) == inside(there)


def test_the_page_names_no_package_that_is_gone() -> None:
    named = {name.rpartition("/")[0].partition("/")[0] for name in named_modules(layers_of_the_page())}
    assert named <= set(PACKAGES)


def modules_by_class(sources: dict[str, str]) -> dict[str, list[str]]:
    """Where each public class at the top of a module is defined."""
    found = defaultdict(list)
    for module, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


def test_classes_are_found() -> None:
    sources = {"a": "class One: ...\nclass _Own: ...", "b": "class One:\n    class Inner: ..."}
    assert modules_by_class(sources) == {"One": ["a", "b"]}


def test_no_two_public_classes_have_the_same_name() -> None:
    found = modules_by_class({name: path.read_text() for name, path in MODULES.items()})
    twice = {name: sorted(modules) for name, modules in found.items() if len(modules) > 1}
    assert twice == {}


# Words that only we would understand: docs/glossary.md has the plain ones.
PRIVATE_WORDS = {
    *("bell", "bells", "draft", "drafts", "grave", "graves", "guest", "guests", "hosted", "lives"),
    *("nursery", "owed", "pay", "sighting", "sightings", "story", "stories"),
}
# Where such a word is left. No module may be added.
STILL_PRIVATE = {"server/polling.py", "server/routes/publish.py"}


def private_names(source: str) -> set[str]:
    """The names of the code, not of its comments and texts, that have one of these words in them."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    return {name for name in names if PRIVATE_WORDS & words_of(name)}


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class Bell: ...", {"Bell"}),
        ("graves = _pay(self._owed)", {"graves", "_pay", "_owed"}),
        ("def open_guests(drafts): ...", {"open_guests", "drafts"}),
        ("from quivermq.topic.draft import TopicDraft", {"draft", "TopicDraft"}),
        ("lives_us = SightingTable", {"lives_us", "SightingTable"}),
        ("payload = paying = bellow = history = alive = is_paid  # a bell", set()),
        ("text = 'the story'", set()),
    ],
)
def test_private_words_are_found(source: str, found: set[str]) -> None:
    assert private_names(source) == found


@pytest.mark.parametrize("module", sorted(MODULES.keys() - STILL_PRIVATE))
def test_names_are_plain_words(module: str) -> None:
    assert private_names(MODULES[module].read_text()) == set()


def test_modules_have_plain_names() -> None:
    assert [module for module in MODULES if PRIVATE_WORDS & words_of(module)] == []


def named_classes(page: str) -> set[tuple[str, str]]:
    """The classes that a page names, each with the member that it names of it, if any."""
    return set(re.findall(r"`([A-Z][a-z]\w+)(?:\.(\w+))?(?:\(\))?`", page))


def test_classes_are_found_on_a_page() -> None:
    assert named_classes("`Log`, `Log.end` and `LogWriter.sync()`, not `log.py` or `HTTP`") == {
        ("Log", ""),
        ("Log", "end"),
        ("LogWriter", "sync"),
    }


def test_the_page_names_only_classes_that_there_are() -> None:
    found = modules_by_class({name: path.read_text() for name, path in MODULES.items()})
    for name, member in sorted(named_classes(PAGE.read_text())):
        assert name in found, f"there is no class {name}"
        source = "".join(MODULES[module].read_text() for module in found[name])
        assert re.search(rf"\b{member}\b", source), f"{name} has no {member}"
