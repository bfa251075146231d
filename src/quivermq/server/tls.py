"""What the broker needs to speak TLS."""

import os
import ssl

from quivermq.errors import InvalidRequest


def tls_context(
    certificate: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None
) -> ssl.SSLContext | None:
    """What a certificate chain and its private key, both as PEM files, give; None without them.

    The key may be in the file of the certificate. Raises InvalidRequest when that cannot be used.
    """
    if certificate is None:
        if key is not None:
            raise InvalidRequest("there is a TLS key without a certificate: give both")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A key with a password would otherwise ask for it at the terminal, which a service has not.
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        files = f"{certificate}" if key is None else f"{certificate} and {key}"
        raise InvalidRequest(f"{files} cannot be used for TLS: {error}") from error
    return context


def _no_password() -> str:
    raise ValueError("the key has a password: store it without one, readable by the broker only")
