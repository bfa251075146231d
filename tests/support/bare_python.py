"""A Python like this one, but without this package, as on the machine of somebody else."""

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

_OURS = ("quivermq", "pyspark_quiver", "_editable_impl_quivermq")


def bare_python(directory: Path, *, without: Sequence[str] = ()) -> str:
    """A program that runs this interpreter with all installed packages but ours and those named."""
    packages = directory / "packages"
    packages.mkdir(parents=True)
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if path.suffix != ".pth" and not path.name.startswith((*_OURS, *without)):
            (packages / path.name).symlink_to(path)
    program = directory / "python"
    # Without the module `site`, which would bring all packages in.
    interpreter = os.path.realpath(sys.executable)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {interpreter} -S "$@"\n')
    program.chmod(0o755)
    return str(program)
