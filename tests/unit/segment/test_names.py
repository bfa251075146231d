from pathlib import Path

import pytest

from quivermq.segment.index import base_offset_of, index_path, log_path


@pytest.mark.parametrize("base_offset", [0, 7, 2**63 - 1])
def test_a_name_gives_back_its_base_offset(base_offset: int) -> None:
    path = log_path(Path("d"), base_offset)
    assert base_offset_of(path.name) == base_offset
    assert index_path(Path("d"), base_offset) == path.with_suffix(".idx")
    assert len(path.stem) == 20


def test_names_sort_as_offsets() -> None:
    bases = [0, 9, 10, 99, 10**18, 2**63 - 1]
    assert [base_offset_of(name) for name in sorted(log_path(Path(), b).name for b in bases)] == bases


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "0000000000000000000.log",
        "000000000000000000000.log",
        "00000000000000000000.idx",
        "00000000000000000000.log.tmp",
        "-0000000000000000001.log",
        "00000000000000000000.log\n",
        "9223372036854775808.log",
        "09223372036854775808.log",
        "99999999999999999999.log",
        "\u0660" * 20 + ".log",
        "x00000000000000000000.log",
        "LOCK",
        "",
    ],
)
def test_no_other_name_is_a_log_file(name: str) -> None:
    assert base_offset_of(name) is None


def test_a_name_has_the_suffix_that_is_asked_for() -> None:
    assert base_offset_of("00000000000000000007.tmp", ".tmp") == 7
    assert base_offset_of("00000000000000000007.tmp", ".idx") is None
    assert base_offset_of("00000000000000000007Xidx", ".idx") is None
