"""The public names: what users may import, and that nothing else comes along."""

import inspect
import subprocess
import sys

import quivermq
from quivermq import errors


def test_every_error_is_public() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.QuiverError)
    }
    assert classes <= set(quivermq.__all__)


def test_every_public_name_exists_and_has_a_docstring() -> None:
    undocumented = [
        name for name in quivermq.__all__ if name != "__version__" and not getattr(quivermq, name).__doc__
    ]
    assert not undocumented


def test_importing_quivermq_loads_none_of_the_extras() -> None:
    extras = {"pyarrow", "typer", "rich", "pyspark", "numpy"}
    source = f"import sys, quivermq; print(sorted({extras!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
