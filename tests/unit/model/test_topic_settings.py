"""The settings of a topic as keyword arguments are those that a topic has."""

from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from quivermq.model.topic_settings import TopicOptions, TopicSettings

OPTIONS = get_type_hints(TopicOptions)
SETTINGS = get_type_hints(TopicSettings)
# Users may give all but this one, which the cluster sets.
GIVEN = [field.name for field in fields(TopicSettings) if field.name != "spread_index"]


def test_every_setting_is_an_option_by_the_same_name() -> None:
    assert list(OPTIONS) == GIVEN
    assert not TopicOptions.__required_keys__


@pytest.mark.parametrize("name", GIVEN)
def test_an_option_takes_what_the_setting_is(name: str) -> None:
    # A number may be a text with a unit as well.
    taken = set(get_args(OPTIONS[name]) or [OPTIONS[name]]) - {str}
    kept = set(get_args(SETTINGS[name]) or [SETTINGS[name]]) - {str}
    assert taken == kept
