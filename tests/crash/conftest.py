"""Lets the checks that crash tests share say what they compared."""

import pytest

pytest.register_assert_rewrite("support.crash")
