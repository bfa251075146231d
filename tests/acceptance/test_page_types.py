"""What a newcomer copies also passes `mypy --strict`: every program of the README and the docs that is run.

Each block is a module of its own, and all of them are checked at once, with the settings of the project.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from mypy import api
from support.pages import PAGES, ROOT, Block, blocks_of

Complaints = Callable[[dict[str, str]], dict[str, list[str]]]

README = ROOT / "README.md"
# What somebody may get wrong with the programs of the README, and what mypy says then.
MISTAKES = {
    'orders.put(b"hello", key': ('orders.put("hello", key', "arg-type"),
    'priority="high"': ('priority="urgent"', "arg-type"),
    "orders.process() as order:\n        print(order.value, order.attempt)": (
        "orders.process(timeout=1) as order:\n        print(order.value, order.attempt)",
        "union-attr",
    ),
    "orders: quivermq.Queue": ("orders: quivermq.Log", "arg-type"),
    'mq.queue("orders", group="billing")\n    orders.put': (
        'mq.queue("orders", group="billing")\n    mq.alter_topic("orders", lese_ms=1)\n    orders.put',
        "call-arg",
    ),
}


def programs_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.runs and block.language == "python"]


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> Complaints:
    """What mypy says of programs, by the name of each."""
    cache = tmp_path_factory.mktemp("cache")

    def check(programs: dict[str, str]) -> dict[str, list[str]]:
        directory = tmp_path_factory.mktemp("programs")
        names = {f"program_{number}": name for number, name in enumerate(programs)}
        for module, name in names.items():
            (directory / f"{module}.py").write_text(programs[name])
        with pytest.MonkeyPatch.context() as patch:
            # The settings name directories of the project.
            patch.chdir(ROOT)
            arguments = ["--strict", "--cache-dir", str(cache), *map(str, sorted(directory.iterdir()))]
            said, failure, _ = api.run(arguments)
        assert not failure
        found: dict[str, list[str]] = {}
        for line in said.splitlines():
            if error := re.search(r"(program_\d+)\.py:\d+: error: (.*)", line):
                found.setdefault(names[error[1]], []).append(error[2])
        assert bool(found) != ("no issues found" in said), said
        return found

    return check


def test_the_programs_of_the_pages_have_true_types(complaints: Complaints) -> None:
    programs = {block.place: block.text for page in PAGES for block in programs_of(page)}
    assert len(programs) > 40
    assert complaints(programs) == {}


def test_a_wrong_type_is_noticed(complaints: Complaints) -> None:
    text = [block.text for block in programs_of(README)]
    programs = {
        right: next(each for each in text if right in each).replace(right, wrong)
        for right, (wrong, _) in MISTAKES.items()
    }
    found = complaints(programs)
    assert found.keys() == MISTAKES.keys()
    for right, (_, code) in MISTAKES.items():
        assert any(f"[{code}]" in line for line in found[right])


def test_the_readme_shows_one_function_for_every_queue() -> None:
    shown = next(block.text for block in programs_of(README) if "def work" in block.text)
    assert "def work(orders: quivermq.Queue) -> None:" in shown
    assert "quivermq.open(" in shown
    assert "quivermq.connect(" in shown
