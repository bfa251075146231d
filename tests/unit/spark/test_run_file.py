from pathlib import Path
from textwrap import dedent

import pytest

from quivermq.errors import InvalidName, InvalidRequest, NotFound
from quivermq.spark.jobs.run_file import Pipeline, load_pipeline

WHOLE = """\
[pipeline]
name = "revenue"
mode = "continuous"

[[source]]
name = "orders"
topics = ["orders", "orders.eu"]
format = "json"
schema = "id string, amount double"
malformed = "orders.malformed"
watermark = { column = "at", delay = "10 minutes" }

[[step]]
name = "revenue"
sql = "SELECT 1"

[[step]]
name = "rich"
python = "steps.py:enrich"

[[sink]]
from = "revenue"
topic = "revenue"
mode = "update"
key = "id"

[[sink]]
from = "rich"
parquet = "out/rich"
partition_by = ["day"]
"""


def load(tmp_path: Path, text: str) -> Pipeline:
    file = tmp_path / "pipeline.toml"
    file.write_text(dedent(text))
    return load_pipeline(file)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    pipeline = load(tmp_path, WHOLE)
    assert (pipeline.name, pipeline.mode, pipeline.checkpoint) == ("revenue", "continuous", None)
    assert pipeline.sources[0].topics == ["orders", "orders.eu"]
    assert pipeline.sources[0].watermark == {"column": "at", "delay": "10 minutes"}
    assert [step.name for step in pipeline.steps] == ["revenue", "rich"]
    assert [(sink.table, sink.name) for sink in pipeline.sinks] == [
        ("revenue", "revenue"),
        ("rich", "out_rich"),
    ]
    assert pipeline.beside("out") == tmp_path / "out"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name = "revenue"\nmode', "mode", r"\[pipeline\]: name is missing"),
        ('"continuous"', '"daily"', r"\[pipeline\]: mode is one of once, continuous, not 'daily'"),
        ("[pipeline]", "[pipelines]", r"the file: pipelines is not known: did you mean pipeline\?"),
        ("[[source]]", "[source]", r"\[source\] is written \[\[source\]\]"),
        (
            'format = "json"',
            'fromat = "json"',
            r"\[\[source\]\] 1: fromat is not known: did you mean format",
        ),
        (
            '["orders", "orders.eu"]',
            '"orders"',
            r"\[\[source\]\] 1: topics is a list of texts, not 'orders'",
        ),
        ('["orders", "orders.eu"]', "[]", r"topics is empty"),
        ('schema = "id string, amount double"', "", r"\[\[source\]\] 1: schema belongs to format = 'json'"),
        (', delay = "10 minutes"', "", r"watermark is \{ column"),
        ('sql = "SELECT 1"', "", r"\[\[step\]\] 1: sql or python: a step has one of them"),
        ("steps.py:enrich", "steps.py", r"\[\[step\]\] 2: python is a file and a function in it"),
        (
            'name = "rich"',
            'name = "revenue"',
            r"\[\[step\]\] 2: name 'revenue' is the name of another table",
        ),
        ('name = "rich"', 'name = "so rich"', r"\[\[step\]\] 2: name 'so rich' is no name for a table"),
        (
            'from = "rich"',
            'from = "poor"',
            r"\[\[sink\]\] 2: from is 'poor', there are orders, revenue, rich",
        ),
        ('from = "rich"', "", r"\[\[sink\]\] 2: from is missing"),
        ('from = "rich"', 'table = "rich"', r"\[\[sink\]\] 2: table is called `from`"),
        ('parquet = "out/rich"', 'parquet = "x"\ntopic = "y"', r"\[\[sink\]\] 2: topic or parquet"),
        ('topic = "revenue"', 'topic = "revenue"\npartition_by = ["a"]', "partition_by is for Parquet"),
        ('parquet = "out/rich"', 'parquet = "x"\nmode = "update"', "mode and key are for topics"),
        ('parquet = "out/rich"', 'parquet = "x"\nname = "revenue"', "is the name of another sink"),
        ("[pipeline]", '[pipeline]\ndata = "a"\nserver = "b"', r"server and data are both there"),
        ("[pipeline]", "[pipeline", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in WHOLE
    with pytest.raises(InvalidRequest, match=rf"pipeline\.toml:? .*{reason}"):
        load(tmp_path, WHOLE.replace(old, new, 1))


def test_a_topic_needs_a_name_that_can_be_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidName):
        load(tmp_path, WHOLE.replace('topic = "revenue"', 'topic = "a/b"'))


@pytest.mark.parametrize("table", ["source", "sink"])
def test_there_has_to_be_one_of_each(tmp_path: Path, table: str) -> None:
    parts = WHOLE.split("\n\n")
    text = "\n\n".join(part for part in parts if not part.startswith(f"[[{table}]]"))
    with pytest.raises(InvalidRequest, match=rf"\[\[{table}\]\] is missing"):
        load(tmp_path, text)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        load_pipeline(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name = "revenue"\nmode', 'name = "../../x"\nmode', r"\[pipeline\]: name"),
        ('name = "revenue"\nmode', 'name = "LOCK"\nmode', r"\[pipeline\]: name"),
        ('topic = "revenue"', 'topic = "revenue"\nname = "../y"', r"\[\[sink\]\] 1: name"),
        ('topic = "revenue"', 'topic = "revenue"\nname = ".."', r"\[\[sink\]\] 1: name"),
        (
            'topic = "revenue"',
            'topic = "revenue"\nname = "malformed-orders.malformed"',
            r"\[\[sink\]\] 1: name .*another sink",
        ),
        ('name = "rich"', 'name = "ORDERS"', r"\[\[step\]\] 2: name .*another table"),
    ],
)
def test_names_become_directories_and_views(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in WHOLE
    with pytest.raises(InvalidRequest, match=reason):
        load(tmp_path, WHOLE.replace(old, new))
