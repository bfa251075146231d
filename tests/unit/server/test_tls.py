"""Certificates: which files can be used, and which cannot."""

import ssl
from pathlib import Path

import pytest

from quivermq.errors import InvalidRequest
from quivermq.server.tls import tls_context


def test_old_tls_is_refused(certificate: tuple[Path, Path]) -> None:
    context = tls_context(*certificate)
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_are_no_certificate_are_refused(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    chain, key = certificate
    assert tls_context(None, None) is None
    with pytest.raises(InvalidRequest, match="without a certificate"):
        tls_context(None, key)
    for pair in ((tmp_path / "missing", key), (key, chain), (chain, None)):
        with pytest.raises(InvalidRequest, match="cannot be used for TLS"):
            tls_context(*pair)
