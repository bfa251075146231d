"""Which code was measured. Others may be editing it meanwhile: a figure without this means little."""

import hashlib
import subprocess
from pathlib import Path

import quivermq

_PACKAGE = Path(quivermq.__file__).parent


def digest() -> str:
    """A short name for the content of the package as it is on the disk now."""
    total = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        total.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:10]


def commit() -> str | None:
    """The commit that holds the package, marked when the package differs; None outside of a repository."""
    revision = _git("rev-parse", "--short", "HEAD")
    if revision is None:
        return None
    return f"{revision} with changes" if _git("status", "--porcelain", ".") else revision


def _git(*arguments: str) -> str | None:
    try:
        ended = subprocess.run(
            ["git", *arguments], cwd=_PACKAGE, check=False, capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None
