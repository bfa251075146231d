"""The files of deploy/ speak of metrics, labels, commands and settings that are there."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.main import get_command

from quivermq.cli.app import app
from quivermq.spark.jobs.run_file import load_pipeline
from quivermq.topic.defaults import TopicDefaults, load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
METRICS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
# Those that Prometheus adds itself.
OUTER_LABELS = {"instance", "job", "le"}


def expressions() -> Iterator[Any]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield pytest.param(rule["expr"], id=rule["alert"])
    dashboard = json.loads((DEPLOY / "grafana" / "quiver.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield pytest.param(variable["query"], id=f"variable {variable['name']}")


def labels_by_metric() -> dict[str, set[str]]:
    """What the reference has, which a test of the metrics compares with the code."""
    table: dict[str, set[str]] = {"up": set()}
    for line in METRICS_PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`(\w+)`", cells[0])
        if not names or not line.startswith("|"):
            continue
        labels = cells[2] if cells[1] in ("counter", "gauge", "histogram") else cells[1]
        for name in names:
            table[name] = {label.strip() for label in labels.split(",") if label.strip()}
    return table


@pytest.mark.parametrize("expression", list(expressions()))
def test_metrics_and_labels_are_there(expression: str) -> None:
    known = labels_by_metric()
    names = re.findall(r"\b(?:quiver|process)_\w+|\bup\b", expression)
    assert names
    for name in names:
        base = name.removesuffix("_bucket")
        assert base in known, name
        for selected in re.findall(rf"{name}{{([^}}]*)}}", expression):
            asked = set(re.findall(r"(\w+)\s*=", selected))
            assert asked <= known[base] | OUTER_LABELS, name


def test_a_broker_with_the_profile_is_bounded() -> None:
    loaded = load_settings(toml=DEPLOY / "quiver.toml")
    made = TopicDefaults(loaded.settings).make("orders", {})
    limits = (
        *("retention_ms", "segment_ms", "backlog_messages_max", "backlog_bytes_max", "attempts_max"),
        "dead_letter_retention_ms",
    )
    assert [name for name in limits if getattr(made, name) is None] == []
    assert loaded.settings.engine.free_bytes_min >= 1024**3


def test_everything_that_runs_is_a_command() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    container = (DEPLOY / "Containerfile").read_text()
    serve = json.loads(re.findall(r"^CMD (\[.*\])$", container, re.MULTILINE)[0])
    commands = [serve]
    for name in ("key", "pipeline"):
        words = shlex.split(compose["services"][name]["command"][0].replace("$$", "$"))
        arguments = words[words.index("quiver") + 1 :]
        commands.append(arguments[: arguments.index(">")] if ">" in arguments else arguments)
    for arguments in commands:
        command: Any = get_command(app)
        while getattr(command, "commands", None):
            assert arguments[0] in command.commands
            command = command.commands[arguments.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= options


def test_files_that_are_mounted_are_there() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    volumes = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    for volume in volumes:
        source = volume.split(":")[0]
        assert source in compose["volumes"] or (DEPLOY / source).exists(), volume


def test_the_pipeline_is_one() -> None:
    pipeline = load_pipeline(DEPLOY / "pipeline" / "pipeline.toml")
    assert [sink.topic for sink in pipeline.sinks] == ["revenue", None]
