"""Java options for a Spark that starts quickly.

A start takes most of its time to load classes. Java can keep them in a file as they are in memory: it is
made once, beside this Python, and again for another Java or another Spark. A Java that cannot do this does
without, and so do tests on a machine that is too busy to make it in time.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyspark

from quivermq.spark.launcher import HOME_VARIABLE, use_java

# A test is over before the better compiler has earned its time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Of a few rows, compiling a query takes longer than anything else.
FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
}
_TESTS = Path(__file__).parents[1]
_PATIENCE_S = 300


@cache
def quick_start() -> str:
    """The options, with the file of classes if there can be one."""
    classes = Path(sys.prefix) / f"spark-classes-{_fingerprint()}.jsa"
    if not classes.exists():
        _make(classes)
    return f"{QUICK_START} -XX:SharedArchiveFile={classes}" if classes.exists() else QUICK_START


def _fingerprint() -> str:
    """Of everything that says which classes there are."""
    use_java()
    home = os.environ.get(HOME_VARIABLE)
    java = str(Path(home) / "bin" / "java") if home else "java"
    told = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    spark = f"{pyspark.__version__} {pyspark.__file__}"
    return hashlib.sha256(told + spark.encode()).hexdigest()[:16]


def _make(classes: Path) -> None:
    """Run everything once that the classes are needed for. Java writes them when it ends."""
    unfinished = classes.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as directory:
        given = {
            "master": "local[2]",
            "conf": {
                "spark.driver.extraJavaOptions": f"{QUICK_START} -XX:ArchiveClassesAtExit={unfinished}"
            },
            "work": [["try_everything", {"directory": directory}]],
        }
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-m", "support.spark_program", json.dumps(given)],
                env={**os.environ, "PYTHONPATH": python_path()},
                capture_output=True,
                timeout=_PATIENCE_S,
                check=True,
            )
    if unfinished.exists():
        unfinished.rename(classes)


def python_path(*more: Path) -> str:
    """Where a Python of a test finds the modules of tests; what was there before stays."""
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, more), str(_TESTS), *([given] if given else [])])
