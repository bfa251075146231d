"""What `quiver pipeline archive` tells people."""

import pytest
import typer

from quivermq.cli.pipeline.upkeep import archive_result
from quivermq.spark.jobs.archive import ArchivedTopicSummary, ArchiveSummary


def test_a_line_for_each_topic_and_one_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    topics = (
        ArchivedTopicSummary("events", 1_500, 2_048, 3, 9, 5, 7),
        ArchivedTopicSummary("orders", problem="made again"),
    )
    summary = ArchiveSummary(
        "data", "data/archive", False, topics, True, freed_segments=2, freed_bytes=1024
    )
    with pytest.raises(typer.Exit) as ended:
        archive_result(summary).print(as_json=False)
    assert ended.value.exit_code == 4
    out, err = capsys.readouterr()
    assert ["events", "1,500", "3", "2.0", "KiB", "9", "7", "5"] in [
        line.split() for line in out.splitlines()
    ]
    assert "1500 messages archived in 0.0 s: data/archive" in out.replace(",", "")
    assert "freed 2 segments, 1.0 KiB" in out
    assert "made again" in err


def test_a_dry_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    summary = ArchiveSummary("data", "there", True, (ArchivedTopicSummary("events", 3),))
    archive_result(summary).print(as_json=False)
    assert "3 messages would be archived: there" in capsys.readouterr().out
