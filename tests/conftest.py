"""What every test run shares: the property tests' profile, and a seed that is always printed."""

import random

import pytest
from hypothesis import settings

# No deadline, because a busy machine is not a bug.
settings.register_profile("quiver", deadline=None, print_blob=True)
settings.load_profile("quiver")


# First, because Hypothesis reads the option in its own pytest_configure.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.randrange(2**32))


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: repeat this run with --hypothesis-seed={config.option.hypothesis_seed}"
