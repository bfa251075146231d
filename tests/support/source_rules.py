"""Rules about the source that no linter knows: who may touch files, and who may be asynchronous.

They read the syntax tree, not the running program, so a line that no test reaches counts as well.
"""

import ast
from collections.abc import Iterator

# Importing one of these is reason enough.
_FILE_MODULES = {
    "dbm",
    "fcntl",
    "fileinput",
    "glob",
    "mmap",
    "shelve",
    "shutil",
    "sqlite3",
    "tempfile",
}
# What `os` offers besides files. Everything else of it counts as file I/O.
_OS_WITHOUT_FILES = {
    "PathLike",
    "cpu_count",
    "environ",
    "fspath",
    "getpgid",
    "getpid",
    "killpg",
    "register_at_fork",
    "urandom",
}
_FILE_FUNCTIONS = {
    "codecs.open",
    "io.FileIO",
    "io.open",
    "pyarrow.OSFile",
    "pyarrow.memory_map",
}
# Methods of a path, less those that every string has as well.
_PATH_METHODS = {
    "chmod",
    "glob",
    "hardlink_to",
    "is_dir",
    "is_file",
    "iterdir",
    "lstat",
    "mkdir",
    "read_bytes",
    "read_text",
    "rglob",
    "rmdir",
    "stat",
    "symlink_to",
    "touch",
    "unlink",
    "write_bytes",
    "write_text",
}
# Methods that a path shares with our own `Disk` and with classes that are opened: there it depends
# on the receiver.
_SHARED_METHODS = {"exists", "open", "rename"}

_ASYNC_NODES = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def file_io(source: str) -> list[str]:
    """The names through which the source reaches for files."""
    tree = ast.parse(source)
    return list(_file_io(tree, _imported_names(tree)))


def async_syntax(source: str) -> list[str]:
    """The asynchronous constructs of the source, and its imports of asyncio."""
    tree = ast.parse(source)
    found = [type(node).__name__ for node in ast.walk(tree) if isinstance(node, _ASYNC_NODES)]
    comprehensions = (node for node in ast.walk(tree) if isinstance(node, ast.comprehension))
    found += ["comprehension" for node in comprehensions if node.is_async]
    return found + [name for name in _imported_names(tree).values() if _top(name) == "asyncio"]


def imported_layers(source: str) -> set[str]:
    """The layers of quivermq that the source imports, by the name of their top module."""
    names = _imported_names(ast.parse(source)).values()
    return {name.split(".")[1] for name in names if name.startswith("quivermq.")}


def _file_io(tree: ast.Module, imported: dict[str, str]) -> Iterator[str]:
    yield from (name for name in imported.values() if _top(name) in _FILE_MODULES)
    yield from (name for name in imported.values() if _is_file_function(name))
    opens_itself = any(isinstance(node, ast.FunctionDef) and node.name == "open" for node in tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "open" and not opens_itself:
            yield "open"
        if isinstance(node, ast.Attribute):
            yield from _attribute_file_io(node, imported)
        if isinstance(node, ast.Call) and _is_path_replace(node):
            yield "replace"


def _attribute_file_io(node: ast.Attribute, imported: dict[str, str]) -> Iterator[str]:
    receiver = _last_name(node.value)
    module = imported.get(receiver, receiver)
    if _is_file_function(f"{module}.{node.attr}"):
        yield f"{module}.{node.attr}"
    elif node.attr in _PATH_METHODS:
        yield node.attr
    elif node.attr in _SHARED_METHODS:
        is_disk = receiver.endswith("disk")
        is_class = receiver[:1].isupper() and not receiver.endswith("Path")
        if not (is_disk or is_class or module.startswith("quivermq")):
            yield node.attr


def _is_file_function(name: str) -> bool:
    module, _, attribute = name.partition(".")
    if module == "os" and attribute:
        return attribute.partition(".")[0] not in _OS_WITHOUT_FILES
    return name in _FILE_FUNCTIONS


def _is_path_replace(call: ast.Call) -> bool:
    # A string's `replace` takes two arguments, a dataclass's and a datetime's take keywords.
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "replace"
        and len(call.args) == 1
        and not call.keywords
    )


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for, dotted: `import os as o` gives {"o": "os"}."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def _top(name: str) -> str:
    return name.partition(".")[0]


def _last_name(node: ast.expr) -> str:
    """The identifier next to the dot: `disk` of both `disk.open` and `self.disk.open`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
