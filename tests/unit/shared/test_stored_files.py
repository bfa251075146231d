"""Files of objects and of what chunks bring: the same bytes as in a directory."""

import random
from pathlib import Path

from quivermq.shared.checkpoint import Checkpoint, Part, StoredFile
from quivermq.shared.chunk import CHAIN_START
from quivermq.shared.stored_files import Stored, StoredContent, StoredFiles, StoredRebuilding

ROOT = Path("/stored")
OBJECTS = {f"file/{n}": bytes(range(n * 40, n * 40 + 30)) for n in range(4)}


def bytes_of(content: StoredContent, start: int = 0, end: int = 10**6) -> bytes:
    return b"".join(
        OBJECTS[piece.part.name][piece.start : piece.end] if isinstance(piece, Stored) else bytes(piece)
        for piece in content.between(start, end)
    )


def test_any_changes_of_a_content_are_those_of_a_file() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        content, file = StoredContent(), bytearray()
        for name, data in OBJECTS.items():
            content.add(Stored(Part(name, len(data), 0), 0, len(data)))
            file += data
        for _ in range(30):
            position = rng.randint(0, len(file))
            data = rng.randbytes(rng.randint(0, 20))
            match rng.randrange(3):
                case 0:
                    content.append(data)
                    file += data
                case 1:
                    content.truncate(position)
                    del file[position:]
                case 2:
                    data = data[: len(file) - position]
                    content.rewrite(position, data)
                    file[position : position + len(data)] = data
            assert content.size == len(file), f"seed {seed}"
            assert bytes_of(content) == file, f"seed {seed}"
            end = rng.randint(position, len(file) + 5)
            assert bytes_of(content, position, end) == file[position:end], f"seed {seed}"


def test_a_directory_is_moved_with_all_that_is_in_it() -> None:
    files = StoredFiles(ROOT)
    for directory in (ROOT / "a", ROOT / "a/b", ROOT / "c"):
        files.make_directory(directory)
    files.create(ROOT / "a/b/file").append([b"one", b"two"])
    files.rename(ROOT / "a", ROOT / "c/d")
    assert files.names == {
        ROOT: {"c"},
        ROOT / "c": {"d"},
        ROOT / "c/d": {"b"},
        ROOT / "c/d/b": {"file"},
    }
    assert bytes_of(files.contents[ROOT / "c/d/b/file"]) == b"onetwo"
    files.remove(ROOT / "c/d/b/file")
    files.remove_directory(ROOT / "c/d/b")
    assert files.names[ROOT / "c/d"] == set()
    assert not files.contents


def test_a_checkpoint_is_loaded_without_its_objects() -> None:
    rebuilding = StoredRebuilding(ROOT)
    parts = (Part("file/0", 30, 1), Part("file/1", 30, 2))
    rebuilding.load(
        Checkpoint(7, CHAIN_START, (0,), ("d",), [StoredFile("d/log", True, parts, b"tail")]),
        (),
    )
    assert rebuilding.number == 7
    node = rebuilding.tree.files["d/log"]
    assert (node.parts, node.size, node.is_private) == (parts, 64, True)
    content = rebuilding.files.contents[ROOT / "d/log"]
    assert bytes_of(content) == OBJECTS["file/0"] + OBJECTS["file/1"] + b"tail"
