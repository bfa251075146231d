"""What the fuzzer found worth keeping stays a test, also where there is no fuzzer."""

import pytest
from fuzz.fuzz_frame import corpus
from fuzz.oracle import check, input_frame

pytestmark = pytest.mark.fault("hostile", "engine")


def test_every_input_of_the_corpus_is_a_frame_or_refused() -> None:
    accepted = [check(input_frame(data)) for data in corpus()]
    assert len(accepted) >= 50
    assert set(accepted) == {True, False}, "the corpus should reach both ends of the reader"


def test_every_way_to_make_a_frame_is_in_the_corpus() -> None:
    assert {data[0] % 4 for data in corpus() if data} == {0, 1, 2, 3}
