"""How long a client waits and how often it tries again: as told, or as the environment says."""

import os

from quivermq.client.core.retry import Retry
from quivermq.errors import InvalidRequest
from quivermq.model.checks import Period, seconds_of
from quivermq.settings import ClientSettings, load_settings

_PREFIX = "QUIVER_CLIENT__"

# A broker that is started anew, or whose backlog is full, is waited for some minutes.
PATIENT = Retry(retries=40, is_patient=True)


def client_settings(settings: ClientSettings | None = None) -> ClientSettings:
    """Those given, or those of the environment. Raises InvalidSettings."""
    if settings is not None:
        return settings
    given = {name: text for name, text in os.environ.items() if name.startswith(_PREFIX)}
    return load_settings(environ=given).settings.client


def patience_of(
    settings: ClientSettings | None,
    timeout: Period | None,
    retries: int | None,
    backoff: Period | None,
    backoff_max: Period | None,
) -> tuple[float, Retry]:
    """The seconds that a broker may be silent, and when a call is made again.

    What is not given is that of the settings, by default of the environment. Raises InvalidRequest,
    InvalidSettings.
    """
    settings = client_settings(settings)
    first_s, longest_s = settings.backoff_ms / 1000, settings.backoff_ms_max / 1000
    if backoff is not None:
        first_s = seconds_of("backoff", backoff, lowest=0.001)
    if backoff_max is not None:
        longest_s = seconds_of("backoff_max", backoff_max, lowest=0.001)
        if longest_s < first_s:
            raise InvalidRequest(f"backoff_max is {longest_s:g} s, and backoff already {first_s:g} s")
    timeout_s = settings.timeout_ms / 1000
    if timeout is not None:
        timeout_s = seconds_of("timeout", timeout, lowest=0.001)
    return timeout_s, Retry(settings.retries if retries is None else retries, first_s, longest_s)
