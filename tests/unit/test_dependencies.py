"""What the project asks others for, as pyproject.toml, the lock and the page about it say it."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (ROOT / "requirements-dev.lock").read_text()
SERVE_LOCK = (ROOT / "requirements-serve.lock").read_text()


def requirements(*extras: str) -> list[Requirement]:
    """What the core and these extras ask for, without their references to each other."""
    lists = [PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras)]
    every = (Requirement(text) for texts in lists for text in texts)
    return [each for each in every if each.name != PROJECT["name"]]


def test_the_core_has_two_dependencies() -> None:
    assert {each.name for each in requirements()} == {"crc32c", "cramjam"}


@pytest.mark.parametrize("requirement", requirements(*EXTRAS), ids=str)
def test_a_dependency_is_bounded_on_both_sides_and_explained(requirement: Requirement) -> None:
    assert {each.operator for each in requirement.specifier} == {">=", "<"}
    page = (ROOT / "docs/internals/dependencies.md").read_text()
    assert f"- `{requirement.name}`: " in page


@pytest.mark.parametrize("requirement", requirements("cli", "dev"), ids=str)
def test_the_lock_pins_a_version_that_is_allowed(requirement: Requirement) -> None:
    pin = re.search(rf"^{re.escape(requirement.name)}==(\S+)", LOCK, re.MULTILINE)
    assert pin is not None
    assert requirement.specifier.contains(pin[1])


@pytest.mark.parametrize("lock", [LOCK, SERVE_LOCK], ids=["dev", "serve"])
def test_the_lock_has_hashes_and_no_addresses(lock: str) -> None:
    pins = re.findall(r"^\w\S*==.*\n((?: +--hash=sha256:[0-9a-f]{64}.*\n)+)", lock, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^\w", lock, re.MULTILINE)) > 0
    assert "://" not in lock
    assert not re.search(r"^ *--(?!hash)", lock, re.MULTILINE)


def test_what_serves_is_a_small_part_of_the_rest_with_the_same_pins() -> None:
    """So that `make test` grows the environment that `make run` made."""
    small, large = (dict(re.findall(r"^(\w\S*)==(\S+)", lock, re.MULTILINE)) for lock in (SERVE_LOCK, LOCK))
    assert small.items() <= large.items()
    assert {each.name for each in requirements("cli", "server", "serve")} <= small.keys()
    # A broker needs neither Spark nor Arrow, and none of the tools.
    others = {each.name for each in requirements("bench", "docs", "encryption", "spark")}
    assert not small.keys() & (others - {each.name for each in requirements()})
    assert len(small) < 40 < len(large)


def test_make_run_installs_what_serves_and_nothing_else() -> None:
    rules = (ROOT / "Makefile").read_text()
    assert re.search(r"^run: \$\(SERVING\) ##", rules, re.MULTILINE)
    assert re.search(r"^\$\(SERVING\): requirements-serve.lock pyproject.toml$", rules, re.MULTILINE)
