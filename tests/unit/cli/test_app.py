import ast
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from reference import ROOT, cli_page
from typer.main import get_command

from quivermq.cli.app import app
from quivermq.cli.output import counted


def test_the_page_is_what_make_reference_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert (ROOT / "docs/reference/cli.md").read_text() == cli_page()


COMMANDS = """
ack
backup, backup list, backup make, backup prune, backup verify
bench
chaos
cluster, cluster demo, cluster drain, cluster init, cluster move, cluster remove, cluster status
compact
dlq, dlq discard, dlq list, dlq redrive
export
extend
get
group, group delete, group deliveries, group list, group pause, group reset, group resume, group retry
group seek, group show
import
key, key allow-anonymous, key create, key list, key revoke
nack
pipeline, pipeline archive, pipeline audit, pipeline compact
pipeline redrive, pipeline replay, pipeline report, pipeline run, pipeline sql
put
read
reject
release
repair
restore
scheduled, scheduled cancel, scheduled deliver, scheduled list
serve
settings, settings show
stats
tail
topic, topic alter, topic create, topic delete, topic list, topic purge, topic show, topic sync
verify
"""


def test_every_command_is_on_the_page() -> None:
    headings = [line for line in cli_page().splitlines() if line.startswith("## ")]
    commands = [name for line in COMMANDS.split("\n") for name in line.split(", ") if name]
    assert headings == ["## quiver", *(f"## quiver {command}" for command in commands)]


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for part, child in below.items():
        yield from leaves(f"{name} {part}".strip(), child)


@pytest.mark.parametrize(
    ("name", "command"), [pytest.param(*leaf, id=leaf[0]) for leaf in leaves("", get_command(app))]
)
def test_every_command_speaks_to_programs_and_explains_itself(name: str, command: Any) -> None:
    words = {word for option in command.params for word in option.opts}
    assert "--json" in words
    assert command.help
    assert all(option.help for option in command.params)
    if name.startswith("cluster"):
        assert ("--etcd" in words) == (name != "cluster demo")
        return
    # Of backups, only making one is about a queue.
    targets = ("restore", "backup list", "backup prune", "backup verify")
    if not name.startswith(("key", "settings", *targets)):
        assert "--data" in words
    if not name.startswith(("chaos", "key", "settings", "repair", "serve", *targets)):
        assert "--server" in words
    assert not words & {"--api-key", "--password", "--secret"}


def test_help_imports_no_part_of_the_server() -> None:
    source = (
        "import sys; from quivermq.cli.app import app; app(['--help'], standalone_mode=False);"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(ast.literal_eval(done.stderr))
    assert "quivermq.cli.serve" in loaded
    heavy = ("quivermq.server", "quivermq.spark", "msgspec", "uvloop", "httptools", "pyarrow", "pyspark")
    assert not [name for name in loaded if name.startswith(heavy)]


@pytest.mark.parametrize(("count", "text"), [(0, "0 indexes"), (1, "1 index"), (2, "2 indexes")])
def test_what_is_counted_is_in_the_right_number(count: int, text: str) -> None:
    assert counted(count, "index", "indexes") == text
    assert counted(2, "log") == "2 logs"
