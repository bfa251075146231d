import os
import subprocess
import sys
from pathlib import Path

import pytest

from quivermq.errors import NotFound
from quivermq.spark import session as session_function
from quivermq.spark.session import is_local, local_cores, settings_for, worker_python


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
    ],
)
def test_a_master_is_local_or_a_cluster(master: str, local: bool) -> None:
    assert is_local(master) is local
    assert ("spark.driver.host" in settings_for(master, {})) is local


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[3,2]", 3), ("local[*]", os.cpu_count())]
)
def test_there_are_as_many_shuffle_partitions_as_cores(master: str, cores: int) -> None:
    assert local_cores(master) == cores
    assert settings_for(master, {})["spark.sql.shuffle.partitions"] == str(cores)


def test_what_was_asked_for_counts_more() -> None:
    asked = {"spark.sql.shuffle.partitions": "9", "spark.driver.extraJavaOptions": "-Xss4m"}
    made = settings_for("local[2]", asked)
    assert made["spark.sql.shuffle.partitions"] == "9"
    options = made["spark.driver.extraJavaOptions"].split()
    assert options[0].startswith("-Dlog4j2.configurationFile=file:///")
    assert options[1] == "-Xss4m"


def test_the_installed_package_comes_before_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = subprocess.run(
        [worker_python(), "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.executable)"],
        env={**os.environ, "PYTHONPATH": "/a b:/spark/lib/pyspark.zip:/c"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == f"/a b:/c {sys.executable}"


def test_a_missing_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # Through the table of modules, because in the package the name stands for the function.
    monkeypatch.setattr(sys.modules["quivermq.spark.session"], "find_spec", lambda _: None)
    with pytest.raises(NotFound, match=r"pip install 'quivermq\[spark\]'"):
        session_function()


def test_importing_the_package_imports_no_spark() -> None:
    source = (
        "import sys, quivermq.spark; print(sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_explains_itself() -> None:
    import quivermq.spark

    assert [name for name in quivermq.spark.__all__ if not getattr(quivermq.spark, name).__doc__] == []
    assert set(quivermq.spark.__all__) <= set(dir(quivermq.spark))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = quivermq.spark.nothing


def test_no_warehouse_is_made_where_somebody_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = (tmp_path / "quiver" / "warehouse").as_uri()
    assert settings_for("local", {})["spark.sql.warehouse.dir"] == expected
    assert settings_for("local", {"spark.sql.warehouse.dir": "/x"})["spark.sql.warehouse.dir"] == "/x"


def test_a_client_without_its_packages_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[session_function.__module__]
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "grpc_status" else name)
    with pytest.raises(NotFound, match=r"needs grpc_status: pip install 'pyspark\[connect\]'"):
        session_function("sc://127.0.0.1:1")
